"""The conditions under which a world is whole."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from board_documents import board, box, region, shovel

from localfabric.world import whole
from localfabric.world.whole import await_whole, wrong_on
from newsfabric.errors import WorldError
from operations.board_document import parse_board


def wrong(*regions: dict[str, Any]) -> list[str]:
    return list(wrong_on(parse_board(board(*regions))))


def test_a_world_is_whole_whose_boards_say_that_all_regions_are_well() -> None:
    fresh = shovel("publish.oregon.1")
    assert wrong(region("oregon", boxes=[box("b")], shovels=[fresh]), region("dublin")) == []


def test_what_is_wrong_is_the_first_reason_of_each_region() -> None:
    troubled = region("oregon", state="troubled", why=["oregon-router-1 is silent", "another"])
    assert wrong(troubled, region("dublin", state="away")) == [
        "oregon: oregon-router-1 is silent",
        "dublin: away",
    ]


@pytest.mark.parametrize(
    "late", [{"canary_age_ms": 3001}, {"canary_age_ms": None}, {"state": "unknown"}]
)
def test_a_shovel_of_the_own_region_brings_canaries(late: dict[str, Any]) -> None:
    found = ["oregon/core/s brings no canary yet"]
    assert wrong(region("oregon", shovels=[shovel("s", **late)])) == found
    # The shovels of another region are the business of that region's board.
    assert wrong(region("oregon"), region("dublin", shovels=[shovel("s", **late)])) == []


class Looks:
    """The findings of each look; the last one is repeated."""

    def __init__(self, *found: Sequence[str]) -> None:
        self._found = list(found)
        self.looked = 0

    async def __call__(self) -> Sequence[str]:
        self.looked += 1
        return self._found.pop(0) if len(self._found) > 1 else self._found[0]


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "_CHECK_EVERY", 0.001)


def test_it_is_waited_until_nothing_was_wrong_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "SURE", 0.0)
    looks, lines = Looks(["a", "b"], ["a", "b"], ["b"], []), list[str]()
    asyncio.run(await_whole(looks, lines.append, seconds=60.0))
    assert lines == ["waiting: a, and 1 more", "waiting: b"]
    assert looks.looked == 4


def test_what_breaks_meanwhile_begins_the_wait_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "SURE", 0.05)
    looks = Looks([], ["a"], [])
    asyncio.run(await_whole(looks, lambda _: None, seconds=60.0))
    # One look each before, during and after the fault, and one when the time was over.
    assert looks.looked >= 4


def test_who_waits_too_long_learns_what_is_wrong() -> None:
    with pytest.raises(WorldError, match=r"^not whole after 0.01 s: a; b$"):
        asyncio.run(await_whole(Looks(["a", "b"]), lambda _: None, seconds=0.01))
