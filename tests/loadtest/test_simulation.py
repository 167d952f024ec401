"""The scaler in simulated time: properties that hold for any crowd."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from unit_share import examples

from loadtest.scenarios import through, turns
from loadtest.simulation import Region, SimBox, reported
from wholesale.scaler.plan import ScalingPlan

PLAN = ScalingPlan(
    per_box=1000, boot=60.0, drain=60.0, zones=3, least=3, most=60, calm=200.0, connects_per_box=100
)
# Seconds per step.
STEP = 4
few = settings(
    max_examples=examples(4),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def played(region: Region, seconds: int, each: Callable[[float], None] = lambda _now: None) -> None:
    for now in range(STEP, seconds + 1, STEP):
        each(float(now))
        region.step(float(now), float(STEP))


def wanted(region: Region, since: float = 0.0) -> list[int]:
    return [moment.wanted for moment in region.moments if moment.at >= since]


# Readers of one lead time must find room in the boxes that stand: no scaler can change that.
@st.composite
def surges(draw: st.DrawFn) -> tuple[list[tuple[float, float]], float]:
    """Draw a crowd that grows in pieces, each at its own pace, and the time when all are there."""
    at, readers = 30.0, float(draw(st.integers(0, 1000)))
    points = [(at, readers)]
    for _ in range(draw(st.integers(1, 5))):
        lasts = draw(st.integers(60, 400))
        # A third of the standing boxes' room, which headroom keeps free, in one lead time.
        stands = max(3.0 * 700, readers)
        pace = draw(st.floats(0.0, 0.3)) * stands / PLAN.lead
        at, readers = at + lasts, readers + pace * lasts
        points.append((at, readers))
    return points, at


@few
@given(surges(), st.integers(1, 10_000))
def test_whoever_comes_finds_a_place_and_nobody_is_lost(
    surge: tuple[list[tuple[float, float]], float], seed: int
) -> None:
    points, end = surge
    region = Region(PLAN, through(*points), boxes=3, seed=seed)
    played(region, int(end) + 300)
    assert region.machines.lost == 0
    assert region.refused == 0


@few
@given(surges(), st.integers(2, 30))
def test_at_the_drivers_limit_readers_are_refused_and_nothing_else_happens(
    surge: tuple[list[tuple[float, float]], float], limit: int
) -> None:
    points, end = surge
    region = Region(PLAN, through(*points), boxes=3)
    region.machines.limit = max(3, limit)
    played(region, int(end) + 300)
    assert region.machines.lost == 0
    assert len(region.boxes) <= max(3, limit)
    room = max(3, limit) * 1000
    assert region.refused == 0 or points[-1][1] > 0.7 * room
    if region.refused:
        assert region.machines.at_limit


@few
@given(surges())
def test_once_the_crowd_is_steady_the_number_changes_at_most_once(
    surge: tuple[list[tuple[float, float]], float],
) -> None:
    points, end = surge
    region = Region(PLAN, through(*points), boxes=3)
    region.churn = 0.002
    # All boxes that were ordered before the crowd became steady stand by now.
    settled = int(end + PLAN.lead + 5)
    played(region, settled + int(4 * PLAN.patience))
    changes = [1 for a, b in itertools.pairwise(wanted(region, settled)) if a != b]
    assert len(changes) <= 1


@few
@given(st.floats(0.0, 0.009), st.integers(300, 1000), st.integers(3000, 8000))
def test_a_crowd_that_breathes_a_little_moves_nothing(
    breath: float, period: int, readers: int
) -> None:
    def curve(now: float) -> float:
        up = (now % period) / period < 0.5
        return readers * (1 + (breath if up else -breath))

    region = Region(PLAN, curve, boxes=readers // 600 + 3)
    played(region, 4 * period + 1200)
    assert len(turns(wanted(region, 1000.0))) <= 1


def test_a_wave_is_one_turn_up_and_one_down() -> None:
    curve = through((100, 2000), (700, 9000), (1000, 9000), (1500, 1500))
    region = Region(PLAN, curve, boxes=4)
    played(region, 4000)
    assert len(turns(wanted(region))) == 1
    assert (region.refused, region.machines.lost) == (0, 0)
    assert len(region.boxes) == 3


def _half_deaf(since: float, until: float) -> Callable[[int, SimBox, float], bool]:
    """Let one of two scalers hear only every other box, for a while."""
    return lambda n, box, now: (
        n == 1 and since <= now < until and int(box.name.rpartition("-")[2]) % 2 == 0
    )


@pytest.mark.parametrize("lasts", [60.0, 900.0])
def test_two_scalers_that_disagree_do_no_harm(lasts: float) -> None:
    curve = through((100, 6000), (1000, 6000), (1600, 9000), (3000, 4000))
    alone = Region(PLAN, curve, boxes=10)
    played(alone, 5000)
    region = Region(PLAN, curve, boxes=10)
    region.unheard = _half_deaf(700.0, 700.0 + lasts)
    played(region, 5000)
    assert (region.refused, region.machines.lost) == (0, 0)
    assert len(region.boxes) == len(alone.boxes)
    # The half-deaf scaler replaces boxes that it doesn't hear: old ones of a zone, and some new.
    more = max(m.ready for m in region.moments) - max(m.ready for m in alone.moments)
    assert 0 <= more <= 8


def test_a_scaler_that_hears_nothing_at_all_takes_nothing_away() -> None:
    region = Region(PLAN, through((0, 6000)), boxes=12, scalers=1)
    region.unheard = lambda _n, _box, now: now > 150.0
    played(region, 4000)
    assert len(region.boxes) >= 12
    assert not any(box.draining for box in region.boxes)


def test_a_lost_zone_is_made_up_for_and_everybody_finds_a_place() -> None:
    region = Region(PLAN, through((0, 6000)), boxes=11)

    def lose(now: float) -> None:
        if now == 400.0:
            region.lose_zone("z0", now)

    played(region, 900, lose)
    assert region.refused == 0
    assert len([box for box in region.boxes if box.state(900.0) == "ready"]) >= 9


def test_boxes_that_never_come_up_are_replaced() -> None:
    region = Region(PLAN, through((0, 1500), (1200, 6000)), boxes=4, seed=3)
    region.machines.fail = 0.3
    played(region, 3000)
    assert region.refused == 0
    dead = [box for box in region.boxes if box.ready_at == float("inf")]
    assert region.machines.made > len(region.boxes)
    assert len(dead) <= 2


def test_boxes_none_of_which_comes_up_are_no_endless_bill() -> None:
    region = Region(PLAN, through((0, 1500), (600, 20_000)), boxes=4)
    region.machines.fail = 1.0
    played(region, 2 * 3600)
    assert len(region.boxes) <= PLAN.most
    # In each of two hours at most three boxes are given up, or a quarter of all.
    assert region.machines.made - len(region.boxes) <= 2 * PLAN.most // 4


@few
@given(st.integers(0, 10**18), st.integers(1, 10**18), st.floats(0, 1e18))
def test_a_box_that_lies_about_itself_ends_no_other_and_costs_a_few(
    connections: int, capacity: int, connects: float
) -> None:
    region = Region(PLAN, through((0, 5000)), boxes=8, scalers=1)
    honest = Region(PLAN, through((0, 5000)), boxes=8, scalers=1)
    played(honest, 600)
    scaler = region.scalers[0]

    def lie(now: float) -> None:
        region.unheard = lambda _n, box, _now: box.name == "box-1"
        view = scaler.view
        if view is not None and now > 60:
            report = dataclasses.replace(
                reported(region.boxes[0], now),
                box="box-1",
                connections=connections,
                capacity=capacity,
                connects_per_second=connects,
            )
            scaler.note_report(report, now=now)

    played(region, 600, lie)
    assert region.machines.lost == 0
    most = max(wanted(region))
    assert most <= max(wanted(honest)) + 9


def test_the_curve_goes_through_its_points() -> None:
    curve = through((10, 0), (20, 100), (30, 50))
    assert [curve(at) for at in (0, 10, 15, 20, 25, 30, 99)] == [0, 0, 50, 100, 75, 50, 50]


def test_turns_are_changes_of_direction() -> None:
    assert turns([1, 2, 2, 3, 3, 2, 1, 1, 2]) == [4, 7]
    assert turns([5, 5, 5]) == []
