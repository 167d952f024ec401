"""Makes a release and tries it: ``make release``. It uploads nothing.

Artefacts and what belongs to them (SBOM, licences, checksums) go to ``dist/release/``. Each step is
a function; a step whose outside tool is missing is skipped and says how to get the tool.
"""
