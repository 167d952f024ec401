"""The boxes that are asked for, drained, ended and replaced, and those that never are."""

from __future__ import annotations

import pytest
from fleets import PLAN, Fleet, report

from wholesale.scaler.choice import (
    DRAIN_EVERY,
    ENDED_AFTER,
    LISTEN,
    OBEY,
    OTHERS_ENDED_AFTER,
    REPEAT,
    REPLACE_EVERY,
    REPLACED,
)
from wholesale.scaler.known_boxes import DOUBT_AFTER, FORGET
from wholesale.scaler.plan import ScalingPlan


def full_fleet(boxes: int, readers: int, **fields: object) -> Fleet:
    fleet = Fleet()
    fleet.add(*(report(f"b{n}", readers, **fields) for n in range(boxes)))
    return fleet


def drained(fleet: Fleet, seconds: float) -> list[str]:
    return [box for decision in fleet.seconds(seconds) for box in decision.drain]


# --- more


def test_boxes_are_asked_for_as_soon_as_they_are_needed_in_all() -> None:
    fleet = full_fleet(2, 500)
    assert fleet.run(20).want is None
    fleet.change("b0", connections=950)
    assert fleet.run(1).want == 3


def test_the_same_number_is_asked_for_until_it_is_there() -> None:
    fleet = full_fleet(2, 900)
    assert [d.want for d in fleet.seconds(30)][-10:] == [3] * 10
    fleet.add(report("new", state="starting"), age=0.0)
    assert fleet.run(1).want is None


def test_boxes_that_leave_and_that_failed_come_on_top() -> None:
    fleet = full_fleet(3, 700)
    fleet.run(20)
    fleet.change("b0", state="draining")
    # Three exist, two serve, three are wanted.
    assert fleet.run(1).want == 4


def test_nothing_is_asked_for_before_all_boxes_can_have_reported() -> None:
    fleet = full_fleet(2, 1000)
    wants = [decision.want for decision in fleet.seconds(LISTEN + 2)]
    assert set(wants[: int(LISTEN)]) == {None}
    assert wants[-1] == 3


def test_never_more_are_asked_for_than_there_may_be_and_it_is_reported() -> None:
    fleet = Fleet(ScalingPlan(per_box=1000, zones=1, least=1, most=3, boot=60.0))
    fleet.add(report("b1", 1000), report("b2", 1000), report("b3", 1000))
    decision = fleet.run(20)
    assert (decision.want, decision.limited) == (None, True)
    fleet.add(report("b4", 1000, state="draining"))
    assert fleet.run(5).want is None


def test_one_step_asks_for_no_more_than_ten_more_or_as_many_again() -> None:
    fleet = Fleet(ScalingPlan(per_box=1000, zones=1, connects_per_box=100.0, least=1, most=500))
    fleet.add(*(report(f"b{n}", 1000, connects_per_second=1e6) for n in range(3)))
    wants = [d.want for d in fleet.seconds(25)]
    assert wants[-1] == 5
    many = Fleet(ScalingPlan(per_box=1000, zones=1, least=200, most=500))
    many.add(*(report(f"b{n}") for n in range(3)))
    assert [d.want for d in many.seconds(25)][-1] == 13


def test_a_silent_box_is_made_up_for_after_a_minute_but_never_ended() -> None:
    fleet = full_fleet(4, 650)
    fleet.run(30)
    fleet.hush("b1")
    decisions = list(fleet.seconds(FORGET + 4 * PLAN.patience))
    asked = next(n for n, d in enumerate(decisions) if d.want)
    assert DOUBT_AFTER - 1 <= asked <= DOUBT_AFTER + 1
    assert all(decision.end == () for decision in decisions)


def test_when_all_fall_silent_no_more_than_a_zone_is_made_up_for() -> None:
    fleet = Fleet(
        ScalingPlan(per_box=1000, zones=3, least=1, most=200, calm=120.0, boot=60.0, drain=60.0)
    )
    fleet.add(*(report(f"b{n}", 650) for n in range(12)))
    fleet.run(300)
    fleet.hush(*fleet.reports)
    decisions = list(fleet.seconds(3000))
    assert max(decision.want or 0 for decision in decisions) <= 16
    assert all(decision.drain == decision.end == () for decision in decisions)


# --- fewer


