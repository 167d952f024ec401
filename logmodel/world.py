"""The world of one history: virtual time, and all the parts that live in it.

The same seed, profile and parts give the same history in every process: no code here iterates over
a set where the order could matter.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

from gateway.logs.known_log import KnownLog
from logmodel.book import Book
from logmodel.brokers import Brokers, Cuts
from logmodel.checks import check_end
from logmodel.gateway import ModelGateway
from logmodel.mishaps import play
from logmodel.parts import DESIGN, ModelParts
from logmodel.publishers import Publishers
from logmodel.readers import Ghost, ModelReader
from logmodel.router import ModelRouter
from logmodel.settings import DEFAULT, SMALLEST_WINDOW, TOPICS, WINDOW, Profile
from logmodel.stores import Stores

# Later than any age that is computed, so that no time is negative.
FIRST_SECOND = 1_000_000.0


_WITH_WINDOW: dict[tuple[type[KnownLog], int], type[KnownLog]] = {}


def with_window(known: type[KnownLog], window: int) -> type[KnownLog]:
    """Return ``known`` with this window. There is one class for each: a new class for each history
    makes CPython, and PyPy much more, discard its optimised code."""
    made = _WITH_WINDOW.get((known, window))
    if made is None:
        made = _WITH_WINDOW[known, window] = type("KnownLog", (known,), {"window": window})
    return made


class World:
    """Regions with stores, brokers, routers, gateways, publishers and readers."""

    def __init__(self, seed: int, profile: Profile, parts: ModelParts) -> None:
        self.rng = rng = random.Random(seed)
        self.profile = profile
        self.parts = parts
        self.now = FIRST_SECOND
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self.regions = ["A", "B", "C"][: profile.regions or (3 if seed % 5 == 4 else 2)]
        #: The limit of numbers under way above low.
        self.window = rng.randint(SMALLEST_WINDOW, WINDOW)
        #: The class of a gateway's knowledge of a log, with this window.
        self.known_log = with_window(parts.known, self.window)
        #: True while all is healed: nothing is lost any more.
        self.is_quiet = False
        #: The time at which the last row arrives that was sent before the healing.
        self.last_row_at = 0.0
        self.book = Book()
        self.cuts = Cuts(self)
        self.stores = Stores(self)
        self.brokers = Brokers(self)
        self.publishers = Publishers(self)
        self.ghosts: list[Ghost] = []
        self.routers: list[ModelRouter] = []
        for region in self.regions:
            self.begin_router(region, f"{region}1")
            self.begin_router(region, f"{region}2")
        if rng.random() < 0.3:
            # An operator starts a second router under a name that is taken.
            self.at(self.now + rng.uniform(0, 600), self.begin_router, "A", "A1")
        self.gateways: list[ModelGateway] = []
        for region in self.regions:
            self.begin_gateway(region)
        self.readers = [ModelReader(self, rng.choice(TOPICS[:2])) for _ in range(4)]

    def begin_router(self, region: str, name: str) -> None:
        self.routers.append(self.parts.router(self, region, name))

    def begin_gateway(self, region: str) -> None:
        self.gateways.append(self.parts.gateway(self, region))

    def at(self, when: float, step: Callable[..., None], *args: Any) -> None:
        """Call ``step`` at that time; steps of the same time run in the order of scheduling."""
        heapq.heappush(self._events, (when, next(self._order), step, args))

    def bring(self, when: float, step: Callable[..., None], *args: Any) -> None:
        """Schedule a step like :meth:`at`, for a row that is on its way to a store."""
        if not self.is_quiet:
            self.last_row_at = max(self.last_row_at, when)
        self.at(when, step, *args)

    def pause(self, shortest: float, longest: float, *, quiet: float) -> float:
        """Return a random pause of an activity that repeats.

        Most of a history is the time after the healing, when little happens: there the pause is
        about ``quiet`` seconds, only to make the history faster to play.
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


def history(seed: int, profile: Profile = DEFAULT, parts: ModelParts = DESIGN) -> Book:
    """Play one history; :class:`~logmodel.book.InvariantBroken` if it breaks an invariant."""
    world = World(seed, profile, parts)
    play(world)
    check_end(world)
    return world.book
