"""The guards of a scaler one by one: each test here fails if one of them is taken away.

They were found by mutations of the rules that no other test noticed (docs/design/0026).
"""

from __future__ import annotations

import dataclasses

from fleets import PLAN, Fleet, report

from wholesale.scaler.choice import DRAIN_EVERY, LEAVING_AT_ONCE, REPLACE_EVERY, STEP_EVERY
from wholesale.scaler.known_boxes import FORGET, LASTING, REFUGE, SILENT_AFTER, SLOPE, KnownBoxes
from wholesale.scaler.plan import ScalingPlan

ZONED = dataclasses.replace(PLAN, zones=3, least=6)


def uneven(emptiest: int) -> Fleet:
    """Return three large boxes and two small ones; by their number the emptiest could go."""
    fleet = Fleet()
    fleet.add(report("b0", emptiest), report("b1", 800), report("b2", 800))
    fleet.add(report("b3", 150, capacity=400), report("b4", 150, capacity=400))
    return fleet


def drained(fleet: Fleet, seconds: float) -> set[str]:
    return {box for decision in fleet.seconds(seconds) for box in decision.drain}


# --- fewer


def test_a_box_stays_if_the_others_had_less_room_than_there_are_readers() -> None:
    # Without b0 there is room for 1,960.
    assert drained(uneven(100), PLAN.patience * 3) == set()
    assert drained(uneven(59), PLAN.patience + 5) == {"b0"}


def test_what_would_be_just_enough_isnt_enough_to_take_a_box_away() -> None:
    # Three boxes carry 2,100; 2,050 is too near to that.
    fleet = Fleet()
    fleet.add(report("b0", 510), *(report(f"b{n}", 510) for n in (1, 2, 3)), report("b4", 10))
    assert fleet.run(PLAN.patience * 4).wanted == 4


def test_what_is_kept_for_safety_is_never_asked_for() -> None:
    fleet = Fleet()
    fleet.add(report("b0", 683), report("b1", 683), report("b2", 684))
    decisions = list(fleet.seconds(PLAN.patience * 4))
    assert {decision.wanted for decision in decisions} == {3}
    assert {decision.want for decision in decisions} == {None}


def test_of_many_boxes_a_tenth_goes_at_once_evenly_from_all_zones_and_then_there_is_a_pause() -> (
    None
):
    fleet = Fleet()
    # The boxes of zone a are the emptiest.
    fleet.add(*(report(f"b{n}", 5 + n % 2) for n in range(40)))
    fleet.zones = {f"b{n}": "ab"[n % 2] for n in range(40)}
    gone: list[float] = []
    for decision in fleet.seconds(PLAN.patience + DRAIN_EVERY + 20):
        new = [name for name in decision.drain if name in fleet.reports]
        if new:
            gone.append(fleet.now)
            assert len(new) <= 40 * LEAVING_AT_ONCE
            assert sorted(fleet.zones[name] for name in new) == ["a", "a", "b", "b"][: len(new)]
        for name in new:
            # Gone as soon as it is ordered to drain.
            del fleet.reports[name], fleet.born[name]  # type: ignore[union-attr]
            fleet.scaler._boxes._reported.pop(name)
    assert len(gone) == 2
    assert gone[1] - gone[0] >= DRAIN_EVERY


# --- more


def test_a_minute_of_silence_counts_as_there_and_then_a_zone_of_it_as_lost() -> None:
    fleet = Fleet(ZONED)
    fleet.add(*(report(f"b{n}", 10) for n in range(6)))
    fleet.run(30)
    fleet.hush("b0", "b1", "b2")
    assert fleet.run(SILENT_AFTER + 5).supply == 6
    # Of six boxes two are a zone's worth.
    assert fleet.run(90).supply == 4


def test_the_next_step_waits_however_fast_boxes_come() -> None:
    fleet = Fleet(ScalingPlan(per_box=1000, zones=1, least=200, most=500))
    fleet.add(*(report(f"b{n}") for n in range(3)))
    fleet.run(12)
    wants = []
    for n in range(int(STEP_EVERY) - 5):
        fleet.add(report(f"new{n}", state="starting"), age=0.0)
        wants.append(fleet.run(1).want)
    assert {want for want in wants if want is not None} == {13}


def test_who_has_no_list_learns_how_many_more_than_those_that_report() -> None:
    fleet = Fleet()
    fleet.born = None
    fleet.add(report("b0", 900), report("b1", 900))
    assert fleet.run(20).want == 3
    fleet.change("b0", connections=100)
    assert fleet.run(PLAN.patience * 2).want is None


def test_how_many_are_refused_is_how_many_are_missing() -> None:
    fleet = Fleet(dataclasses.replace(PLAN, most=4))
    fleet.add(*(report(f"b{n}", 900) for n in range(3)))
    fleet.add(report("b3", 900, state="draining"))
    # Six are needed, two above the limit; and the place of a leaving one isn't free yet.
    decision = fleet.run(20)
    assert (decision.requirement.unbounded, decision.wanted, decision.want) == (6, 4, None)
    assert decision.refused == 2