def test_a_box_goes_after_the_patience_and_one_at_a_time() -> None:
    fleet = full_fleet(5, 300)
    early = drained(fleet, PLAN.patience - 1)
    assert early == []
    names = drained(fleet, 5)
    assert names == ["b0"]
    fleet.change("b0", state="draining", connections=0)
    fleet.run(2)
    # While it leaves, no other is ordered to.
    assert drained(fleet, ENDED_AFTER - 3) == []


def test_it_is_drained_then_says_that_it_is_empty_then_is_ended() -> None:
    fleet = full_fleet(5, 300)
    assert drained(fleet, PLAN.patience + 2) == ["b0"]
    fleet.change("b0", state="draining", connections=120)
    assert all(d.end == () for d in fleet.seconds(200))
    fleet.change("b0", connections=0)
    ends = [d.end for d in fleet.seconds(ENDED_AFTER + 2)]
    assert ends[0] == ()
    assert ends[-1] == ("b0",)


def test_the_box_with_fewest_readers_goes_of_the_zone_with_most_boxes() -> None:
    fleet = full_fleet(5, 300)
    fleet.zones = {"b0": "a", "b1": "b", "b2": "b", "b3": "b", "b4": "a"}
    fleet.change("b0", connections=1)
    fleet.change("b2", connections=200)
    assert drained(fleet, PLAN.patience + 2) == ["b2"]


def test_a_box_that_fell_silent_in_its_drain_with_readers_is_never_ended() -> None:
    fleet = full_fleet(5, 300)
    drained(fleet, PLAN.patience + 2)
    fleet.change("b0", state="draining", connections=7)
    fleet.run(5)
    fleet.hush("b0")
    decisions = list(fleet.seconds(FORGET * 2))
    assert all(decision.end == () for decision in decisions)
    assert "b0: fell silent in its drain, with readers; not ended" in decisions[-1].notes


def test_a_gateway_that_doesnt_answer_in_a_drain_is_not_empty() -> None:
    fleet = full_fleet(5, 300)
    drained(fleet, PLAN.patience + 2)
    fleet.change("b0", state="draining", connections=0, capacity=0)
    assert all(decision.end == () for decision in fleet.seconds(FORGET))


def test_a_box_that_somebody_else_drained_is_given_time_to_come_back() -> None:
    fleet = full_fleet(2, 600)
    fleet.run(20)
    fleet.change("b0", state="draining", connections=0)
    ends = [n for n, d in enumerate(fleet.seconds(OTHERS_ENDED_AFTER + 5)) if d.end]
    assert ends[0] == OTHERS_ENDED_AFTER
    fleet.change("b0", state="starting")
    assert fleet.run(2).end == ()


def test_a_box_that_no_driver_lists_is_left_alone() -> None:
    fleet = full_fleet(5, 300)
    fleet.born = {"b4": 0.0}
    assert drained(fleet, PLAN.patience + 5) == ["b4"]


def test_with_no_list_nothing_is_drained_or_ended() -> None:
    fleet = full_fleet(5, 300)
    fleet.born = None
    decisions = list(fleet.seconds(PLAN.patience * 3))
    assert all(decision.drain == decision.end == () for decision in decisions)
    assert decisions[-1].wanted == 3


def test_while_the_driver_fails_nothing_is_drained_or_ended() -> None:
    fleet = full_fleet(5, 300)
    fleet.driver_well = False
    assert drained(fleet, PLAN.patience * 3) == []


def test_an_order_is_repeated_until_it_is_obeyed_and_then_given_up_and_reported() -> None:
    fleet = full_fleet(5, 300)
    found = drained(fleet, PLAN.patience + OBEY + 2)
    assert found[:3] == ["b0", "b0", "b0"]
    assert len(found) <= OBEY / 5 + 2
    assert "b0: was ordered to drain and doesn't" in fleet.run(1).notes
    assert set(drained(fleet, DRAIN_EVERY + 2)) == {"b1"}


def test_nothing_goes_while_a_box_boots() -> None:
    fleet = full_fleet(5, 300)
    fleet.run(PLAN.patience - 1)
    fleet.add(report("new", state="starting"), age=0.0)
    assert drained(fleet, 60) == []


def test_nothing_goes_that_leaves_the_others_too_full() -> None:
    # By their number three are enough; but two of them are small.
    fleet = full_fleet(4, 480)
    fleet.change("b2", capacity=500, connections=480)
    fleet.change("b3", capacity=500, connections=480)
    assert drained(fleet, PLAN.patience * 3) == []


