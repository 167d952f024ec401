"""The licence texts of the libraries that are compiled into the data plane."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from release.inside import RULES, Component, cargo_metadata
from release.licences import load_rules
from release.notices import (
    NOTICES,
    PLATFORMS,
    Notice,
    chosen_files,
    compose,
    linked,
    notices_of,
    parts_of,
    standard_library,
    unlisted,
)
from release.steps import Failed, Skipped

ROOT = Path(__file__).resolve().parents[2]
OURS = (ROOT / NOTICES).read_text(encoding="utf-8")


def _of_the_standard_library() -> set[str]:
    rules = standard_library()
    return {
        "Rust's standard library",
        *(f"{one} {rules['crates'][one]}" for one in rules["crates"]),
    }


@pytest.mark.sockets
def test_each_crate_that_is_linked_in_is_named_with_its_text() -> None:
    try:
        crates = linked(cargo_metadata(ROOT, PLATFORMS))
    except (Skipped, Failed) as exc:  # no cargo, or crates that can't be fetched
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(exc))
    names = {f"{crate.name} {crate.version}" for crate, _ in crates}
    assert parts_of(OURS) == names | _of_the_standard_library()
    for crate, folder in crates:
        for notice in notices_of(crate, folder):
            last = notice.text.split()[-20:]
            assert " ".join(last) in " ".join(OURS.split()), crate.name


def test_no_crate_is_named_that_cargo_lock_does_not_have() -> None:
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    have = {f"{one['name']} {one['version']}" for one in locked}
    assert parts_of(OURS) - _of_the_standard_library() <= have


def test_the_licence_of_the_standard_library_is_allowed() -> None:
    assert load_rules(RULES).allow(standard_library()["licence"])


def test_cargo_deny_looks_at_the_platforms_of_the_notices() -> None:
    deny = tomllib.loads((ROOT / "deny.toml").read_text())
    assert deny["graph"]["targets"] == list(PLATFORMS)


@pytest.mark.parametrize(
    ("files", "licence", "chosen"),
    [
        (["LICENSE-APACHE", "LICENSE-MIT", "lib.rs"], "MIT OR Apache-2.0", ["LICENSE-MIT"]),
        (["LICENSE.md", "LICENSE-MIT.md"], "Zlib OR MIT", ["LICENSE-MIT.md"]),
        (["LICENSE-MIT", "NOTICE"], "Apache-2.0 OR MIT", ["LICENSE-MIT", "NOTICE"]),
        (
            ["LICENSE-MIT", "LICENSE-UNICODE"],
            "MIT AND Unicode-3.0",
            ["LICENSE-MIT", "LICENSE-UNICODE"],
        ),
        (["COPYING", "UNLICENSE", "AI_POLICY.md"], "Unlicense", ["COPYING", "UNLICENSE"]),
        (["Cargo.toml"], "MIT", []),
    ],
)
def test_a_notice_is_of_the_licence_that_we_take(
    files: list[str], licence: str, chosen: list[str]
) -> None:
    assert chosen_files(files, licence) == chosen


def test_a_crate_without_a_licence_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"silent 1\.0 comes without the text of its licence \(MIT\)"):
        notices_of(Component("cargo", "silent", "1.0", "MIT"), tmp_path)


def test_a_text_that_several_share_stands_once() -> None:
    text = compose(
        [
            Notice("b 2", "MIT", "LICENSE", "same  \r\nwords\n\n"),
            Notice("a 1", "MIT OR Zlib", "LICENSE-MIT", "same\nwords"),
            Notice("c 3", "Zlib", "LICENSE", "others"),
        ]
    )
    assert text.count("same\nwords") == 1
    assert "a 1: LICENSE-MIT\nb 2: LICENSE\n" + "-" * 80 + "\nsame\nwords\n" in text
    assert parts_of(text) == {"a 1", "b 2", "c 3"}


def test_a_crate_that_the_program_shows_and_nobody_listed_is_found() -> None:
    program = b"\0/rust/deps/gimli-0.32.3/src/read.rs\0/rust/deps/new-crate-1.2.3/src/lib.rs"
    assert unlisted(program, ["gimli"]) == ["new-crate"]
    assert unlisted(program, ["gimli", "new-crate"]) == []
