"""A gateway's streams and what repairs them, on a clock that the test moves."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable

from envelopes import envelope

from gateway.gaps import Closed
from gateway.repair import Plan, Repair, RepairLimits
from gateway.streams import Streams
from gateway.sweep import Phase, Sweep
from newsfabric.envelope import Envelope, id_of, ms_of_id

BASE = 1_700_000_000
ROUTER, TWIN, FAR = "oregon-router-1", "oregon-router-2", "dublin-router-1"
FAR_TWIN = "dublin-router-2"
REGION = {ROUTER: "oregon", TWIN: "oregon", FAR: "dublin", FAR_TWIN: "dublin"}
# They all started ten seconds after the gateway.
EPOCH = (BASE + 10) * 1000


class Longest(random.Random):
    """No luck: every wait is as long as it may be."""

    def uniform(self, a: float, b: float) -> float:
        return b


@dataclasses.dataclass
class Box:
    """A gateway's streams and what repairs them; ``now`` 0 is BASE by our clock."""

    now: float = 0.0
    limits: RepairLimits = dataclasses.field(default_factory=RepairLimits)
    fed_at: float | None = None

    def __post_init__(self) -> None:
        self.streams = Streams(BASE)
        self.repair = Repair(self.streams, self.limits, rng=Longest())
        self.repair.begin(self.ms())
        self.closed: list[Closed] = []
        # By sweeps.
        self.published: list[int] = []

    def ms(self, ago: float = 0.0) -> int:
        return int((BASE + self.now - ago) * 1000)

    def hear(
        self, seq: int, router: str = ROUTER, *, skew: float = 0.0, epoch: int = EPOCH
    ) -> None:
        """A message that was routed just now, by a clock that is ``skew`` ahead of ours."""
        self.repair.heard(REGION[router], router, epoch, self.now)
        self.streams.saw(router, epoch, seq, routed_ms=self.ms(-skew), now=BASE + self.now)

    def tick(self, last: int, *void: int, router: str = ROUTER, skew: float = 0.0) -> None:
        self.repair.heard(REGION[router], router, EPOCH, self.now)
        self.streams.ticked(
            router, EPOCH, last, void=void, sent_ms=self.ms(-skew), now=BASE + self.now
        )
        if REGION[router] == "oregon":
            self.fed_at = self.now

    def go(self, seconds: float) -> None:
        """Time passes; the gateway looks every tenth of a second."""
        until = self.now + seconds
        while self.now < until - 1e-6:
            self.now = round(self.now + 0.1, 3)
            self.closed += self.repair.look(self.now, self.ms(), self.fed_at)

    def plan(self) -> Plan | None:
        return self.repair.plan(self.now, self.ms())

    def read(self, *found: Envelope, complete: bool = True) -> list[int]:
        """Do what is planned on a journal with ``found``; the numbers that were offered."""
        plan = self.plan()
        assert plan is not None
        offered = []
        for one in found:
            if complete and self.repair.wants(one, self.now):
                offered.append(one.seq)
                place = (one.router, one.epoch, one.seq)
                self.streams.saw(*place, routed_ms=self.ms(), now=BASE + self.now)
        if plan.sweep is not None:
            self.sweep(plan.sweep, found)
        self.closed += self.repair.finished(plan, self.now, complete=complete)
        return offered

    def sweep(self, sweep: Sweep, found: Iterable[Envelope]) -> None:
        """Go on with ``sweep`` to the end of its round."""
        while sweep.due <= self.now:
            from_ms, to_ms = sweep.part()
            rows = [one for one in found if from_ms <= ms_of_id(one.id) < to_ms]
            if sweep.phase is Phase.PUBLISH:
                for one in rows:
                    if self.repair.wants(one, self.now, sweep=sweep):
                        place = (one.router, one.epoch, one.seq)
                        self.streams.saw(*place, routed_ms=ms_of_id(one.id), now=BASE + self.now)
                        if one.identity not in sweep.copies:
                            self.published.append(one.seq)
            else:
                self.repair.note(sweep, rows, self.now)
            sweep.reached(to_ms, self.now)

    def settled(self) -> None:
        """Read whatever is due, and find nothing."""
        if self.plan() is not None:
            self.read()

    @property
    def missing(self) -> list[tuple[int, int]]:
        return self.streams.missing().get((ROUTER, EPOCH), [])


def stored(seq: int, router: str = ROUTER, *, at: float = 0.0, epoch: int = EPOCH) -> Envelope:
    made = envelope(seq, router=router, epoch=epoch, origin=REGION[router])
    return dataclasses.replace(made, id=id_of(int((BASE + at) * 1000), made.identity))


def well_box() -> Box:
    """Started long ago, and all is well: a router has routed number 1."""
    box = Box()
    box.settled()
    box.go(20)
    for _ in range(61):
        box.hear(1)
        box.go(1)
    box.settled()
    box.hear(2)
    assert box.plan() is None
    return box
