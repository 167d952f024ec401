"""Which broker a message goes by, and how long its answer is waited for. Pure: time is passed in.

The brokers of a region stand side by side. A publisher chooses the order of each region's brokers
once, at random, and then stays with the first of the nearest region: so many publishers are spread
over all brokers, and the messages of one take one way and keep their order as long as nothing
fails. (A broker chosen for each message would spread a single publisher too, but no publisher is
too much for one broker, and two ways overtake each other.)

A broker that was silent until another one answered is *doubted*. Messages go by the others then, so
none but the first ones wait for it; now and then it gets a copy of one, and once it answers a
message in time it isn't doubted any more. An answer that comes late says nothing: a broker
that was stopped and goes on, or one that is far behind, gives many of these.

A receipt takes 5 to 50 ms in a quiet region, and seconds under overload, where each repeat is one
more copy to carry. So the first repeat waits ``send_again`` or, where answers take longer, four
times as long as they took lately, but at most two seconds.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Collection, Sequence
from typing import Final

#: Seconds without an answer before a message is sent again, the first time and at last.
SEND_AGAIN: Final = 0.5
SEND_AGAIN_AT_LAST: Final = 10.0
#: As long may the first pause become where answers are slow.
SLOW: Final = 2.0
#: Seconds between copies that go by a doubted broker.
PROBE_EVERY: Final = 2.0

_TIMES_USUAL: Final = 4
_SHARE_OF_LAST: Final = 1 / 8
_NEVER: Final = float("-inf")


@dataclasses.dataclass(slots=True)
class Course:
    """Which brokers a message was handed to, and when, oldest first."""

    handed: list[tuple[int, float]] = dataclasses.field(default_factory=list)

    def times(self, broker: int) -> int:
        """How often ``broker`` has had it."""
        return sum(one == broker for one, _ in self.handed)

    def since(self, broker: int) -> float | None:
        """When ``broker`` had it first; None for never."""
        return next((at for one, at in self.handed if one == broker), None)


@dataclasses.dataclass(slots=True)
class _Standing:
    """How one broker has done so far."""

    region: int
    place: int
    in_time: float = _NEVER
    doubted: bool = False
    probe: str = ""
    probed: float = _NEVER


class Choice:
    """Chooses among brokers, which are numbered: first those of the nearest region, and so on.

    ``regions`` is how many brokers each region has. Times are seconds on any one clock.
    """

    def __init__(
        self, regions: Sequence[int], *, send_again: float = SEND_AGAIN, rng: random.Random
    ) -> None:
        self._send_again = send_again
        self._usual = 0.0
        self._regions = len(regions)
        self._brokers: list[_Standing] = []
        for region, count in enumerate(regions):
            places = rng.sample(range(count), count)
            self._brokers += [_Standing(region, place) for place in places]

    @property
    def patience(self) -> float:
        """How long the first pause is now: until then an answer is in time."""
        return max(self._send_again, min(_TIMES_USUAL * self._usual, SLOW))

    @property
    def doubted(self) -> set[int]:
        """Brokers that are passed over."""
        return {number for number, broker in enumerate(self._brokers) if broker.doubted}

    def among(self, usable: Collection[int], course: Course, copies: int) -> list[int]:
        """Those of ``usable`` brokers that get the message now: one each of ``copies`` regions.

        One that hasn't had it comes before one that has, then one that isn't doubted, then the
        nearer.
        """

        def rank(number: int) -> tuple[int, bool, int, int]:
            broker = self._brokers[number]
            return course.times(number), broker.doubted, broker.region, broker.place

        chosen: dict[int, int] = {}
        for number in sorted(usable, key=rank):
            chosen.setdefault(self._brokers[number].region, number)
        return list(chosen.values())[:copies]

    def probed(self, usable: Collection[int], course: Course, key: str, now: float) -> list[int]:
        """Doubted ones of ``usable`` that get a copy of the new message ``key`` beside others."""
        due = [
            number
            for number in sorted(usable)
            if (broker := self._brokers[number]).doubted
            and now - broker.probed >= PROBE_EVERY
            and not course.times(number)
        ]
        for number in due:
            self._brokers[number].probe, self._brokers[number].probed = key, now
        return due

    def heard(self, number: int, key: str, now: float) -> None:
        """An answer to message ``key`` came by broker ``number``, whether one waits for it or not.

        If it answers the last probe in time, the broker is itself again.
        """
        broker = self._brokers[number]
        if broker.doubted and broker.probe == key and now - broker.probed <= self.patience:
            self._trust(broker, now)

    def answered(self, number: int, course: Course, now: float) -> None:
        """The first answer to a message came by broker ``number``."""
        since = course.since(number)
        if since is None:
            # By a stranger, or a probe: it says nothing of how long answers take.
            return
        if now - since <= self.patience:
            self._trust(self._brokers[number], now)
        for other, at in course.handed:
            broker = self._brokers[other]
            if at < since and broker.in_time < at and not broker.doubted:
                broker.doubted, broker.probe, broker.probed = True, "", now
        self._usual += (now - since - self._usual) * _SHARE_OF_LAST

    def region_of(self, number: int) -> int:
        """Which region broker ``number`` is in: 0 is the nearest."""
        return self._brokers[number].region

    def in_each_region(self, brokers: Collection[int]) -> bool:
        """Whether ``brokers`` has one of each region."""
        return len({self._brokers[number].region for number in brokers}) == self._regions

    @staticmethod
    def _trust(broker: _Standing, now: float) -> None:
        broker.in_time, broker.doubted = now, False
