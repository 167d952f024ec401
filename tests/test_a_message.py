"""docs/a-message.md names files that exist, and names that these files define."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "a-message.md"


class MessageStep(NamedTuple):
    """A row of the page."""

    text: str
    files: list[str]
    names: list[str]


def steps() -> list[MessageStep]:
    rows = [line.split("|")[1:-1] for line in PAGE.read_text().splitlines() if line[:2] == "| "]
    return [
        MessageStep(text.strip(), *(re.findall(r"`([^`]+)`", cell) for cell in cells))
        for text, *cells in rows
        if text.strip() != "step"
    ]


def defines(source: str, name: str) -> bool:
    """Return whether a file of Python, Rust or TypeScript defines ``name``."""
    return bool(
        re.search(rf"\b(class|def|fn|struct|enum|function) {name}\b|^{name}\b", source, re.M)
    )


def test_the_page_has_steps_of_both() -> None:
    files = {file for step in steps() for file in step.files}
    assert {"wholesale/router/storing.py", "dataplane/src/fanout.rs"} <= files


@pytest.mark.parametrize("step", steps(), ids=lambda step: step.text[:40])
def test_a_step_is_where_the_page_says(step: MessageStep) -> None:
    sources = [(ROOT / file).read_text() for file in step.files]
    assert sources
    assert step.names
    parts = [part for name in step.names for part in name.split(".")]
    missing = [part for part in parts if not any(defines(source, part) for source in sources)]
    assert missing == []
