"""The types of messages: both ends have those of the table in docs/dataplane-protocol.md."""

from __future__ import annotations

import enum
import re
from pathlib import Path

import pytest

from gateway.native.wire import VERSION, CommandKind, EventKind

ROOT = Path(__file__).parents[3]
RUST = ROOT / "dataplane/src/control"
PAGE = (ROOT / "docs/dataplane-protocol.md").read_text()


def in_the_document(heading: str) -> dict[str, int]:
    section = PAGE.split(f"\n## {heading}")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", section, re.MULTILINE)
    return {name: int(number) for number, name in rows}


def in_rust(name: str) -> dict[str, int]:
    body = (RUST / "kinds.rs").read_text().split(f"    {name} {{")[1].split("}")[0]
    variants = re.findall(r"(\w+) = (\d+),", body)
    return {re.sub(r"(?<!^)(?=[A-Z])", "_", one).lower(): int(number) for one, number in variants}


def in_python(kinds: type[enum.IntEnum]) -> dict[str, int]:
    return {kind.name.lower(): int(kind) for kind in kinds}


@pytest.mark.parametrize(("heading", "kinds"), [("Commands", CommandKind), ("Events", EventKind)])
def test_both_ends_and_the_document_have_the_same(heading: str, kinds: type[enum.IntEnum]) -> None:
    told = in_the_document(heading)
    assert len(told) >= 9
    assert in_python(kinds) == told
    assert in_rust(kinds.__name__) == told


def test_both_ends_and_the_document_speak_the_same_version() -> None:
    assert f"pub const VERSION: u16 = {VERSION};" in (RUST / "mod.rs").read_text()
    assert f"version u16 = {VERSION}" in PAGE
