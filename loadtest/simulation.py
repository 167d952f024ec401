"""A region's boxes, readers, frontdesk and scalers in simulated time.

Boxes, readers and machines are invented; the decisions are real. Scalers are
:class:`wholesale.scaler.deciding.Scaler`. Readers are distributed by a frontdesk's replies, from
:func:`wholesale.frontdesk.presence.weights.shares`; a reply is up to five seconds old.

Readers are counted, not simulated one by one. A reader who finds no box with room asks again after
two seconds, as clients do, and counts as refused once.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from newsfabric.messages.control import BoxState, LoadReport
from wholesale.frontdesk.presence.weights import Vessel, shares
from wholesale.scaler.deciding import Scaler
from wholesale.scaler.drivers import Instance
from wholesale.scaler.plan import ScalingPlan

ANSWER_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 2.0
# Most readers a second that a gateway sends away in a drain.
DRAIN_PER_SECOND: Final = 1000.0
# Seconds in which readers of a box that is gone return.
RETURN_SECONDS: Final = 20.0

# Part of a reader: rounding errors of sums of floats.
_CRUMB: Final = 1e-3

#: Time → readers there would be, if all found a place.
Curve = Callable[[float], float]


@dataclasses.dataclass(slots=True)
class SimBox:
    """A box. ``ready_at`` is infinite for one that never becomes ready."""

    name: str
    zone: str
    capacity: int
    started: float
    ready_at: float
    readers: float = 0.0
    connects: float = 0.0
    draining: bool = False
    mute: bool = False

    def state(self, now: float) -> BoxState:
        """Return the state in its load report at ``now``, in seconds."""
        if self.draining:
            return "draining"
        return "ready" if now >= self.ready_at else "starting"

    def open(self, now: float) -> bool:
        """Return whether it takes readers at ``now``: ready, not draining, not full."""
        return not self.draining and now >= self.ready_at and self.readers < self.capacity


@dataclasses.dataclass(frozen=True, slots=True)
class Moment:
    """The state at ``at``. ``fullest`` is the fill of the fullest ready box, 0 to 1."""

    at: float
    asked: float
    readers: float
    waiting: float
    refused: float
    ready: int
    booting: int
    leaving: int
    wanted: int
    fullest: float


@dataclasses.dataclass(slots=True)
class Machines:
    """A driver's machines, which boot in about ``boot`` seconds, up to ``limit`` of them."""

    plan: ScalingPlan
    rng: random.Random
    limit: int = 10_000
    zones: int = 3
    fail: float = 0.0
    boxes: dict[str, SimBox] = dataclasses.field(default_factory=dict)
    made: int = 0
    at_limit: bool = False
    # Must stay 0: readers of boxes that were ended.
    lost: float = 0.0

    def start(self, count: int, now: float) -> None:
        """Make ``count`` boxes that are ready at ``now``, when the region begins."""
        for _ in range(count):
            self._make(now, now)

    def want(self, count: int, now: float) -> None:
        """Make boxes, as a driver's ``want``; :attr:`at_limit`: more were wanted than allowed."""
        self.at_limit = count > self.limit
        for _ in range(min(count, self.limit) - len(self.boxes)):
            # A requested box is ready by the end of ``boot``.
            boots = self.plan.boot * self.rng.uniform(0.7, 1.0)
            broken = self.rng.random() < self.fail
            self._make(now, math.inf if broken else now + boots)

    def end(self, names: Iterable[str]) -> None:
        """End boxes, as a driver's ``end``; readers still on them are counted as :attr:`lost`."""
        for name in names:
            if (box := self.boxes.pop(name, None)) is not None:
                self.lost += box.readers

    def list(self, now: float) -> tuple[Instance, ...]:
        """Return instances, as a driver's ``boxes``."""
        return tuple(Instance(box.name, now - box.started, box.zone) for box in self.boxes.values())

    def _make(self, now: float, ready_at: float) -> None:
        self.made += 1
        taken = [box.zone for box in self.boxes.values()]
        zone = min((f"z{n}" for n in range(self.zones)), key=taken.count)
        name = f"box-{self.made}"
        self.boxes[name] = SimBox(name, zone, self.plan.per_box, now, ready_at)


