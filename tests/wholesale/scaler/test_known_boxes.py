"""A scaler's knowledge from reports, silence, and lies."""

from __future__ import annotations

import pytest
from fleets import PLAN, Fleet, report

from newsfabric.amqp.message import Message, Properties
from newsfabric.messages import control
from wholesale.scaler.drivers import MOST_BOXES
from wholesale.scaler.known_boxes import (
    DOUBT_AFTER,
    FORGET,
    PEAK,
    REFUGE,
    SILENT_AFTER,
    Highest,
    KnownBoxes,
)


def test_readers_are_those_of_boxes_that_report() -> None:
    fleet = Fleet()
    fleet.add(report("b1", 300), report("b2", 200, state="draining"), report("b3", 5))
    fleet.run(15)
    assert fleet.scaler.view is not None
    assert fleet.scaler.view.now_needed.readers == 505


def test_another_regions_report_and_an_older_one_dont_count() -> None:
    memory = KnownBoxes("oregon", PLAN)
    assert not memory.note_report(report(region="dublin"), now=1.0)
    assert memory.note_report(report(sent_ms=1000), now=1.0)
    assert not memory.note_report(report(sent_ms=999), now=2.0)


@pytest.mark.parametrize("jump", [-(10**9), 10**15])
def test_a_box_whose_clock_jumps_is_heard_again_within_seconds(jump: int) -> None:
    memory = KnownBoxes("oregon", PLAN)
    middle = 10**12
    memory.note_report(report(sent_ms=middle), now=0.0)
    memory.note_report(report(sent_ms=middle + jump), now=1.0)
    # Back to the earlier time.
    taken = [memory.note_report(report(sent_ms=middle + n), now=2.0 + n) for n in range(12)]
    assert taken[-1]


def test_a_box_is_silent_after_ten_seconds() -> None:
    fleet = Fleet()
    fleet.add(report("b1"), report("b2"))
    fleet.run(20)
    fleet.hush("b2")
    fleet.run(SILENT_AFTER)
    assert fleet.kinds() == {"b1": "ready", "b2": "ready"}
    fleet.run(1)
    assert fleet.kinds() == {"b1": "ready", "b2": "silent"}


def test_readers_of_a_silent_box_are_missing_until_they_come_back_elsewhere() -> None:
    fleet = Fleet()
    fleet.add(report("b1", 400), report("b2", 300))
    fleet.run(30)
    fleet.hush("b2")
    fleet.run(20)
    assert fleet.scaler.view is not None
    assert fleet.scaler.view.now_needed.missing == 300
    fleet.change("b1", connections=600, connects_per_second=200.0)
    fleet.run(2)
    assert fleet.scaler.view.now_needed.missing == 100
    # The rest must be enough even if they were all still there.
    assert fleet.scaler.view.kept_for.missing == 300


def test_readers_who_come_back_are_no_growth() -> None:
    fleet = Fleet()
    fleet.add(report("b1", 400), report("b2", 300))
    fleet.run(60)
    fleet.hush("b2")
    fleet.run(20)
    for second in range(10):
        fleet.change("b1", connections=400 + 30 * second, connects_per_second=30.0)
        fleet.run(1)
        assert fleet.scaler.view is not None
        assert fleet.scaler.view.now_needed.growth == 0.0


def test_growth_is_what_arrived_and_stayed() -> None:
    fleet = Fleet()
    fleet.add(report("b1", 100))
    fleet.run(60)
    for second in range(1, 41):
        fleet.change("b1", connections=100 + 10 * second, connects_per_second=12.0)
        fleet.run(1)
    assert fleet.scaler.view is not None
    assert fleet.scaler.view.now_needed.growth == pytest.approx(10.0)


def test_boxes_that_are_heard_for_the_first_time_are_no_growth() -> None:
    fleet = Fleet()
    fleet.add(report("b1", 100))
    fleet.run(60)
    fleet.add(report("b2", 900))
    for decision in fleet.seconds(30):
        assert decision.requirement.lines[2].value == 0.0


def test_a_storm_of_arrivals_in_which_as_many_leave_is_no_growth() -> None:
    fleet = Fleet()
    fleet.add(report("b1", 500, connects_per_second=400.0))
    fleet.run(60)
    assert fleet.scaler.view is not None
    assert fleet.scaler.view.now_needed.growth == 0.0


def test_a_gateway_that_doesnt_answer_still_has_its_readers() -> None:
    fleet = Fleet()
    fleet.add(report("b1", 500))
    fleet.run(20)
    fleet.change("b1", connections=0, capacity=0, state="starting")
    fleet.run(20)
    assert fleet.kinds() == {"b1": "unready"}
    assert fleet.scaler.view is not None
    assert fleet.scaler.view.now_needed.readers == 500


