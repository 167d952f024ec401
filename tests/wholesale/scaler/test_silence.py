"""Silence proves nothing: no box that may have readers is ended because of it."""

from __future__ import annotations

import dataclasses
import random

import pytest
from fleets import PLAN, Fleet, report
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit_share import examples

from wholesale.scaler.choice import ENDED_AFTER, LISTEN, OBEY, OTHERS_ENDED_AFTER, Decision
from wholesale.scaler.deciding import Scaler
from wholesale.scaler.drivers import Instance
from wholesale.scaler.known_boxes import FORGET
from wholesale.scaler.plan import ScalingPlan


def fleet_of(boxes: int, readers: int = 500) -> Fleet:
    fleet = Fleet()
    fleet.add(*(report(f"b{n}", readers) for n in range(boxes)))
    fleet.run(30)
    return fleet


def drained_at(decisions: list[Decision], box: str) -> list[int]:
    return [n for n, decision in enumerate(decisions) if box in decision.drain]


def ended(decisions: list[Decision], box: str) -> list[int]:
    return [n for n, decision in enumerate(decisions) if box in decision.end]


def empty_then_deaf(fleet: Fleet, seconds: float) -> None:
    """Let ``b0`` report that it is drained and empty, and then hear nothing for a while."""
    fleet.change("b0", state="draining", connections=0)
    fleet.run(3)
    fleet.scaler.disconnected()
    fleet.now += seconds


@pytest.mark.parametrize("seconds", [2.0, 3600.0])
def test_a_box_that_was_empty_before_a_deafness_may_have_come_back(seconds: float) -> None:
    fleet = fleet_of(3)
    empty_then_deaf(fleet, seconds)
    # It has readers again, but its reports don't arrive yet.
    fleet.hush("b0")
    decisions = list(fleet.seconds(OTHERS_ENDED_AFTER - 1))
    assert ended(decisions, "b0") == drained_at(decisions, "b0") == []
    fleet.reports["b0"] = report("b0", 500)
    assert ended(list(fleet.seconds(FORGET)), "b0") == []


def test_a_box_that_is_still_silent_then_is_ordered_to_drain_and_given_the_time() -> None:
    fleet = fleet_of(12)
    empty_then_deaf(fleet, 60.0)
    fleet.hush("b0")
    decisions = list(fleet.seconds(OTHERS_ENDED_AFTER + OBEY + PLAN.drain + 10))
    orders, ends = drained_at(decisions, "b0"), ended(decisions, "b0")
    assert orders[0] >= OTHERS_ENDED_AFTER
    assert ends[0] - orders[0] == OBEY + PLAN.drain


def test_a_box_that_somebody_else_drained_and_that_is_silent_is_ordered_to_drain_first() -> None:
    fleet = fleet_of(12)
    fleet.change("b0", state="draining", connections=0)
    fleet.run(3)
    fleet.hush("b0")
    decisions = list(fleet.seconds(OTHERS_ENDED_AFTER + OBEY + PLAN.drain + 10))
    orders, ends = drained_at(decisions, "b0"), ended(decisions, "b0")
    assert ends[0] - orders[0] == OBEY + PLAN.drain


def test_it_stays_while_the_scaler_misses_others_too() -> None:
    fleet = fleet_of(5)
    fleet.change("b0", state="draining", connections=0)
    fleet.run(3)
    fleet.hush("b0", "b1")
    assert ended(list(fleet.seconds(FORGET)), "b0") == []


def test_a_box_that_obeyed_us_once_and_came_back_is_anybodys_when_it_drains_again() -> None:
    fleet = fleet_of(5, 300)
    names = {name for decision in fleet.seconds(PLAN.patience + 2) for name in decision.drain}
    assert names == {"b0"}
    fleet.change("b0", state="draining", connections=0)
    fleet.run(2)
    # An operator starts it again, and upgrades it later.
    fleet.change("b0", state="ready", connections=300)
    for name in ("b1", "b2", "b3", "b4"):
        fleet.change(name, connections=700)
    fleet.run(60)
    fleet.change("b0", state="draining", connections=0)
    assert ended(list(fleet.seconds(ENDED_AFTER + 30)), "b0") == []