def test_what_was_needed_for_a_moment_is_kept_for_the_patience() -> None:
    fleet = full_fleet(5, 300)
    fleet.run(PLAN.patience - 5)
    fleet.change("b0", connections=1900)
    fleet.run(1)
    fleet.change("b0", connections=300)
    assert drained(fleet, PLAN.patience - 5) == []
    assert drained(fleet, 20) != []


def test_missing_reports_never_scale_in() -> None:
    fleet = full_fleet(5, 650)
    fleet.run(PLAN.patience * 2)
    fleet.hush("b1", "b2")
    for decision in fleet.seconds(FORGET - 60):
        assert decision.drain == decision.end == ()
        assert decision.wanted >= 5


def test_a_scaler_that_has_just_begun_takes_nothing_away() -> None:
    fleet = full_fleet(9, 10)
    fleet.run(PLAN.patience * 4)
    fleet.scaler.disconnected()
    assert drained(fleet, PLAN.patience - 1) == []


# --- replaced


def failing_fleet(boxes: int) -> Fleet:
    fleet = full_fleet(2, 500)
    fleet.run(20)
    for n in range(boxes):
        fleet.add(report(f"bad{n}", state="starting"), age=0.0)
    return fleet


def ended(fleet: Fleet, seconds: float) -> list[str]:
    names = []
    for decision in fleet.seconds(seconds):
        for name in decision.end:
            names.append(name)
            del fleet.reports[name]
            del fleet.born[name]  # type: ignore[union-attr]
    return names


def test_a_box_that_never_becomes_ready_is_ended_and_no_longer_counted() -> None:
    fleet = failing_fleet(1)
    assert ended(fleet, PLAN.overdue - 1) == []
    fleet.change("b0", connections=1000)
    fleet.change("b1", connections=900)
    assert fleet.run(1).want is None
    decision = fleet.run(1)
    # Two that serve, one that failed, one in its place.
    assert (decision.want, decision.end) == (4, ("bad0",))


def test_only_so_many_are_replaced_in_an_hour() -> None:
    fleet = failing_fleet(6)
    names = ended(fleet, PLAN.overdue + 20 * REPLACE_EVERY)
    assert names == ["bad0", "bad1", "bad2"]
    assert len(names) == REPLACED
    assert any("too many boxes" in note for note in fleet.run(1).notes)
    assert len(ended(fleet, 3600)) == REPLACED


def test_a_silent_box_that_had_readers_isnt_taken_for_one_that_never_came_up() -> None:
    fleet = failing_fleet(1)
    fleet.change("bad0", state="ready", connections=1)
    fleet.run(2)
    fleet.hush("bad0")
    assert ended(fleet, PLAN.overdue * 3) == []


def mute_box(fleet: Fleet) -> None:
    fleet.add(report("mute"), age=0.0)
    fleet.hush("mute")


def test_a_box_that_was_never_heard_is_ordered_to_drain_and_ended_when_it_has_had_the_time() -> (
    None
):
    fleet = full_fleet(2, 500)
    fleet.run(20)
    mute_box(fleet)
    assert drained(fleet, PLAN.overdue) == []
    decisions = list(fleet.seconds(OBEY + PLAN.drain + 10))
    found = [n for n, d in enumerate(decisions) if d.drain == ("mute",)]
    gone = [n for n, d in enumerate(decisions) if d.end == ("mute",)]
    assert len(found) == OBEY / REPEAT + 1
    assert gone[0] - found[0] == OBEY + PLAN.drain


def test_a_scaler_that_misses_others_doesnt_take_a_box_that_it_never_heard_for_dead() -> None:
    fleet = full_fleet(5, 700)
    fleet.run(20)
    mute_box(fleet)
    fleet.hush("b1")
    assert ended(fleet, PLAN.overdue * 4) == []


def test_a_scaler_that_was_deaf_replaces_nothing_that_it_didnt_hear() -> None:
    fleet = failing_fleet(1)
    fleet.hush("bad0")
    fleet.run(30)
    fleet.scaler.disconnected()
    assert ended(fleet, PLAN.overdue * 3) == []
    assert fleet.kinds()["bad0"] in ("silent", "unknown", "unready")


@pytest.mark.parametrize("connections", [0, 500])
def test_a_box_that_lost_its_readiness_is_ended_only_when_it_says_that_nobody_is_there(
    connections: int,
) -> None:
    fleet = full_fleet(3, 500)
    fleet.run(20)
    fleet.change("b0", state="starting", connections=connections)
    found = ended(fleet, PLAN.overdue + 10)
    assert found == (["b0"] if connections == 0 else [])
