"""One history's world: virtual time, and everything that lives in it.

The same seed, profile and parts are the same history, in every process: nothing here iterates over
a set where the order could matter.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

from gateway.known_log import KnownLog
from tests.logmodel.book import Book
from tests.logmodel.brokers import Brokers, Cuts
from tests.logmodel.checks import check_end
from tests.logmodel.gateway import Gateway
from tests.logmodel.mishaps import play
from tests.logmodel.parts import DESIGN, Parts
from tests.logmodel.publishers import Publishers
from tests.logmodel.readers import Ghost, Reader
from tests.logmodel.router import Router
from tests.logmodel.settings import DEFAULT, SMALLEST_WINDOW, TOPICS, WINDOW, Profile
from tests.logmodel.stores import Stores

# Later than any age that is reckoned with, so that no time is negative.
FIRST_SECOND = 1_000_000.0


_WITH_WINDOW: dict[tuple[type[KnownLog], int], type[KnownLog]] = {}


def with_window(known: type[KnownLog], window: int) -> type[KnownLog]:
    """``known`` with this window. One class for each: a new one for each history makes CPython,
    and PyPy much more, forget what it has optimised."""
    made = _WITH_WINDOW.get((known, window))
    if made is None:
        made = _WITH_WINDOW[known, window] = type("KnownLog", (known,), {"window": window})
    return made


class World:
    """Regions with stores, brokers, routers, gateways, publishers and readers."""

    def __init__(self, seed: int, profile: Profile, parts: Parts) -> None:
        self.rng = rng = random.Random(seed)
        self.profile = profile
        self.parts = parts
        self.now = FIRST_SECOND
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self.regions = ["A", "B", "C"][: profile.regions or (3 if seed % 5 == 4 else 2)]
        #: Numbers that may be under way above low.
        self.window = rng.randint(SMALLEST_WINDOW, WINDOW)
        #: What a gateway knows of a log, with this window.
        self.known_log = with_window(parts.known, self.window)
        #: Healed: nothing is lost any more.
        self.is_quiet = False
        #: When the last row comes that was sent before the healing.
        self.last_row_at = 0.0
        self.book = Book()
        self.cuts = Cuts(self)
        self.stores = Stores(self)
        self.brokers = Brokers(self)
        self.publishers = Publishers(self)
        self.ghosts: list[Ghost] = []
        self.routers: list[Router] = []
        for region in self.regions:
            self.begin_router(region, f"{region}1")
            self.begin_router(region, f"{region}2")
        if rng.random() < 0.3:
            # Somebody starts a second one under a name that is taken.
            self.at(self.now + rng.uniform(0, 600), self.begin_router, "A", "A1")
        self.gateways: list[Gateway] = []
        for region in self.regions:
            self.begin_gateway(region)
        self.readers = [Reader(self, rng.choice(TOPICS[:2])) for _ in range(4)]

    def begin_router(self, region: str, name: str) -> None:
        self.routers.append(self.parts.router(self, region, name))

    def begin_gateway(self, region: str) -> None:
        self.gateways.append(self.parts.gateway(self, region))

    def at(self, when: float, step: Callable[..., None], *args: Any) -> None:
        """Call ``step`` at that time. What is due at one time happens in the order of calls."""
        heapq.heappush(self._events, (when, next(self._order), step, args))

    def bring(self, when: float, step: Callable[..., None], *args: Any) -> None:
        """As :meth:`at`, of a row that is on its way to a store."""
        if not self.is_quiet:
            self.last_row_at = max(self.last_row_at, when)
        self.at(when, step, *args)

    def pause(self, shortest: float, longest: float, *, quiet: float) -> float:
        """A random pause of what happens again and again.

        Most of a history is the time after the healing, when little happens: there it is about
        ``quiet`` seconds, which is only so that histories take less time to play.
        """
        if self.is_quiet:
            return quiet * (0.7 + 0.6 * self.rng.random())
        return shortest + (longest - shortest) * self.rng.random()

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        events, until = self._events, self.now + seconds
        while events and events[0][0] <= until:
            self.now, _, step, args = heapq.heappop(events)
            step(*args)
        self.now = until


def history(seed: int, profile: Profile = DEFAULT, parts: Parts = DESIGN) -> Book:
    """Play one history; :class:`~tests.logmodel.book.InvariantBroken` if it breaks an invariant."""
    world = World(seed, profile, parts)
    play(world)
    check_end(world)
    return world.book
