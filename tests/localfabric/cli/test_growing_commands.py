"""``newsfabric drain`` before it drains anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from localfabric.cli import growing_commands
from localfabric.cli.growing_commands import left_without_boxes
from localfabric.world import growing, leaving
from localfabric.world.growing import GrownBox
from operations.cli import cli

REGIONS = {"oregon-retail-1": "oregon", "oregon-retail-2": "oregon", "dublin-retail-1": "dublin"}


@pytest.fixture
def drained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return the boxes that were drained, in a world of two regions."""
    found: list[tuple[str, ...]] = []
    boxes = tuple(
        GrownBox(name=name, region=region, age_seconds=1.0, alive=True)
        for name, region in REGIONS.items()
    )

    def drain_boxes(state: Path, names: Any, *, seconds: float) -> tuple[str, ...]:
        found.append(tuple(names))
        return tuple(names)

    monkeypatch.setattr(growing, "boxes", lambda _state: boxes)
    monkeypatch.setattr(leaving, "drain_boxes", drain_boxes)
    return found


def drain(*words: str) -> Result:
    return CliRunner().invoke(cli, ["drain", *words])


def test_regions_without_a_box_are_those_that_lose_all_they_have() -> None:
    assert left_without_boxes(REGIONS, ["oregon-retail-1"]) == []
    assert left_without_boxes(REGIONS, ["dublin-retail-1", "oregon-retail-1"]) == ["dublin"]
    assert left_without_boxes(REGIONS, list(REGIONS)) == ["oregon", "dublin"]


def test_a_box_that_is_not_the_last_is_drained(drained: list[tuple[str, ...]]) -> None:
    assert drain("oregon-retail-2").output == "oregon-retail-2: drained and ended\n"
    assert drained == [("oregon-retail-2",)]


def test_the_last_box_is_drained_for_who_says_so(drained: list[tuple[str, ...]]) -> None:
    refused = drain("dublin-retail-1")
    assert (refused.exit_code, refused.output) == (
        1,
        "error: dublin will have no box, so nobody can connect there: use --last if that is "
        "meant\n",
    )
    assert drained == []
    assert drain("dublin-retail-1", "--last").exit_code == 0
    assert drained == [("dublin-retail-1",)]


@pytest.mark.parametrize(("answer", "done"), [("y\n", [("dublin-retail-1",)]), ("n\n", [])])
def test_at_a_terminal_it_is_asked(
    drained: list[tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    done: list[tuple[str, ...]],
) -> None:
    monkeypatch.setattr(growing_commands, "_is_asked", lambda: True)
    asked = CliRunner().invoke(cli, ["drain", "dublin-retail-1"], input=answer)
    assert "Drain the last box? [y/N]" in asked.output
    assert drained == done
