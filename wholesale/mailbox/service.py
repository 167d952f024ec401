"""A mailbox service on its region's core cluster: link, queues, readiness, drain."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from contextlib import suppress
from typing import Final

from newsfabric import topology
from newsfabric.amqp import Consumer, Link
from newsfabric.errors import LinkError, StoreError
from newsfabric.service import Readiness, health_routes, listen
from newsfabric.store import Store
from newsfabric.topics import TopicTable
from wholesale.http import application
from wholesale.mailbox.marking import MAX_BATCH, Marking
from wholesale.source import QueueSource

logger = logging.getLogger(__name__)

_CHECK_SECONDS: Final = 2.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MailboxSettings:
    """How one mailbox service runs. ``prefetch`` is per queue and bounds everything that it holds.

    ``drain_seconds`` is how long it finishes what it has when told to stop; the rest goes to the
    others. ``port`` 0 takes a free one.
    """

    name: str
    queues: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 0
    prefetch: int = 500
    drain_seconds: float = 5.0


class MailboxService:
    """Runs one mailbox service over ``link`` and ``store``, which belong to the caller."""

    def __init__(
        self, settings: MailboxSettings, *, link: Link, store: Store, topics: TopicTable
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
        self._marking: Marking | None = None

    def readiness(self) -> Readiness:
        """Whether it carries marks out, and otherwise what it waits for."""
        marking = self._marking
        return Readiness.of(
            link=self._link.connected,
            consuming=bool(self._consumers) and not self._draining,
            store=self._store_checked and marking is not None and marking.store_answers,
        )

    async def serve(self, stop: asyncio.Event) -> None:
        """Carry marks out until ``stop`` is set, then drain."""
        settings = self.settings
        server, self.port = listen(
            application(health_routes(self.readiness)), host=settings.host, port=settings.port
        )
        self.listening.set()
        try:
            await self._link.on_connect(topology.declare_core)
            # Of each mark its announcement and its note.
            publisher = await self._link.publisher(in_flight=2 * MAX_BATCH)
            marking = self._marking = Marking(
                store=self._store, topics=self._topics, publisher=publisher
            )
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(marking.run(), name="mailbox"),
                    tasks.create_task(self._watch_store(), name="store check"),
                    tasks.create_task(self._consume(marking), name="consume"),
                ]
                await stop.wait()
                await self._drain(marking)
                for task in running:
                    task.cancel()
        finally:
            server.stop()
            await server.close_all_connections()

    async def _consume(self, marking: Marking) -> None:
        for queue in self.settings.queues:
            source = QueueSource()
            consumer = await self._link.consumer(
                queue, functools.partial(marking.offer, source), prefetch=self.settings.prefetch
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

    async def _drain(self, marking: Marking) -> None:
        self._draining = True
        try:
            async with asyncio.timeout(self.settings.drain_seconds):
                for consumer in self._consumers:
                    with suppress(LinkError):
                        await consumer.cancel()
                await marking.settled()
        except TimeoutError:
            logger.warning(
                "%s leaves %d marks to the others", self.settings.name, marking.under_way
            )
