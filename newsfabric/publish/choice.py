"""The choice of a message's broker, and of the time to wait for a reply. Pure: time is passed in.

The brokers of a region stand side by side. A publisher chooses the order of each region's brokers
once, at random, and then stays with the first of the nearest region. So many publishers are spread
over all brokers, and the messages of one publisher take one path and keep their order without
failures. (A broker chosen for each message would spread a single publisher too, but no publisher is
too much for one broker, and messages on two paths overtake each other.)

A broker that was silent until another one replied is *doubted*. Messages are sent through the
others then, so only the first ones wait for it; now and then it gets a copy of a message. Once it
answers a message in time it isn't doubted any more. A late reply proves nothing: a broker that was
stopped and continues, or that has a long backlog, sends many of these.

A receipt takes 5 to 50 ms in a quiet region, and seconds under overload, where each repeat is one
more copy to carry. So the first repeat waits for ``send_again``, or, if replies are slow, four
times their recent average, but at most two seconds.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Collection, Sequence
from typing import Final

#: Seconds without a reply before a message is sent again, the first time and at last.
SEND_AGAIN: Final = 0.5
SEND_AGAIN_AT_LAST: Final = 10.0
#: Greatest length of the first pause where replies are slow.
SLOW: Final = 2.0
#: Seconds between copies that are sent through a doubted broker.
PROBE_EVERY: Final = 2.0

_TIMES_USUAL: Final = 4
_SHARE_OF_LAST: Final = 1 / 8
_NEVER: Final = float("-inf")


@dataclasses.dataclass(slots=True)
class Course:
    """The brokers that a message was handed to, and when, oldest first."""

    handed: list[tuple[int, float]] = dataclasses.field(default_factory=list)

    def times(self, broker: int) -> int:
        """Return how often ``broker`` was handed the message."""
        return sum(one == broker for one, _ in self.handed)

    def since(self, broker: int) -> float | None:
        """Return when ``broker`` was first handed the message; None for never."""
        return next((at for one, at in self.handed if one == broker), None)


@dataclasses.dataclass(slots=True)
class _Standing:
    """The record of one broker so far."""

    region: int
    place: int
    in_time: float = _NEVER
    doubted: bool = False
    probe: str = ""
    probed: float = _NEVER


class Choice:
    """A choice among brokers, which are numbered: first those of the nearest region, and so on.

    ``regions`` has the number of brokers of each region. Times are seconds on any one clock.
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
        """The length of the first pause now: until then a reply is in time."""
        return max(self._send_again, min(_TIMES_USUAL * self._usual, SLOW))

    @property
    def doubted(self) -> set[int]:
        """Brokers that are passed over."""
        return {number for number, broker in enumerate(self._brokers) if broker.doubted}

    def among(self, usable: Collection[int], course: Course, copies: int) -> list[int]:
        """Return the ``usable`` brokers that get the message now: one each of ``copies`` regions.

        A broker that wasn't handed it comes before one that was, then one that isn't doubted, then
        the nearer.
        """

        def rank(number: int) -> tuple[int, bool, int, int]:
            broker = self._brokers[number]
            return course.times(number), broker.doubted, broker.region, broker.place

        chosen: dict[int, int] = {}
        for number in sorted(usable, key=rank):
            chosen.setdefault(self._brokers[number].region, number)
        return list(chosen.values())[:copies]

    def probed(self, usable: Collection[int], course: Course, key: str, now: float) -> list[int]:
        """Return doubted brokers of ``usable`` that also get a copy of the new message ``key``."""
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

    def note_reply(self, number: int, key: str, now: float) -> None:
        """Note a reply to message ``key`` through broker ``number``, awaited or not.

        If it answers the last probe in time, the broker isn't doubted any more.
        """
        broker = self._brokers[number]
        if broker.doubted and broker.probe == key and now - broker.probed <= self.patience:
            self._trust(broker, now)

    def answered(self, number: int, course: Course, now: float) -> None:
        """Note the first reply to a message, through broker ``number``."""
        since = course.since(number)
        if since is None:
            # By a stranger, or a probe: this tells nothing about the time of replies.
            return
        if now - since <= self.patience:
            self._trust(self._brokers[number], now)
        for other, at in course.handed:
            broker = self._brokers[other]
            if at < since and broker.in_time < at and not broker.doubted:
                broker.doubted, broker.probe, broker.probed = True, "", now
        self._usual += (now - since - self._usual) * _SHARE_OF_LAST

    def region_of(self, number: int) -> int:
        """Return the region of broker ``number``: 0 is the nearest."""
        return self._brokers[number].region

    def in_each_region(self, brokers: Collection[int]) -> bool:
        """Return whether ``brokers`` has at least one broker of each region."""
        return len({self._brokers[number].region for number in brokers}) == self._regions

    @staticmethod
    def _trust(broker: _Standing, now: float) -> None:
        broker.in_time, broker.doubted = now, False
