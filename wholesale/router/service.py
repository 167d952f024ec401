"""A router on its region's core brokers."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Final

from newsfabric.amqp import Links
from newsfabric.messages.envelope import DEFAULT_LIMITS, MessageLimits
from newsfabric.process.figures import ProcessFigures
from newsfabric.process.reporting import Reporting, Speaker
from newsfabric.process.service import Readiness
from newsfabric.store import Store
from newsfabric.store.logs import Log
from newsfabric.topics import TopicTable
from newsfabric.tracing.races import Races
from wholesale.common.core_service import CoreService, CoreSettings
from wholesale.router import counters
from wholesale.router.router import Router
from wholesale.router.trace_answers import trace_routes
from wholesale.router.traffic import Traffic
from wholesale.router.waiting import BRONZE_ROOM

# Unconfirmed publications for each broker, two for each message: nearly two batches, one under way
# and one to come.
IN_FLIGHT: Final = 1000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings(CoreSettings):
    """The settings of one router.

    Bronze is dropped while more than ``bronze_room`` messages are under way. That bound must be
    below ``prefetch``, or it would never be reached.
    """

    prefetch: int = 1000
    bronze_room: int = BRONZE_ROOM
    limits: MessageLimits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        if not 0 < self.bronze_room < self.prefetch:
            raise ValueError("bronze_room must be in 1..prefetch-1")


class RouterService(CoreService[Router]):
    """The service that routes publishers' messages."""

    def __init__(
        self,
        settings: RouterSettings,
        *,
        links: Links,
        taking: Links,
        store: Store,
        topics: TopicTable,
    ) -> None:
        super().__init__(settings, links=links, taking=taking, store=store)
        self.settings = settings
        self._topics = topics
        self._races = Races(counters.COPIES, counters.LEAD)
        self._traffic = Traffic()

    def readiness(self) -> Readiness:
        """Return readiness as every service does, with two more conditions.

        The clock must be right, and a broker must accept the publications.
        """
        found, work = super().readiness(), self._work
        if work is None:
            return found
        more = Readiness.of(publishing=work.gets_through, clock=work.clock_is_right)
        return Readiness(found.ready and more.ready, found.waiting_for + more.waiting_for)

    def _pages(self) -> list[Any]:
        return trace_routes(self.settings, self._races, self._store)

    def _make_reporting(self) -> Reporting:
        settings = self.settings
        return Reporting(
            Speaker(
                kind="router", name=settings.name, region=settings.region, login=settings.login
            ),
            figures=ProcessFigures(counters.FIGURES),
            readiness=self.readiness,
            draining=lambda: self.draining,
            more=self._busiest,
            outcomes=counters.REPORTS,
        )

    async def _busiest(self) -> dict[str, Any]:
        return self._traffic.top(time.monotonic())

    async def _make_work(self) -> Router:
        return Router(
            Log(self.settings.region, self.settings.name, 0),
            topics=self._topics,
            store=self._store,
            routes=await self._links.publisher(in_flight=IN_FLIGHT),
            answers=await self._links.publisher(in_flight=IN_FLIGHT),
            limits=self.settings.limits,
            races=self._races,
            traffic=self._traffic,
            bronze_room=self.settings.bronze_room,
        )

    async def _may_take(self, work: Router) -> None:
        await work.may_take()

    async def _must_pause(self, work: Router) -> None:
        await work.must_pause()

    def _pause(self, work: Router) -> None:
        work.pause()

    async def _end(self, work: Router) -> None:
        await work.tick()
        await work.end_log()
