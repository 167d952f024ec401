"""A box's feeds: their core nodes, and the check whether they work. Pure: commands out.

A box has up to two feeds, each a shovel from a queue of its own on a *different* core node. Two
signs show whether a feed works. The first is the shovel's own state. If it hasn't been "running"
for :data:`SILENT_AFTER`, the feed moves to a core node that no other feed uses, if any. The second
is the arrivals: routers' ticks and keepers' canaries, several a second. A shovel that is "running"
and delivers none is recreated, with back-off, since perhaps nobody sends any. If the other feed
delivers some, the feed is moved after two restarts.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from newsfabric.brokers.watch import Watched
from newsfabric.topology import box_sources

# Seconds. A shovel retries each second; a core node that restarts is back in about ten.
SILENT_AFTER: Final = 15.0
# Seconds. Routers tick each second. The box isn't ready without any arrivals for this long.
ARRIVALS_WITHIN: Final = 5.0
# Restarts without effect before a feed whose shovel runs is moved.
RESTARTS_BEFORE_MOVE: Final = 2
# Seconds between two checks; after a longer time the agent must have been stopped.
_PAUSED: Final = 5.0
# More regions than a fabric has.
_MAX_ORIGINS: Final = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """A command: feed ``n`` comes from the core node at ``url`` from now on."""

    n: int
    url: str


@dataclasses.dataclass(frozen=True, slots=True)
class Restart:
    """A command: recreate the shovel of feed ``n``."""

    n: int


Command = Move | Restart


def feed_name(n: int) -> str:
    """Return the name of the shovel of feed ``n`` (1, 2) on its box's broker."""
    return f"postoffice.{n}"


class Arrivals:
    """The times of the last arrivals, by feed and by region, in seconds."""

    def __init__(self) -> None:
        self._through: dict[str, float] = {}
        self._of: dict[str, float] = {}

    def note_arrival(self, shovel: str, origin: str, now: float) -> None:
        """Note that a tick or canary of region ``origin`` arrived by ``shovel`` at ``now``."""
        self._through[shovel] = now
        if origin in self._of or len(self._of) < _MAX_ORIGINS:
            self._of[origin] = now

    def moving(self, now: float) -> bool:
        """Return whether anything, of any region, arrived lately by any feed."""
        return any(now - at <= ARRIVALS_WITHIN for at in self._through.values())

    def through(self, shovel: str) -> float | None:
        """Return the time of the last arrival by ``shovel``; None if there was none."""
        return self._through.get(shovel)

    def ages(self, now: float) -> Mapping[str, float]:
        """Return region → seconds since the last arrival from it."""
        return {origin: now - at for origin, at in self._of.items()}


@dataclasses.dataclass(slots=True)
class _Feed:
    url: str
    good_at: float
    running: bool = False
    watched: Watched = dataclasses.field(default_factory=Watched)


class Feeds:
    """The feeds of one box; numbered from 1, like their shovels and queues."""

    def __init__(
        self, box: str, cores: Sequence[str], now: float, rng: random.Random | None = None
    ) -> None:
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._cores = tuple(cores)
        self._looked_at = now
        self._feeds = {n: _Feed(url, now) for n, url in enumerate(box_sources(box, cores), 1)}

    @property
    def urls(self) -> dict[int, str]:
        """The core node of each feed."""
        return {n: feed.url for n, feed in self._feeds.items()}

    def check_feeds(
        self, running: frozenset[int], arrived: Mapping[int, float], now: float
    ) -> list[Command]:
        """Check the feeds, once a second; return the commands to carry out.

        ``running``: feeds whose shovels are in that state; ``arrived``: time of the last arrival by
        each.
        """
        # An agent that was stopped for a while has missed the arrivals meanwhile.
        slept = now - self._looked_at > _PAUSED
        self._looked_at = now
        for n, feed in self._feeds.items():
            feed.running = n in running
            if slept or not feed.running:
                feed.watched.renewed()
            if feed.running:
                feed.good_at = now
                feed.watched.sent(now)
            if n in arrived and arrived[n] > (now - ARRIVALS_WITHIN):
                feed.watched.arrived(arrived[n], now)
        return [*self._moves(now), *self._restarts(now)]

    def feeds_document(self, now: float) -> list[dict[str, Any]]:
        """Return the feeds' part of ``/canaries``."""
        return [
            watched_document(feed_name(n), feed.watched, now) for n, feed in self._feeds.items()
        ]

    def _moves(self, now: float) -> list[Command]:
        moves: list[Command] = []
        for n, feed in self._feeds.items():
            if now - feed.good_at > SILENT_AFTER:
                feed.good_at = now
                moves += self._move(n)
        return moves

    def _move(self, n: int) -> list[Command]:
        feed = self._feeds[n]
        url = self._spare(feed.url)
        if url is None:
            return []
        feed.url = url
        feed.watched = Watched()
        return [Move(n, url)]

    def _spare(self, url: str) -> str | None:
        """Return the next core node after ``url`` without a feed: two from one prove nothing."""
        start = self._cores.index(url)
        used = {feed.url for feed in self._feeds.values()}
        ring = (*self._cores[start:], *self._cores[:start])
        return next((core for core in ring if core not in used), None)

    def _restarts(self, now: float) -> list[Command]:
        commands: list[Command] = []
        some_bring = any(feed.watched.fresh(now) for feed in self._feeds.values())
        for n, feed in self._feeds.items():
            if not feed.running or not feed.watched.distrust(now, self._rng):
                continue
            hopeless = some_bring and feed.watched.restarts > RESTARTS_BEFORE_MOVE
            commands += (self._move(n) if hopeless else []) or [Restart(n)]
        return commands


def watched_document(name: str, watched: Watched, now: float) -> dict[str, Any]:
    """Return the part of ``/canaries`` for one shovel."""
    age = watched.age(now)
    return {
        "name": name,
        "canary_age_ms": None if age is None else round(age * 1000),
        "restarts": watched.restarts,
    }
