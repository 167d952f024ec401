"""A file of the product has at most 500 lines: a longer one has more than one subject."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PLACES: Final = [
    *(
        (package, "*.py")
        for package in ("newsfabric", "operations", "wholesale", "retail", "shovels")
    ),
    ("localfabric", "*.py"),
    ("gateway", "*.py"),
    ("dataplane/src", "*.rs"),
    ("clients/js/src", "*.ts"),
]
MOST: Final = 500


@pytest.mark.parametrize(("place", "pattern"), PLACES)
def test_no_file_is_longer(place: str, pattern: str) -> None:
    found = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in (ROOT / place).rglob(pattern)
    }
    assert found, f"nothing in {place}"
    assert {path: lines for path, lines in found.items() if lines > MOST} == {}
