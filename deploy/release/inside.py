"""The contents of a wheel and its dependencies: Python packages, Rust crates, files of others.

A component is a name, a version and a licence. SBOMs and the list of licences are made of
components. This module writes nothing; it only runs ``cargo metadata`` and ``rustc -vV``.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release.licences import Rules
from release.steps import need, run

_DATAPLANE: Final = "newsfabric-dataplane"
RULES: Final = Path(__file__).with_name("licences.toml")


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Component:
    """A part made by others. ``kind`` is a type of package URL: pypi, cargo or npm."""

    kind: str
    name: str
    version: str
    licence: str
    """An SPDX expression; empty if it doesn't say one."""

    @property
    def purl(self) -> str:
        """The package URL."""
        return f"pkg:{self.kind}/{self.name}@{self.version}"


def python_components(
    rules: Rules, path: Iterable[Path] | None = None, root: str = "newsfabric"
) -> list[Component]:
    """Return the dependencies of ``root``, as installed in ``path`` (by default ``sys.path``)."""
    folders = sys.path if path is None else [str(folder) for folder in path]
    installed = {
        canonicalize_name(found.metadata["Name"]): found
        for found in importlib.metadata.distributions(path=folders)
    }
    names, waiting = set[str](), [(canonicalize_name(root), frozenset[str]())]
    while waiting:
        name, extras = waiting.pop()
        for text in installed[name].requires or []:
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is not None and not any(
                marker.evaluate({"extra": extra}) for extra in ("", *extras)
            ):
                continue
            needed = canonicalize_name(requirement.name)
            if needed not in names:
                names.add(needed)
                waiting.append((needed, frozenset(requirement.extras)))
    return sorted(
        Component("pypi", name, found.version, rules.of_python(found.metadata))
        for name, found in installed.items()
        if name in names
    )


def rust_components(metadata: Mapping[str, Any]) -> list[Component]:
    """Return the crates in the data plane's program, from the output of ``cargo metadata``.

    Crates that are only for building or testing are left out.
    """
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    (root,) = (key for key, package in packages.items() if package["name"] == _DATAPLANE)
    seen, waiting = {root}, [root]
    while waiting:
        for dependency in nodes[waiting.pop()]["deps"]:
            linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if linked and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                waiting.append(dependency["pkg"])
    return sorted(
        # Old crates write "MIT/Apache-2.0" for "either".
        Component(
            "cargo",
            packages[key]["name"],
            packages[key]["version"],
            (packages[key]["license"] or "").replace("/", " OR "),
        )
        for key in seen - {root}
    )


def cargo_metadata(root: Path, platforms: Sequence[str] = ()) -> dict[str, Any]:
    """Return cargo's metadata of the workspace with its dependencies; default: this platform."""
    cargo = need("cargo", "`make dataplane` installs Rust")
    if not platforms:
        output = run(["rustc", "-vV"], root)
        platforms = [line.split()[1] for line in output.splitlines() if line.startswith("host: ")]
    command = [cargo, "metadata", "--locked", "--format-version", "1"]
    command += [word for one in platforms for word in ("--filter-platform", one)]
    metadata: dict[str, Any] = json.loads(run(command, root))
    return metadata


def vendored_components() -> list[Component]:
    """Return files of others in our packages, which no package manager knows of."""
    vendored = tomllib.loads(RULES.read_text(encoding="utf-8"))["vendored"]
    return sorted(
        Component("npm", name, row["version"], row["licence"]) for name, row in vendored.items()
    )


def cyclonedx(name: str, version: str, components: Iterable[Component]) -> dict[str, Any]:
    """Return a CycloneDX 1.6 document: ``name`` contains ``components``."""
    listed = sorted(components)
    main = f"pkg:generic/{name}@{version}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": main,
                "name": name,
                "version": version,
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": [
            {
                "type": "library",
                "bom-ref": one.purl,
                "name": one.name,
                "version": one.version,
                "purl": one.purl,
                **({"licenses": [{"expression": one.licence}]} if one.licence else {}),
            }
            for one in listed
        ],
        "dependencies": [{"ref": main, "dependsOn": [one.purl for one in listed]}],
    }