def test_a_box_that_fell_silent_at_its_drain_order_didnt_obey_by_that() -> None:
    fleet = fleet_of(5, 300)
    names = {name for decision in fleet.seconds(PLAN.patience + 2) for name in decision.drain}
    assert names == {"b0"}
    fleet.hush("b0")
    fleet.run(30)
    fleet.reports["b0"] = report("b0", 300)
    for name in ("b1", "b2", "b3", "b4"):
        fleet.change(name, connections=700)
    fleet.run(60)
    fleet.change("b0", state="draining", connections=0)
    assert ended(list(fleet.seconds(ENDED_AFTER + 30)), "b0") == []


def test_a_box_on_the_first_list_is_as_old_as_may_be_whatever_its_reported_age() -> None:
    # The clock by which a driver computes ages was set back: boxes look newborn.
    fleet = Fleet()
    fleet.add(*(report(f"b{n}", 500) for n in range(12)))
    fleet.add(report("b12", 500))
    fleet.hush("b12")
    assert fleet.born is not None
    for _ in range(60):
        fleet.born["b12"] = fleet.now + 1
        fleet.second()
    decisions = list(fleet.seconds(PLAN.overdue + OBEY + PLAN.drain + FORGET))
    assert ended(decisions, "b12") == drained_at(decisions, "b12") == []
    assert fleet.kinds()["b12"] == "unknown"


def test_a_box_that_was_there_before_a_deafness_doesnt_become_young_by_it() -> None:
    fleet = fleet_of(12)
    fleet.add(report("b12", 500))
    fleet.hush("b12")
    fleet.run(30)
    fleet.scaler.disconnected()
    fleet.run(5)
    assert fleet.born is not None
    fleet.born["b12"] = fleet.now
    decisions = list(fleet.seconds(PLAN.overdue + OBEY + PLAN.drain + FORGET))
    assert ended(decisions, "b12") == []


# --- random events


@dataclasses.dataclass
class Truth:
    """A box's real state. ``away`` until it comes back; ``mute`` until it is heard again."""

    readers: int = 400
    state: str = "ready"
    born: float = -50_000.0
    ready_at: float = 0.0
    away: float = 0.0
    mute: float = 0.0
    gone: bool = False
    pace: int = 10
    clock_ms: int = 0

    def live(self, now: float) -> None:
        if self.state == "starting" and now >= self.ready_at:
            self.state, self.readers = "ready", 50
        if self.state == "draining":
            self.readers = max(0, self.readers - self.pace)
        if self.state == "away" and now >= self.away:
            self.state, self.readers = "ready", 300


PLAN_OF_MANY = ScalingPlan(
    per_box=1000, boot=60.0, drain=60.0, zones=2, least=2, most=40, calm=120.0, headroom=0.3
)
EVENTS = (
    "crowd_comes",
    "crowd_goes",
    "box_upgraded",
    "box_mute",
    "many_mute",
    "box_loses_readiness",
    "clock_jumps",
    "ages_jump",
    "core_away",
    "stopped",
    "no_list",
    "empty_list",
    "driver_fails",
)