class Region:
    """A region with its scalers; call :meth:`step`."""

    def __init__(
        self, plan: ScalingPlan, curve: Curve, *, boxes: int, scalers: int = 2, seed: int = 1
    ) -> None:
        self.rng = random.Random(seed)
        self.machines = Machines(plan, self.rng, zones=plan.zones)
        self.machines.start(boxes, -10_000.0)
        self.scalers = [Scaler("here", plan) for _ in range(scalers)]
        # Whether scaler n misses a box's report at a time.
        self.unheard: Callable[[int, SimBox, float], bool] = lambda _n, box, _now: box.mute
        self.curve = curve
        # Share of all readers who leave in a second while others arrive.
        self.churn = 0.0
        self.moments: list[Moment] = []
        self.refused = 0.0
        self._waiting = 0.0
        self._returning: list[tuple[float, float]] = []
        self._weights: list[tuple[SimBox, float]] = []
        self._answered = -math.inf

    @property
    def boxes(self) -> Sequence[SimBox]:
        """All boxes, also those that boot or drain."""
        return list(self.machines.boxes.values())

    @property
    def readers(self) -> float:
        """The number of connected readers."""
        return sum(box.readers for box in self.machines.boxes.values())

    def lose(self, names: Iterable[str], now: float) -> None:
        """Remove machines; their readers return as soon as they can."""
        for name in names:
            box = self.machines.boxes.pop(name)
            self._return(box.readers, now)

    def lose_zone(self, zone: str, now: float) -> None:
        """Remove all boxes in ``zone``, as :meth:`lose`."""
        self.lose([box.name for box in self.boxes if box.zone == zone], now)

    def step(self, now: float, dt: float) -> Moment:
        """Simulate the ``dt`` seconds before ``now``."""
        self._drain(dt)
        self._arrive(now, dt)
        self._scale(now)
        moment = self._moment(now)
        self.moments.append(moment)
        return moment

    # --- readers --------------------------------------------------------------------------

    def _arrive(self, now: float, dt: float) -> None:
        for box in self.boxes:
            box.connects = 0.0
        back = sum(count * min(1.0, dt / RETURN_SECONDS) for _, count in self._returning)
        self._returning = [
            (at, count * (1.0 - min(1.0, dt / RETURN_SECONDS))) for at, count in self._returning
        ]
        self._returning = [(at, count) for at, count in self._returning if count > 0.5]
        away = sum(count for _, count in self._returning)
        leave = self.readers * self.churn * dt
        self._leave(leave)
        here = self.readers + self._waiting + away + back
        fresh = self.curve(now) - here
        if fresh < 0:
            gone = min(self._waiting, -fresh)
            self._waiting -= gone
            self._leave(-fresh - gone)
            fresh = 0.0
        retry = self._waiting * min(1.0, dt / RETRY_SECONDS)
        self._waiting -= retry
        placed = self._place(fresh + back + retry, now, dt)
        left = fresh + back + retry - placed
        if left < _CRUMB:
            left = 0.0
        self._waiting += left
        # Readers who asked before were counted then.
        self.refused += max(0.0, min(left, fresh + back))

    def _leave(self, count: float) -> None:
        readers = self.readers
        if readers <= 0:
            return
        share = min(1.0, count / readers)
        for box in self.boxes:
            box.readers -= box.readers * share

    def _return(self, count: float, now: float) -> None:
        if count > 0:
            self._returning.append((now, count))

    def _place(self, count: float, now: float, dt: float) -> float:
        """Place ``count`` readers; return how many found a place."""
        if now - self._answered >= ANSWER_SECONDS:
            self._answered = now
            self._weights = self._answer(now)
        left = count
        targets = [(box, weight) for box, weight in self._weights if self._is_there(box, now)]
        while left > 1e-6 and targets:
            total = sum(weight for _, weight in targets)
            rest = 0.0
            for box, weight in targets:
                given = left * weight / total
                taken = min(given, box.capacity - box.readers)
                box.readers += taken
                box.connects += taken / dt
                rest += given - taken
            left = rest
            # A reader who met a full box tries the next one of the reply.
            targets = [(box, weight) for box, weight in targets if box.open(now)]
        return count - left

    def _is_there(self, box: SimBox, now: float) -> bool:
        return box.name in self.machines.boxes and box.open(now)

    def _answer(self, now: float) -> list[tuple[SimBox, float]]:
        boxes = [box for box in self.boxes if box.open(now) and not box.mute]
        if not boxes:
            return []
        vessels = [
            Vessel(
                connections=int(box.readers),
                capacity=box.capacity,
                connects_per_second=box.connects,
                age=now - box.ready_at,
            )
            for box in boxes
        ]
        return list(zip(boxes, shares(vessels), strict=True))

    def _drain(self, dt: float) -> None:
        seconds = max(1.0, self.machines.plan.drain)
        for box in self.boxes:
            if box.draining and box.readers > 0:
                pace = max(box.capacity / seconds, DRAIN_PER_SECOND)
                going = min(box.readers, pace * dt)
                box.readers -= going
                if box.readers < 0.5:
                    going, box.readers = going + box.readers, 0.0
                # They were sent elsewhere, and do so at once.
                self._waiting += going

    # --- scalers --------------------------------------------------------------------------

    def _scale(self, now: float) -> None:
        listed = self.machines.list(now)
        for n, scaler in enumerate(self.scalers):
            for box in self.boxes:
                if not self.unheard(n, box, now):
                    scaler.note_report(reported(box, now), now=now)
            scaler.listed(listed, now=now)
            decision = scaler.decide(now=now)
            if decision.want is not None:
                self.machines.want(decision.want, now)
            for name in decision.drain:
                if name in self.machines.boxes:
                    self.machines.boxes[name].draining = True
            self.machines.end(decision.end)

    def _moment(self, now: float) -> Moment:
        states = [box.state(now) for box in self.boxes]
        fills = [box.readers / box.capacity for box in self.boxes if box.state(now) == "ready"]
        decision = self.scalers[0].decision
        return Moment(
            at=now,
            asked=self.curve(now),
            readers=self.readers,
            waiting=self._waiting + sum(count for _, count in self._returning),
            refused=self.refused,
            ready=states.count("ready"),
            booting=states.count("starting"),
            leaving=states.count("draining"),
            wanted=decision.wanted if decision else 0,
            fullest=max(fills, default=0.0),
        )


def reported(box: SimBox, now: float) -> LoadReport:
    """Return the load report of ``box``."""
    return LoadReport(
        region="here",
        box=box.name,
        state=box.state(now),
        connections=math.ceil(box.readers),
        capacity=box.capacity,
        deliveries_per_second=0.0,
        connects_per_second=box.connects,
        sockjs_url="",
        websocket_url="",
        sse_url="",
        sent_ms=int((now + 20_000) * 1000),
    )
