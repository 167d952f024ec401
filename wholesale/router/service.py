"""A router on its region's core cluster: link, queues, readiness, drain.

Routers of a region compete on the same queues. What one has not acknowledged when it dies the
broker gives to another, so nothing is handed over and there is no leader.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from contextlib import suppress
from typing import Final

from newsfabric import topology
from newsfabric.amqp import Consumer, Link
from newsfabric.envelope import DEFAULT_LIMITS, Limits
from newsfabric.errors import LinkError, StoreError
from newsfabric.races import Races
from newsfabric.service import Readiness, health_routes, listen
from newsfabric.store import Store
from newsfabric.topics import TopicTable
from wholesale.http import application
from wholesale.router import counters
from wholesale.router.router import Identity, Router, wall_clock_ms
from wholesale.router.tracing import trace_routes
from wholesale.router.waiting import BRONZE_ROOM

logger = logging.getLogger(__name__)

# Unconfirmed publications, two per message: those of two batches, one on its way and one to come.
IN_FLIGHT: Final = 1000
_CHECK_SECONDS: Final = 2.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings:
    """How one router runs. ``prefetch`` is per queue and bounds everything that it holds.

    Bronze is dropped while more than ``bronze_room`` messages are under way. That must be
    below ``prefetch``, or it would never be.

    ``drain_seconds`` is how long it finishes what it has when told to stop; the
    rest goes to the other routers. ``port`` 0 takes a free one.
    """

    name: str
    region: str
    queues: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 0
    prefetch: int = 1000
    bronze_room: int = BRONZE_ROOM
    drain_seconds: float = 5.0
    limits: Limits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        if not 0 < self.bronze_room < self.prefetch:
            raise ValueError("bronze_room must be in 1..prefetch-1")


class RouterService:
    """Runs one router over ``link`` and ``store``, which belong to the caller."""

    def __init__(
        self, settings: RouterSettings, *, link: Link, store: Store, topics: TopicTable
    ) -> None:
        self.settings = settings
        # Set as soon as ``port`` is known and answers.
        self.listening = asyncio.Event()
        self.port = 0
        self._link = link
        self._store = store
        self._topics = topics
        self._consumers: list[Consumer] = []
        self._store_checked = False
        self._draining = False
        self._router: Router | None = None
        self._races = Races(counters.COPIES, counters.LEAD)

    def readiness(self) -> Readiness:
        """Whether it routes what comes, and otherwise what it waits for."""
        router = self._router
        return Readiness.of(
            link=self._link.connected,
            consuming=bool(self._consumers) and not self._draining,
            store=self._store_checked and router is not None and router.store_answers,
        )

    async def serve(self, stop: asyncio.Event) -> None:
        """Route until ``stop`` is set, then drain."""
        settings = self.settings
        server, self.port = listen(
            application(
                [*health_routes(self.readiness), *trace_routes(settings, self._races, self._store)]
            ),
            host=settings.host,
            port=settings.port,
        )
        self.listening.set()
        try:
            router = self._router = await self._make_router()
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(router.run(), name="router"),
                    tasks.create_task(self._watch_store(), name="store check"),
                    tasks.create_task(self._consume(router), name="consume"),
                ]
                await stop.wait()
                await self._drain(router)
                for task in running:
                    task.cancel()
            router.give_up()
            await router.tick()
        finally:
            server.stop()
            await server.close_all_connections()

    async def _make_router(self) -> Router:
        await self._link.on_connect(topology.declare_core)
        identity = Identity(
            region=self.settings.region, name=self.settings.name, epoch=wall_clock_ms()
        )
        return Router(
            identity,
            topics=self._topics,
            store=self._store,
            routes=await self._link.publisher(in_flight=IN_FLIGHT),
            answers=await self._link.publisher(in_flight=IN_FLIGHT),
            limits=self.settings.limits,
            races=self._races,
            bronze_room=self.settings.bronze_room,
        )

    async def _consume(self, router: Router) -> None:
        for queue in self.settings.queues:
            source = router.source()
            consumer = await self._link.consumer(
                queue, functools.partial(router.offer, source), prefetch=self.settings.prefetch
            )
            source.attach(consumer)
            self._consumers.append(consumer)

    async def _watch_store(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_CHECK_SECONDS):
                    await self._store.check()
                self._store_checked = True
            except (StoreError, TimeoutError):
                self._store_checked = False
            await asyncio.sleep(_CHECK_SECONDS)

    async def _drain(self, router: Router) -> None:
        self._draining = True
        try:
            async with asyncio.timeout(self.settings.drain_seconds):
                for consumer in self._consumers:
                    with suppress(LinkError):
                        await consumer.cancel()
                await router.settled()
        except TimeoutError:
            logger.warning(
                "%s leaves %d messages to the other routers", self.settings.name, router.under_way
            )
