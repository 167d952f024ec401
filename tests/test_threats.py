"""docs/threats.md names the test of each row: the tests exist, and no attack is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ATTACKS = ROOT / "tests" / "attacks"
PAGE = (ROOT / "docs" / "threats.md").read_text()


def _named() -> list[tuple[Path, str]]:
    """Return the files in the last cell of each row, each with a part of a test's name or ""."""
    found: list[tuple[Path, str]] = []
    for row in re.findall(r"^\|.*\|$", PAGE, re.MULTILINE):
        for text in re.findall(r"`([^`]+)`", row.split("|")[-2]):
            if text.endswith((".py", ".rs")):
                found.append((ROOT / text if "/" in text else ATTACKS / text, ""))
            else:
                found[-1] = (found[-1][0], text)
    return found


@pytest.mark.parametrize(("file", "part"), _named(), ids=lambda one: getattr(one, "name", one))
def test_a_test_that_is_named_is_there(file: Path, part: str):
    text = file.read_text()
    assert not part or re.search(rf"def test_\w*{part}", text)


def test_no_file_of_attacks_is_left_out():
    assert {file for file, _ in _named()} >= set(ATTACKS.glob("test_*.py"))
