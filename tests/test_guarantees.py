"""docs/guarantees.md and the tests agree on the promises."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def promised() -> list[str]:
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    return re.findall(r"^- \*\*([A-Z][0-9]+)\*\* ", text, re.MULTILINE)


def named() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for arguments in re.findall(r"pytest\.mark\.promise\(([^)]*)\)", path.read_text("utf-8")):
            found.update(re.findall(r'"([A-Z][0-9]+)"', arguments))
    return found


def test_each_promise_has_a_number_of_its_own() -> None:
    assert len(promised()) == len(set(promised())) > 20


def test_each_promise_is_tried_by_a_test_and_no_test_names_another() -> None:
    assert named() == set(promised())
