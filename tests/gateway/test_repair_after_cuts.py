"""What is swept when a region is heard again that was silent for minutes, hours or days."""

from __future__ import annotations

import dataclasses

import pytest
from repaired import (
    EPOCH,
    FAR,
    FAR_TWIN,
    Box,
    stored,
    well_box,
)

from gateway.gaps import Ending
from newsfabric.envelope import Envelope


@pytest.fixture
def box() -> Box:
    return well_box()


def cut_off(box: Box, seconds: int) -> None:
    """Nothing comes from FAR for so long, and its rows are in our store afterwards."""
    box.tick(60, router=FAR)
    box.streams.skip((FAR, EPOCH), 1, 60)
    for _ in range(seconds):
        box.go(1)
        box.tick(2)
        box.settled()


def swept(box: Box, seconds: int, *found: Envelope, router: str = FAR, last: int = 1260) -> None:
    for _ in range(seconds):
        box.go(1)
        box.tick(2)
        box.tick(last, router=router)
        if box.plan() is not None:
            box.read(*found)


@pytest.mark.parametrize("seconds", [120, 1_200, 7_200])
def test_after_a_cut_all_that_the_region_routed_meanwhile_is_published(
    box: Box, seconds: int
) -> None:
    cut_at = box.now
    cut_off(box, seconds)
    every = [stored(60 + n, FAR, at=cut_at + n * seconds / 100) for n in range(1, 101)]
    swept(box, 30, *every, last=160)
    assert sorted(box.published) == [one.seq for one in every]
    swept(box, seconds, last=160)
    assert (box.missing, [one for one in box.closed if one.numbers]) == ([], [])


def test_after_a_cut_nothing_is_given_up_or_void_before_its_rows_can_have_come(box: Box) -> None:
    cut_at = box.now
    cut_off(box, 1_200)
    swept(box, 900)
    assert (box.published, box.closed) == ([], [])
    every = [stored(60 + n, FAR, at=cut_at + n) for n in range(1, 1_201)]
    swept(box, 500, *every)
    assert sorted(box.published) == list(range(61, 1_261))
    assert [one.ending for one in box.closed if one.stream == (FAR, EPOCH)] == [Ending.FILLED]


def test_a_copy_of_what_has_come_another_way_long_ago_is_not_published(box: Box) -> None:
    cut_at = box.now
    box.hear(3)
    copies = [stored(3, at=cut_at), dataclasses.replace(stored(3, FAR, at=cut_at + 500), seq=61)]
    cut_off(box, 1_200)
    swept(box, 30, *copies, last=61)
    assert box.published == []
    assert (FAR, EPOCH) not in box.streams.missing()


def test_routers_that_lived_and_died_while_their_region_was_cut_off_are_heard_of(box: Box) -> None:
    cut_at = box.now
    cut_off(box, 1_200)
    unheard = [stored(n, FAR, epoch=box.ms(600), at=cut_at + 600 + n) for n in (1, 2, 3)]
    tail = [stored(60 + n, FAR, at=cut_at + n) for n in (1, 2)]
    swept(box, 30, *tail, *unheard, router=FAR_TWIN, last=0)
    assert sorted(box.published) == [1, 2, 3, 61, 62]


def test_of_a_cut_of_days_six_hours_are_swept(box: Box) -> None:
    box.tick(60, router=FAR)
    box.now += 86_400
    box.tick(70, router=FAR)
    box.go(2)
    plan = box.plan()
    assert plan is not None
    assert plan.sweep is not None
    assert plan.sweep.span.to_ms - plan.sweep.span.from_ms == 6 * 3_600_000


def test_a_sweep_doesnt_hold_up_what_else_is_missing(box: Box) -> None:
    cut_off(box, 1_200)
    box.tick(60, router=FAR)
    box.hear(5)
    box.go(1.1)
    plan = box.plan()
    assert plan is not None
    assert plan.sweep is not None
    assert [(gap.first, gap.last) for gap in plan.gaps] == [(3, 5)]
    assert all(span.to_ms - span.from_ms < 60_000 for span in plan.spans)
