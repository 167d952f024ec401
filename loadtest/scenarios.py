"""The scenarios for scalers: crowds that arrive, stay and leave, and failures meanwhile."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from loadtest.simulation import Curve, Moment, Region
from wholesale.scaler.plan import ScalingPlan

MINUTE: Final = 60.0
HOUR: Final = 3600.0

#: A failure in a region: the second, and the function that causes it.
Event = tuple[float, Callable[[Region, float], None]]


def through(*points: tuple[float, float]) -> Curve:
    """Return the curve through ``points`` (second, readers), straight between, level beyond."""
    times = [at for at, _ in points]

    def at(now: float) -> float:
        n = bisect.bisect_right(times, now)
        if n == 0:
            return points[0][1]
        if n == len(points):
            return points[-1][1]
        (before, low), (after, high) = points[n - 1], points[n]
        return low + (high - low) * (now - before) / (after - before)

    return at


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A region of a scenario. ``floor``: the fewest boxes, ``start``: those at the start."""

    curve: Curve
    floor: int
    start: int = 0
    events: Sequence[Event] = ()
    limit: int = 10_000
    fail: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario: ``places`` by their names, for ``seconds``, in steps of ``every``."""

    name: str
    title: str
    places: Mapping[str, Place]
    seconds: float
    every: float = 1.0
    plan: ScalingPlan = dataclasses.field(default_factory=ScalingPlan)
    # Share of all readers who leave in a second while as many others arrive.
    churn: float = 0.001
    # Refused readers that are no fault: those who arrived before any box could be ready.
    may_refuse: float = 0.0

    def run(self, seed: int = 1) -> dict[str, Region]:
        """Run all regions, and return them with their moments."""
        found = {}
        for n, (name, place) in enumerate(self.places.items()):
            plan = dataclasses.replace(self.plan, least=place.floor)
            region = Region(plan, place.curve, boxes=max(place.floor, place.start), seed=seed + n)
            region.churn = self.churn
            region.machines.limit = place.limit
            region.machines.fail = place.fail
            self._play(region, place)
            found[name] = region
        return found

    def _play(self, region: Region, place: Place) -> None:
        events = sorted(place.events, key=lambda event: event[0])
        for n in range(1, int(self.seconds / self.every) + 1):
            now = n * self.every
            while events and events[0][0] <= now:
                events.pop(0)[1](region, now)
            region.step(now, self.every)


def _lose_zone(zone: str) -> Callable[[Region, float], None]:
    return lambda region, now: region.lose_zone(zone, now)


SURGE: Final = Scenario(
    name="surge",
    title="0 to 500,000 readers in ten minutes, and home again",
    places={
        "oregon": Place(
            curve=through(
                (MINUTE, 0),
                (11 * MINUTE, 500_000),
                (30 * MINUTE, 500_000),
                (50 * MINUTE, 40_000),
            ),
            floor=4,
        )
    },
    seconds=80 * MINUTE,
)

ELECTION: Final = Scenario(
    name="election",
    title="an election night: polls close hour by hour, results in waves",
    places={
        "oregon": Place(
            curve=through(
                (0, 80_000),
                (1 * HOUR, 150_000),
                (1.25 * HOUR, 400_000),
                (2 * HOUR, 350_000),
                (2.2 * HOUR, 650_000),
                (2.7 * HOUR, 560_000),
                (3 * HOUR, 900_000),
                (4 * HOUR, 820_000),
                (4.3 * HOUR, 1_100_000),
                (5 * HOUR, 700_000),
                (6.5 * HOUR, 250_000),
                (8 * HOUR, 90_000),
            ),
            floor=6,
            fail=0.05,
        )
    },
    seconds=9 * HOUR,
    every=2.0,
)

ZONE: Final = Scenario(
    name="zone",
    title="400,000 readers, and one of three zones is lost in the middle",
    places={
        "oregon": Place(
            curve=through((0, 100_000), (20 * MINUTE, 400_000)),
            floor=4,
            events=((40 * MINUTE, _lose_zone("z0")),),
        )
    },
    seconds=80 * MINUTE,
)

NIGHT: Final = Scenario(
    name="night",
    title="scale-in at night: 450,000 readers go to bed, and are up again",
    places={
        "oregon": Place(
            curve=through(
                (HOUR, 450_000),
                (4 * HOUR, 60_000),
                (8 * HOUR, 40_000),
                (11 * HOUR, 450_000),
            ),
            floor=4,
            start=8,
        )
    },
    seconds=12 * HOUR,
    every=5.0,
)


def _day(shift: float, most: float) -> Curve:
    return through(
        (shift, 0.12 * most),
        (shift + 1 * HOUR, 0.5 * most),
        (shift + 2 * HOUR, most),
        (shift + 3.5 * HOUR, 0.9 * most),
        (shift + 5 * HOUR, 0.2 * most),
    )


WORLD: Final = Scenario(
    name="world",
    title="5,000,000 readers in four regions, each with its own evening",
    places={
        name: Place(curve=_day(n * 0.25 * HOUR, 1_250_000), floor=6)
        for n, name in enumerate(("oregon", "virginia", "dublin", "tokyo"))
    },
    seconds=6.5 * HOUR,
    every=5.0,
)

SCENARIOS: Final = {each.name: each for each in (SURGE, ELECTION, ZONE, NIGHT, WORLD)}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioOutcome:
    """The results of a region's run.

    ``turns``: changes of direction of the wanted number, up or down; ``most_turns``: those of the
    crowd itself (each peak and each valley is one). ``lost``: readers on boxes that were ended.
    ``box_hours``: hours of all boxes; ``needed_hours``: those with a scaler that knew the future.
    """

    refused: float
    lost: float
    most_boxes: int
    turns: int
    most_turns: int
    quickest_fall: float
    fullest: float
    box_hours: float
    needed_hours: float

    @property
    def steady(self) -> bool:
        """True if the number turned no more often than the crowd."""
        return self.turns <= self.most_turns


def outcome_of(region: Region, place: Place, scenario: Scenario) -> ScenarioOutcome:
    """Return the results of ``region`` in ``scenario``."""
    moments = region.moments
    plan = scenario.plan
    hours = scenario.every / HOUR
    usable = plan.per_box * (1 - plan.headroom)
    return ScenarioOutcome(
        refused=region.refused,
        lost=region.machines.lost,
        most_boxes=max(m.ready + m.booting + m.leaving for m in moments),
        turns=len(turns([m.wanted for m in moments])),
        most_turns=len(turns([round(m.asked) for m in moments])) + 2 * len(place.events),
        quickest_fall=quickest_fall(moments),
        fullest=max(m.fullest for m in moments),
        box_hours=hours * sum(m.ready + m.booting + m.leaving for m in moments),
        needed_hours=hours * sum(max(place.floor, m.asked / usable) for m in moments),
    )


def turns(numbers: Sequence[int]) -> list[int]:
    """Return the indices at which ``numbers`` change direction, from up to down or back."""
    steps = [(n, b - a) for n, (a, b) in enumerate(itertools.pairwise(numbers)) if a != b]
    return [n for (_, a), (n, b) in itertools.pairwise(steps) if (a > 0) != (b > 0)]


def quickest_fall(moments: Sequence[Moment]) -> float:
    """Return the shortest time between two falls of the wanted number, in seconds; or infinity."""
    falls = [b.at for a, b in itertools.pairwise(moments) if b.wanted < a.wanted]
    return min((b - a for a, b in itertools.pairwise(falls)), default=float("inf"))