def test_a_young_box_boots_and_an_old_one_that_was_never_ready_has_failed() -> None:
    fleet = Fleet()
    fleet.run(20)
    fleet.add(report("b1", state="starting"), age=0.0)
    fleet.add(report("b2"), age=0.0)
    fleet.hush("b2")
    fleet.run(PLAN.overdue)
    assert fleet.kinds() == {"b1": "booting", "b2": "booting"}
    fleet.run(2)
    assert fleet.kinds() == {"b1": "failed", "b2": "failed"}


def test_of_a_silent_box_that_is_older_than_our_listening_nobody_knows() -> None:
    fleet = Fleet()
    fleet.add(report("b1"), report("b2"))
    fleet.hush("b2")
    fleet.run(PLAN.overdue * 3)
    assert fleet.kinds() == {"b1": "ready", "b2": "unknown"}
    assert fleet.scaler.view is not None
    # It may be full.
    assert fleet.scaler.view.kept_for.missing == 1000


def test_a_pause_or_a_lost_link_is_not_the_boxes_silence() -> None:
    fleet = Fleet()
    fleet.add(report("b1", 100))
    fleet.run(60)
    fleet.now += 3600.0
    fleet.hush("b1")
    decision = fleet.second()
    assert fleet.kinds() == {"b1": "ready"}
    assert decision.notes == ("it has just begun to listen",)
    fleet.scaler.disconnected()
    assert fleet.second().notes == ("it has just begun to listen",)


def test_a_box_that_its_driver_ended_is_forgotten_soon_and_another_late() -> None:
    fleet = Fleet()
    fleet.add(report("b1"), report("b2", 10), report("b3", 20))
    del fleet.born["b3"]  # type: ignore[union-attr]
    fleet.run(20)
    fleet.hush("b2", "b3")
    del fleet.born["b2"]  # type: ignore[union-attr]
    fleet.run(REFUGE + 1)
    assert set(fleet.kinds()) == {"b1", "b3"}
    fleet.run(FORGET - REFUGE + 1)
    assert set(fleet.kinds()) == {"b1"}


def test_no_more_boxes_are_remembered_than_there_can_be() -> None:
    memory = KnownBoxes("oregon", PLAN)
    for n in range(MOST_BOXES):
        assert memory.note_report(report(f"b{n}", 1), now=0.0)
    assert not memory.note_report(report("one-more"), now=1.0)
    # A silent box without readers gives up its place.
    memory.note_report(report("b7", 0, sent_ms=2), now=1.0)
    assert memory.note_report(report("one-more"), now=100.0)
    assert not memory.note_report(report("two-more"), now=100.0)


@pytest.mark.parametrize(
    "lie",
    [
        {"connections": 10_000_000, "capacity": 10_000_000},
        {"connections": 10_000_000, "capacity": 1000},
        {"capacity": 1},
        {"connections": 10_000_000, "capacity": 10_000_000, "connects_per_second": 1e18},
    ],
)
def test_a_box_that_lies_costs_a_few_boxes(lie: dict[str, float]) -> None:
    honest, lied = Fleet(), Fleet()
    for fleet in (honest, lied):
        fleet.add(*(report(f"b{n}", 500) for n in range(10)))
        fleet.run(60)
    lied.change("b3", **lie)
    most = max(decision.wanted for decision in lied.seconds(60))
    assert honest.run(60).wanted <= most <= honest.run(60).wanted + 8


@pytest.mark.parametrize("capacity", [1, 10**18])
def test_a_single_box_that_lies_of_its_capacity_is_believed_within_a_factor_of_two(
    capacity: int,
) -> None:
    fleet = Fleet()
    fleet.add(report("b1", 700, capacity=capacity))
    fleet.run(30)
    assert fleet.scaler.view is not None
    assert fleet.scaler.view.now_needed.per_box == (500 if capacity == 1 else 2000)


@pytest.mark.parametrize(
    "body",
    [
        b'{"connections": -1}',
        b'{"connections": NaN}',
        b'{"connections": 1e999}',
        b'{"connections": true}',
        b"[]",
    ],
)
def test_what_is_no_report_isnt_one(body: bytes) -> None:
    properties = Properties(content_type="application/json", type="load")
    with pytest.raises(ValueError):  # noqa: PT011 - any of its texts
        control.decode_load(Message("_fabric.load.oregon.b1", body, properties))


def test_an_agent_that_starts_again_costs_no_box() -> None:
    fleet = Fleet()
    fleet.add(*(report(f"b{n}", 600) for n in range(4)))
    fleet.run(30)
    fleet.hush("b1")
    for decision in fleet.seconds(DOUBT_AFTER - 1):
        assert decision.want is None


def test_the_highest_of_a_while_is_kept_in_bounded_room() -> None:
    highest = Highest(PEAK)
    for second in range(10_000):
        highest.add(10_000 - second, now=float(second))
    assert 601 <= highest.highest(now=10_000.0) <= 621
    assert len(highest._steps) <= 63
