"""The number of boxes wanted: each term of the sum, and the largest one counts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.errors import ConfigError
from wholesale.scaler.plan import NOTICE, ScalingPlan
from wholesale.scaler.requirement import Demand, boxes_for, requirement, spread_over

PLAN = ScalingPlan(per_box=1000, headroom=0.5, boot=70.0, zones=1, least=0, most=1000)


def demand(readers: float = 0, **fields: float) -> Demand:
    return Demand(readers=readers, per_box=1000, **fields)  # type: ignore[arg-type]


def test_each_box_keeps_its_headroom_free() -> None:
    assert requirement(demand(500), PLAN).boxes == 1
    assert requirement(demand(501), PLAN).boxes == 2


def test_who_arrives_until_a_new_box_stands_is_counted() -> None:
    assert PLAN.lead == 70 + NOTICE == 100
    assert requirement(demand(500, growth=5.0), PLAN).boxes == 2
    assert requirement(demand(500, growth=5.1), PLAN).boxes == 3


def test_readers_who_leave_are_there_until_they_have_left() -> None:
    assert requirement(demand(1000, growth=-5.0), PLAN).boxes == 2


def test_readers_of_silent_boxes_are_counted() -> None:
    assert requirement(demand(500, missing=500), PLAN).boxes == 2


def test_arrivals_a_second_need_doors() -> None:
    plan = ScalingPlan(per_box=1000, connects_per_box=10.0, least=0)
    assert requirement(demand(0, connects=41.0), plan).boxes == 5


def test_one_zone_may_be_lost() -> None:
    plan = ScalingPlan(per_box=1000, headroom=0.0, zones=3, least=0)
    assert requirement(demand(7000), plan).boxes == 11


@given(st.integers(0, 500), st.integers(2, 16))
def test_no_fewer_boxes_would_survive_the_loss_of_the_fullest_zone(full: int, zones: int) -> None:
    def left(boxes: int) -> int:
        return boxes - math.ceil(boxes / zones)

    found = spread_over(full, zones)
    assert left(found) >= full
    assert full == 0 or left(found - 1) < full


def test_the_bounds_hold_and_what_would_be_needed_is_reported() -> None:
    plan = ScalingPlan(per_box=1000, headroom=0.5, zones=1, least=2, most=3)
    assert requirement(demand(0), plan).boxes == 2
    many = requirement(demand(5000), plan)
    assert (many.boxes, many.unbounded) == (3, 10)


def test_no_more_are_carried_than_there_will_ever_be() -> None:
    assert requirement(demand(500, growth=100.0, expected=1000.0), PLAN).boxes == 2
    assert requirement(demand(1500, growth=100.0, expected=1000.0), PLAN).boxes == 3


def test_every_line_of_the_sum_is_shown() -> None:
    found = requirement(demand(4000, missing=500, growth=5.0, connects=7.0), PLAN)
    lines = {line["name"]: line["value"] for line in found.lines_document()}
    assert lines == {
        "readers": 4000,
        "missing": 500,
        "growth": 5.0,
        "coming": 500.0,
        "carried": 5000.0,
        "usable": 500.0,
        "filled": 10,
        "spread": 5,
        "doors": 1,
        "wanted": 10,
    }


@given(st.floats(0, 1e9), st.floats(0, 1e9), st.floats(0, 1e6))
def test_more_demand_never_wants_fewer_boxes(readers: float, more: float, growth: float) -> None:
    few, many = (
        requirement(demand(n, growth=growth), PLAN).boxes for n in (readers, readers + more)
    )
    assert few <= many


@given(st.integers(0, 10**6), st.integers(1, 1000))
def test_so_many_boxes_carry_it_and_one_less_doesnt(amount: int, each: int) -> None:
    found = boxes_for(amount, each)
    assert (found - 1) * each < amount <= found * each or amount == found == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"per_box": 0},
        {"per_box": 10_000_000},
        {"headroom": 1.0},
        {"headroom": float("nan")},
        {"boot": 0.0},
        {"drain": float("inf")},
        {"zones": 0},
        {"least": -1},
        {"least": 5, "most": 4},
        {"most": 1001},
        {"calm": 0.0},
    ],
)
def test_a_plan_that_cant_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        ScalingPlan(**wrong)  # type: ignore[arg-type]


def test_a_box_goes_no_sooner_than_another_could_have_come_and_it_could_have_left() -> None:
    assert ScalingPlan(boot=400.0, drain=300.0, calm=60.0).patience == 700.0
    assert ScalingPlan(boot=10.0, drain=10.0, calm=60.0).patience == 60.0
