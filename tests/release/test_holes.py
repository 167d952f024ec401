"""pyproject.toml admits no version of a library with a known vulnerability."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
HOLES = tomllib.loads((ROOT / "deploy" / "release" / "holes.toml").read_text("utf-8"))
ASKED = {
    found.name: found
    for text in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["aws"])
    for found in [Requirement(text)]
}


@pytest.mark.parametrize("name", HOLES)
def test_the_first_version_without_a_hole_is_the_lowest_that_is_admitted(name: str) -> None:
    lowest = [Version(each.version) for each in ASKED[name].specifier if each.operator == ">="]
    assert lowest == [max(lowest)]
    assert lowest[0] >= Version(HOLES[name]["first"])