class RealBoxes:
    """The real state of boxes, and a scaler that hears a part of it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 100_000.0
        self.boxes = {f"b{n}": Truth() for n in range(8)}
        self.made = len(self.boxes)
        self.scaler = Scaler("oregon", PLAN_OF_MANY)
        self.until = dict.fromkeys(EVENTS, 0.0)
        self.age_error = 0.0
        self.ended = 0
        self.drained = 0

    def happens(self, event: str) -> None:
        rng, serving = self.rng, [b for b in self.boxes.values() if b.state == "ready"]
        lasts = rng.choice([3.0, 40.0, 200.0, 900.0])
        self.until[event] = self.now + lasts
        if not serving:
            return
        one, any_one = rng.choice(serving), rng.choice(list(self.boxes.values()))
        match event:
            case "crowd_comes":
                for box in serving:
                    box.readers = rng.randint(300, 1000)
            case "crowd_goes":
                for box in serving:
                    box.readers = rng.randint(1, 60)
            case "box_upgraded":
                one.state, one.away, one.pace = "draining", self.now + lasts, 200
            case "box_mute":
                any_one.mute = self.now + lasts
            case "many_mute":
                for box in rng.sample(serving, len(serving) // 2):
                    box.mute = self.now + lasts
            case "box_loses_readiness":
                one.state, one.ready_at = "starting", self.now + lasts
            case "core_away":
                # Shovels come back one after the other.
                for box in self.boxes.values():
                    box.mute = self.now + lasts + rng.uniform(0.0, 120.0)
            case "clock_jumps":
                one.clock_ms = rng.choice([-7_200_000, 7_200_000, 0])
            case "ages_jump":
                self.age_error = rng.choice([-7200.0, 0.0, 7200.0])
            case "stopped":
                self.now += lasts

    def is_now(self, event: str) -> bool:
        return self.now < self.until[event]

    def second(self) -> None:
        self.now += 1.0
        for name, box in self.boxes.items():
            box.live(self.now)
            if box.state == "draining" and box.readers == 0 and box.away:
                # The upgrade begins; its agent has reported that for a few seconds.
                box.away += 5.0
                if self.rng.random() < 0.2:
                    box.state = "away"
            if self.is_heard(box):
                sent = report(
                    name,
                    box.readers,
                    state=box.state,
                    sent_ms=10**9 + int(self.now * 1000) + box.clock_ms,
                )
                self.scaler.note_report(sent, now=self.now)
        self.list()
        if self.is_now("core_away"):
            self.scaler.disconnected()
            return
        self.obey(self.scaler.decide(now=self.now, driver_well=not self.is_now("driver_fails")))

    def is_heard(self, box: Truth) -> bool:
        return box.state != "away" and self.now >= box.mute and not self.is_now("core_away")

    def list(self) -> None:
        if self.is_now("no_list"):
            self.scaler.listed(None, now=self.now)
        elif self.is_now("empty_list"):
            self.scaler.listed((), now=self.now)
        else:
            listed = [
                Instance(name, max(0.0, self.now - box.born + self.age_error))
                for name, box in self.boxes.items()
            ]
            self.scaler.listed(listed, now=self.now)

    def obey(self, decision: Decision) -> None:
        if decision.want is not None and not self.is_now("driver_fails"):
            for _ in range(decision.want - len(self.boxes)):
                ready_at = self.now + self.rng.uniform(20.0, 60.0)
                self.made += 1
                self.boxes[f"b{self.made}"] = Truth(0, "starting", self.now, ready_at)
        for name in decision.drain:
            box = self.boxes[name]
            # The order arrives on the feed, even if reports don't. A box that is away misses it.
            if box.state in ("ready", "starting"):
                self.drained += 1
                box.state, box.away, box.pace = "draining", 0.0, 1000 // int(PLAN_OF_MANY.drain) + 1
        for name in decision.end:
            box = self.boxes.pop(name)
            assert box.readers == 0, f"{name} had {box.readers} readers, {box}"
            self.ended += 1


@settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    st.integers(0, 10**6),
    st.lists(st.tuples(st.integers(1, 300), st.sampled_from(EVENTS)), min_size=3, max_size=15),
)
def test_no_box_that_has_readers_is_ended_whatever_is_not_heard(
    seed: int, events: list[tuple[int, str]]
) -> None:
    region = RealBoxes(seed)
    for pause, event in events:
        for _ in range(pause):
            region.second()
        region.happens(event)
    for _ in range(600):
        region.second()


def test_such_a_region_does_grow_and_shrink() -> None:
    # Otherwise the test above would prove nothing.
    region = RealBoxes(1)
    for event in ("crowd_comes", "crowd_goes", "crowd_comes", "crowd_goes"):
        region.happens(event)
        for _ in range(1500):
            region.second()
    assert region.ended > 3
    assert region.drained > 3
    assert region.made > 8


def test_a_scaler_acts_again_as_soon_as_it_has_listened() -> None:
    fleet = fleet_of(2, 1000)
    fleet.scaler.disconnected()
    wants = [decision.want for decision in fleet.seconds(LISTEN + 2)]
    assert wants[0] is None
    assert wants[-1] == 3
