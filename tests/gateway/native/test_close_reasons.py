"""Reasons for closing: the data plane's own are in the project's table and in the document."""

from __future__ import annotations

import re
from pathlib import Path

from newsfabric.closing import CLOSE_REASONS

ROOT = Path(__file__).parents[3]
RUST = (ROOT / "dataplane/src/closing.rs").read_text()
PAGE = (ROOT / "docs/dataplane-protocol.md").read_text()


def in_rust() -> dict[str, str]:
    body = RUST.split("\nown_reasons! {")[1].split("\n}")[0]
    return dict(re.findall(r'^    (\w+) = "(\w+)", \w+;$', body, re.MULTILINE))


def in_the_document() -> set[str]:
    sentence = PAGE.split("closes connections by itself for the reasons ")[1].split(";")[0]
    return set(re.findall(r"`(\w+)`", sentence))


def test_the_data_plane_uses_no_reason_that_the_table_lacks() -> None:
    table = {reason.name for reason in CLOSE_REASONS}
    assert set(in_rust().values()) - table == set()


def test_the_document_names_the_same_reasons() -> None:
    assert set(in_rust().values()) == in_the_document()
    assert "drain" in in_the_document()


def test_a_reason_has_one_name_in_both_languages() -> None:
    variants = {reason.name.title().replace("_", ""): reason.name for reason in CLOSE_REASONS}
    assert in_rust().items() <= variants.items()
