"""Steps that document the contents: SBOMs (CycloneDX 1.6) and the list of licences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from release.inside import (
    RULES,
    Component,
    cargo_metadata,
    cyclonedx,
    python_components,
    rust_components,
    vendored_components,
)
from release.licences import Rules, load_rules
from release.rehearsals import python_of_wheel
from release.steps import Failed, Release, need, run


def write_sbom_python(release: Release) -> str:
    """Write the SBOM of all packages that `pip install` of the wheel installs, by cyclonedx-py."""
    target = release.dist / f"newsfabric-{release.version}.python.cdx.json"
    program = release.tool("cyclonedx-py")
    run(
        [
            *(program, "environment", "--output-reproducible", "--validate", "--short-PURLs"),
            *("--pyproject", release.root / "pyproject.toml", "--output-file", target),
            python_of_wheel(release),
        ],
        release.root,
    )
    return _components_of(target)


def write_sbom_dataplane(release: Release) -> str:
    """Write the SBOM of the crates in the data plane, and of files of others in our packages."""
    inside = rust_components(cargo_metadata(release.root)) + vendored_components()
    document = cyclonedx("newsfabric-inside-the-wheel", release.version, inside)
    target = release.dist / f"newsfabric-{release.version}.inside.cdx.json"
    target.write_text(json.dumps(document, indent=2) + "\n")
    return _components_of(target)


def write_sbom_npm(release: Release) -> str:
    """Write the SBOM of the npm package, which has no dependencies."""
    npm = need("npm", "install the packages nodejs and npm")
    command = [npm, "sbom", "--sbom-format", "cyclonedx", "--omit", "dev", "--package-lock-only"]
    document = json.loads(run(command, release.root / "clients" / "js"))
    target = release.dist / f"newsfabric-{release.version}.npm.cdx.json"
    target.write_text(json.dumps(document, indent=2) + "\n")
    return _components_of(target)


def _components_of(path: Path) -> str:
    document: dict[str, Any] = json.loads(path.read_text())
    count = len(document.get("components", []))
    return f"{path.name}: {count} components, CycloneDX {document['specVersion']}"


def write_licences(release: Release) -> str:
    """Write the licence of each component; Failed for one that is unknown or not allowed."""
    rules = load_rules(RULES)
    (packages,) = python_of_wheel(release).parents[1].glob("lib/python*/site-packages")
    components = [
        *python_components(rules, [packages]),
        *rust_components(cargo_metadata(release.root)),
        *vendored_components(),
    ]
    refuse_others(rules, components)
    target = release.dist / "LICENCES.md"
    target.write_text(licence_table(components))
    return f"{target.name}: {len(components)} components, each under a licence that is allowed"


def refuse_others(rules: Rules, components: list[Component]) -> None:
    """Raise Failed, with all their names, for components that `licences.toml` doesn't allow."""
    others = [one for one in components if not rules.allow(one.licence)]
    if others:
        rows = [f"{one.purl}: {one.licence or 'says no licence'}" for one in others]
        raise Failed("\n".join(["not allowed by deploy/release/licences.toml:", *rows]))


def licence_table(components: list[Component]) -> str:
    """Return a Markdown table of the components, by name."""
    rows = [f"| {one.name} | {one.version} | {one.kind} | {one.licence} |" for one in components]
    head = ["| component | version | from | licence |", "|---|---|---|---|"]
    return "\n".join(["# Licences of what is inside", "", *head, *sorted(rows)]) + "\n"