def test_arrivals_count_once_they_have_lasted() -> None:
    fleet = Fleet(dataclasses.replace(PLAN, connects_per_box=10.0))
    fleet.add(report("b0", 100, connects_per_second=1e6))
    doors = [decision.requirement.lines[8].value for decision in fleet.seconds(SLOPE + 5)]
    assert set(doors[: int(SLOPE)]) == {0}
    assert doors[-1] == 1


# --- not dead


def test_a_box_that_has_just_lost_its_readiness_isnt_replaced() -> None:
    fleet = Fleet()
    fleet.add(*(report(f"b{n}", 500) for n in range(3)))
    fleet.run(20)
    fleet.change("b0", state="starting", connections=0)
    assert all(decision.end == () for decision in fleet.seconds(PLAN.overdue - 2))


def test_a_box_that_was_never_ready_and_has_readers_is_never_ended() -> None:
    fleet = Fleet()
    fleet.add(*(report(f"b{n}", 500) for n in range(12)))
    fleet.run(20)
    fleet.add(report("odd", 5, state="starting"), age=0.0)
    assert all(decision.end == () for decision in fleet.seconds(PLAN.overdue * 2))
    assert fleet.kinds()["odd"] == "unready"
    fleet.hush("odd")
    assert all(decision.end == () for decision in fleet.seconds(FORGET))


def test_a_quarter_of_a_large_fleet_is_replaced_in_an_hour() -> None:
    fleet = Fleet()
    fleet.add(*(report(f"b{n}", 500) for n in range(20)))
    fleet.run(20)
    fleet.add(*(report(f"bad{n}", state="starting") for n in range(12)), age=0.0)
    ends = [name for d in fleet.seconds(PLAN.overdue + 20 * REPLACE_EVERY) for name in d.end]
    # They stay on the list and are ordered again: eight different ones, of 32.
    assert len(ends) == 8


def test_one_reader_who_comes_back_makes_a_drained_box_one_that_isnt_empty() -> None:
    fleet = Fleet()
    fleet.add(*(report(f"b{n}", 500) for n in range(3)))
    fleet.run(20)
    fleet.change("b0", state="draining", connections=0)
    fleet.run(200)
    fleet.change("b0", connections=1)
    fleet.run(2)
    fleet.hush("b0")
    assert all(decision.end == () for decision in fleet.seconds(FORGET))


def test_a_box_that_never_was_ready_ages_without_a_list_too() -> None:
    fleet = Fleet()
    fleet.born = None
    fleet.add(report("b0", 100), report("new", state="starting"))
    fleet.run(20)
    assert fleet.kinds()["new"] == "booting"
    fleet.run(PLAN.overdue)
    assert fleet.kinds()["new"] == "failed"


# --- memory


def test_a_silent_box_is_not_forgotten_because_the_driver_has_lost_its_list() -> None:
    fleet = Fleet()
    fleet.add(report("b0", 500), report("b1", 500))
    fleet.run(20)
    fleet.hush("b0")
    fleet.born = None
    fleet.run(REFUGE * 2)
    assert fleet.kinds() == {"b0": "silent", "b1": "ready"}
    assert fleet.scaler.view is not None
    assert fleet.scaler.view.kept_for.missing == 500


def test_an_older_report_doesnt_count_however_long_the_scaler_runs() -> None:
    memory = KnownBoxes("oregon", PLAN)
    assert memory.note_report(report(sent_ms=1000), now=5000.0)
    assert not memory.note_report(report(sent_ms=999), now=5001.0)


def test_of_those_that_are_silent_without_readers_the_longest_silent_makes_room() -> None:
    memory = KnownBoxes("oregon", PLAN)
    for n in range(1000):
        memory.note_report(report(f"b{n}", 0), now=float(n) / 100)
    assert memory.note_report(report("new"), now=100.0)
    assert "b0" not in memory._reported
    assert "b999" in memory._reported


def test_the_memory_of_arrivals_is_bounded() -> None:
    fleet = Fleet()
    fleet.add(report("b0", 100))
    fleet.run(LASTING * 3)
    assert len(fleet.scaler._boxes._history) <= LASTING + 2


def test_readers_who_come_back_slowly_are_no_growth() -> None:
    fleet = Fleet()
    fleet.add(report("b1", 400), report("b2", 300))
    fleet.run(60)
    fleet.hush("b2")
    fleet.run(40)
    for second in range(30):
        fleet.change("b1", connections=400 + 10 * second, connects_per_second=10.0)
        fleet.run(1)
        assert fleet.scaler.view is not None
        assert fleet.scaler.view.now_needed.growth == 0.0
