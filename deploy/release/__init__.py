"""Makes a release and tries it: ``make release``. It uploads nothing.

Artefacts and their documents (SBOM, licences, checksums) are in ``dist/release/``. Each step is a
function; a step whose outside tool is missing is skipped, and names the way to get the tool.
"""
