"""The contents that a release documents: licences, SBOM, checksums, audits."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from release.artefacts import checksums
from release.audits import judge_npm_audit, judge_pip_audit, unreachable
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
from release.papers import licence_table, refuse_others
from release.rehearsals import first_example
from release.steps import Failed, Skipped

ROOT = Path(__file__).resolve().parents[2]
OURS = load_rules(RULES)
FEW = Rules(frozenset({"MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"}), {"MIT License": "MIT"})


@pytest.mark.parametrize(
    "expression",
    [
        "MIT",
        "GPL-3.0-only OR MIT",
        "MIT AND Zlib",
        "(GPL-3.0-only OR MIT) AND Zlib",
        "MIT AND (Zlib OR GPL-3.0-only)",
        "Apache-2.0 WITH LLVM-exception",
        "GPL-3.0-only AND MIT OR Zlib",
    ],
)
def test_a_licence_is_allowed(expression: str) -> None:
    assert FEW.allow(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "GPL-3.0-only",
        "MIT AND GPL-3.0-only",
        "MIT OR Zlib AND",
        "(MIT",
        "MIT)",
        "MIT Zlib",
        "Apache-2.0",
        "MIT WITH LLVM-exception",
        "GPL-3.0-only OR (MIT AND GPL-3.0-only)",
    ],
)
def test_a_licence_is_not_allowed(expression: str) -> None:
    assert not FEW.allow(expression)


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ([("License-Expression", "MIT OR Zlib"), ("License", "see file")], "MIT OR Zlib"),
        ([("License", "MIT License")], "MIT"),
        ([("License", "see file"), ("Classifier", "Typing :: Typed")], "see file"),
        ([], ""),
    ],
)
def test_the_licence_of_a_python_package_is_what_its_metadata_say(
    fields: list[tuple[str, str]], licence: str
) -> None:
    metadata = Message()
    for name, value in fields:
        metadata[name] = value
    assert FEW.of_python(metadata) == licence  # type: ignore[arg-type]


def test_every_python_package_that_newsfabric_needs_has_a_licence_that_is_allowed() -> None:
    components = python_components(OURS)
    assert {"tornado", "pika", "cffi"} <= {one.name for one in components}, "direct and indirect"
    assert "pytest" not in {one.name for one in components}, "extras stay out"
    refuse_others(OURS, components)


@pytest.mark.sockets
def test_every_crate_in_the_data_plane_has_a_licence_that_is_allowed() -> None:
    try:
        components = rust_components(cargo_metadata(ROOT))
    except (Skipped, Failed) as exc:  # no cargo, or crates that can't be fetched
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(exc))
    names = {one.name for one in components}
    assert {"libc", "zlib-rs"} <= names, "direct and indirect"
    assert "proptest" not in names, "what only tests need stays out"
    refuse_others(OURS, components)


def test_every_file_of_others_in_our_packages_is_known_with_its_licence() -> None:
    document = tomllib.loads(RULES.read_text())["vendored"]
    listed = {name for row in document.values() for name in row["files"]}
    found = {
        path.relative_to(ROOT).as_posix()
        for package in ("newsfabric", "operations", "gateway", "wholesale", "retail", "shovels")
        for pattern in ("*.min.*", "*.LICENSE.txt")
        for path in (ROOT / package).rglob(pattern)
        if "target" not in path.parts
    }
    assert found == listed
    refuse_others(OURS, vendored_components())


def test_cargo_deny_allows_nothing_that_a_release_does_not() -> None:
    deny = tomllib.loads((ROOT / "deny.toml").read_text())
    assert set(deny["licenses"]["allow"]) <= OURS.allowed


def test_unknown_licences_are_all_named() -> None:
    components = [
        Component("pypi", "good", "1", "MIT"),
        Component("pypi", "silent", "2", ""),
        Component("cargo", "strict", "3", "GPL-3.0-only"),
    ]
    with pytest.raises(Failed) as caught:
        refuse_others(FEW, components)
    assert str(caught.value).splitlines()[1:] == [
        "pkg:pypi/silent@2: says no licence",
        "pkg:cargo/strict@3: GPL-3.0-only",
    ]


def _metadata() -> dict[str, Any]:
    def package(name: str, licence: str | None = "MIT") -> dict[str, Any]:
        return {"id": name, "name": name, "version": "1.0.0", "license": licence}

    def needs(name: str, kind: str | None = None) -> dict[str, Any]:
        return {"pkg": name, "dep_kinds": [{"kind": kind}]}

    return {
        "packages": [
            package("newsfabric-dataplane"),
            package("linked", "MIT/Apache-2.0"),
            package("deep", None),
            package("tests-only"),
            package("builds-only"),
            package("of-the-bench"),
        ],
        "resolve": {
            "nodes": [
                {
                    "id": "newsfabric-dataplane",
                    "deps": [needs("linked"), needs("tests-only", "dev")],
                },
                {"id": "linked", "deps": [needs("deep"), needs("builds-only", "build")]},
                {"id": "deep", "deps": []},
            ]
        },
    }


def test_crates_that_only_build_or_test_are_not_inside() -> None:
    assert rust_components(_metadata()) == [
        Component("cargo", "deep", "1.0.0", ""),
        Component("cargo", "linked", "1.0.0", "MIT OR Apache-2.0"),
    ]


def test_an_sbom_names_each_component_by_its_package_url() -> None:
    components = [Component("npm", "b", "2", "MIT"), Component("cargo", "a", "1", "")]
    document = cyclonedx("whole", "9", components)
    assert [one["purl"] for one in document["components"]] == ["pkg:cargo/a@1", "pkg:npm/b@2"]
    assert document["components"][1]["licenses"] == [{"expression": "MIT"}]
    assert "licenses" not in document["components"][0]
    assert document["dependencies"] == [
        {"ref": "pkg:generic/whole@9", "dependsOn": ["pkg:cargo/a@1", "pkg:npm/b@2"]}
    ]
    json.dumps(document)


def test_the_list_of_licences_is_by_name() -> None:
    components = [Component("pypi", "b", "2", "MIT"), Component("cargo", "a", "1", "Zlib")]
    assert licence_table(components).splitlines()[-2:] == [
        "| a | 1 | cargo | Zlib |",
        "| b | 2 | pypi | MIT |",
    ]


def test_checksums_are_of_all_files_but_themselves(tmp_path: Path) -> None:
    (tmp_path / "maven").mkdir()
    (tmp_path / "maven" / "b.jar").write_bytes(b"b")
    (tmp_path / "a.whl").write_bytes(b"a")
    (tmp_path / "SHA256SUMS").write_text("old")
    assert checksums(tmp_path) == [
        f"{hashlib.sha256(b'a').hexdigest()}  a.whl",
        f"{hashlib.sha256(b'b').hexdigest()}  maven/b.jar",
    ]


def test_an_audit_that_looked_nothing_up_is_no_success() -> None:
    unasked = {"dependencies": [{"name": "pika", "skip_reason": "not found on PyPI"}]}
    with pytest.raises(Skipped, match="can't be asked about any of 1: not found on PyPI"):
        judge_pip_audit(unasked)
    with pytest.raises(Skipped, match="405 Method Not Allowed"):
        judge_npm_audit({"message": "405 Method Not Allowed", "error": {"summary": ""}})


def test_advisories_that_could_not_be_fetched_are_distinguished_from_holes() -> None:
    text = "[ERROR] failed to fetch advisory database https://x with cli\nfatal: no such host\n"
    assert unreachable(text) == "no such host"
    assert unreachable(text.splitlines()[0]) == "no reason given"
    assert unreachable("error[vulnerability]: RUSTSEC-2026-0001") is None


def test_an_audit_says_how_many_it_looked_up() -> None:
    pip = {
        "dependencies": [
            {"name": "pika", "version": "1", "vulns": []},
            {"name": "ours", "skip_reason": "not found on PyPI"},
        ]
    }
    assert judge_pip_audit(pip) == "pip-audit: no known hole in 1 of 2 packages"
    npm = {"vulnerabilities": {}, "metadata": {"dependencies": {"total": 32}}}
    assert judge_npm_audit(npm) == "npm audit: no known hole in 32 packages"


def test_a_known_hole_fails_with_its_name_and_what_mends_it() -> None:
    hole = {"id": "PYSEC-1", "fix_versions": ["1.4", "2.0"]}
    with pytest.raises(Failed, match=r"pika 1: PYSEC-1, mended in 1\.4, 2\.0"):
        judge_pip_audit({"dependencies": [{"name": "pika", "version": "1", "vulns": [hole]}]})
    npm = {"vulnerabilities": {"b": {}, "a": {}}, "metadata": {"dependencies": {"total": 2}}}
    with pytest.raises(Failed, match="holes in a, b"):
        judge_npm_audit(npm)


@pytest.mark.parametrize(("client", "language"), [("php", "php"), ("java", "java")])
def test_the_first_example_of_a_readme_makes_a_publisher(client: str, language: str) -> None:
    example = first_example(ROOT / "clients" / client / "README.md", language)
    assert "new " in example
    assert "```" not in example


def test_a_readme_without_an_example_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("```sh\nls\n```\n")
    with pytest.raises(Failed, match="has no example in php"):
        first_example(tmp_path / "README.md", "php")
