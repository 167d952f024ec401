"""Which core nodes feed a box, and whether they do. Pure: states and ticks in, commands out.

A box has up to two feeds, each a shovel from a queue of its own on a *different* core node. Two
signs tell whether a feed works. The shovel's word: one that hasn't said "running" for
:data:`SILENT_AFTER` is moved to a core node that no other feed uses, where there is one. And the
ticks: each of the region's own must arrive once per feed, because a shovel can say "running"
and move nothing. Which one lies can't be told from the ticks, so they are restarted in
turn, ever more seldom: the reason may as well be that no router lives.
"""

from __future__ import annotations

import collections
import dataclasses
import zlib
from collections.abc import Sequence
from typing import Final

from newsfabric.control import Tick

# A shovel tries again each second; a core node that restarts is back in about ten.
SILENT_AFTER: Final = 15.0
# Routers tick each second. The box isn't ready without one for this long.
TICKS_WITHIN: Final = 5.0
# Copies of a tick arrive within some ms of each other; after this the count stands.
COPIES_AFTER: Final = 2.0
# How long copies must be missing before a shovel that says "running" isn't believed.
DISTRUST_AFTER: Final = 10.0
DISTRUST_CAP: Final = 300.0
# Ticks remembered to count their copies: some routers for some seconds.
_REMEMBERED: Final = 256


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """Feed ``n`` is to come from the core node at ``url`` from now on."""

    n: int
    url: str


@dataclasses.dataclass(frozen=True, slots=True)
class Restart:
    """Feed ``n``'s shovel is to be made anew."""

    n: int


Command = Move | Restart


def choose(box: str, cores: Sequence[str]) -> tuple[str, ...]:
    """The core nodes that a new box is fed from: two where there are, spread over boxes."""
    start = zlib.crc32(box.encode()) % len(cores)
    return tuple(cores[(start + n) % len(cores)] for n in range(min(2, len(cores))))


class Ticks:
    """When ticks came, and in how many copies those of region ``origin`` came."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._last: float | None = None
        # When each of the region's own ticks came first, and how often.
        self._own: collections.OrderedDict[Tick, tuple[float, int]] = collections.OrderedDict()

    def heard(self, tick: Tick, now: float) -> None:
        """A tick came at ``now`` (seconds)."""
        self._last = now
        if tick.origin != self._origin:
            return
        first, count = self._own.get(tick, (now, 0))
        self._own[tick] = (first, count + 1)
        if len(self._own) > _REMEMBERED:
            self._own.popitem(last=False)

    def moving(self, now: float) -> bool:
        """Whether a tick, of whatever region, came lately."""
        return self._last is not None and now - self._last <= TICKS_WITHIN

    def copies(self, now: float) -> int:
        """In how many copies the region's latest ticks came; 0 when there are none."""
        return max(
            (
                count
                for first, count in self._own.values()
                if COPIES_AFTER <= now - first <= COPIES_AFTER + TICKS_WITHIN
            ),
            default=0,
        )


@dataclasses.dataclass(slots=True)
class _Feed:
    url: str
    good_at: float
    running: bool = False


class Feeds:
    """The feeds of one box; numbered from 1, as their shovels and queues are."""

    def __init__(self, box: str, cores: Sequence[str], now: float) -> None:
        self._cores = tuple(cores)
        self._feeds = {n: _Feed(url, now) for n, url in enumerate(choose(box, cores), 1)}
        self._whole_at = now
        self._patience = DISTRUST_AFTER
        self._suspect = 0

    @property
    def urls(self) -> dict[int, str]:
        """The core node that each feed comes from."""
        return {n: feed.url for n, feed in self._feeds.items()}

    @property
    def running(self) -> int:
        """How many feeds say that they run."""
        return sum(feed.running for feed in self._feeds.values())

    def look(self, running: frozenset[int], copies: int, now: float) -> list[Command]:
        """One second's look: ``running`` are the feeds that say so. Do what is returned."""
        for n, feed in self._feeds.items():
            feed.running = n in running
            if feed.running:
                feed.good_at = now
        return [*self._moves(now), *self._restarts(copies, now)]

    def _moves(self, now: float) -> list[Command]:
        moves: list[Command] = []
        for n, feed in self._feeds.items():
            if now - feed.good_at <= SILENT_AFTER:
                continue
            feed.good_at = now
            if (url := self._spare(feed.url)) is not None:
                feed.url = url
                moves.append(Move(n, url))
        return moves

    def _spare(self, url: str) -> str | None:
        """The next core node after ``url`` that no feed uses: two from one would prove nothing."""
        start = self._cores.index(url)
        used = {feed.url for feed in self._feeds.values()}
        ring = (*self._cores[start:], *self._cores[:start])
        return next((core for core in ring if core not in used), None)

    def _restarts(self, copies: int, now: float) -> list[Command]:
        if copies >= self.running:
            self._whole_at = now
            if copies:
                self._patience = DISTRUST_AFTER
            return []
        if now - self._whole_at <= self._patience:
            return []
        self._whole_at = now
        self._patience = min(DISTRUST_CAP, self._patience * 2)
        believed = [n for n, feed in self._feeds.items() if feed.running]
        self._suspect += 1
        return [Restart(believed[self._suspect % len(believed)])]
