"""A service on its region's core brokers: pages, links, queues, readiness, drain.

What it does with deliveries is its :class:`Work`; this feeds it and lets it finish. Services of a
kind compete on the same queues. What one has not acknowledged when it dies the broker gives to
another, so nothing is handed over and there is no leader.

It consumes each of its queues on each broker, and works as long as one of them does. Nothing waits
for a broker that is down or hangs.

It has two connections to each broker. One that has too little memory or disk reads nothing more
from a connection that publishes, acknowledgements included. So what it has is taken and answered by
another connection: routed by the other brokers, it goes, and there is room again.
"""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import functools
import itertools
import logging
from typing import Any, Final, Generic, Protocol, TypeVar

from newsfabric.amqp import Consumer, Links
from newsfabric.amqp.message import Delivery
from newsfabric.amqp.spread import cancel_all
from newsfabric.errors import StoreError
from newsfabric.process.operators import OperatorsApplication
from newsfabric.process.reporting import Reporting
from newsfabric.process.service import Readiness, operators_routes, serving, up
from newsfabric.settings import ServerFiles
from newsfabric.store import Store
from wholesale.common.failed import Failed
from wholesale.common.http import NotFoundHandler
from wholesale.common.source import QueueSource

logger = logging.getLogger(__name__)

_CHECK_SECONDS: Final = 2.0


class Work(Protocol):
    """What is done with the deliveries of some queues; each is acknowledged when it is done."""

    @property
    def store_answers(self) -> bool:
        """Whether the store does what it is needed for, as far as is known."""

    @property
    def under_way(self) -> int:
        """How much was taken and is neither done nor given up."""

    def take_delivery(self, source: QueueSource, delivery: Delivery) -> None:
        """Take ``delivery`` of ``source``. What it raises is a bug; see wholesale.common.failed."""

    async def run(self) -> None:
        """Work until cancelled."""

    async def settled(self) -> None:
        """Return when everything taken so far is done or given up."""


W = TypeVar("W", bound=Work)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CoreSettings:
    """How one service runs. ``prefetch`` is of each queue on each broker, and bounds all it holds.

    ``login`` is whom it logs in as: its reports say so.

    ``drain_seconds`` is how long it finishes what it has when told to stop; the rest goes to the
    others. ``port`` 0 takes a free one; it is asked by an address or one of ``admin_hosts``.
    With ``tls`` it is https.
    """

    name: str
    region: str
    queues: tuple[str, ...]
    login: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    tls: ServerFiles | None = None
    admin_hosts: tuple[str, ...] = ()
    prefetch: int
    drain_seconds: float = 5.0


class CoreService(abc.ABC, Generic[W]):
    """Runs one service, which publishes over ``links`` and takes deliveries over ``taking``.

    These and ``store`` belong to the caller.
    """

    def __init__(
        self, settings: CoreSettings, *, links: Links, taking: Links, store: Store
    ) -> None:
        # Set as soon as ``port`` is known and answers.
        self.listening = asyncio.Event()
        self.port = 0
        self._settings = settings
        self._links = links
        self._taking = taking
        self._store = store
        self._consumers: list[Consumer] = []
        self._store_checked = False
        self._draining = False
        self._work: W | None = None

    @abc.abstractmethod
    def _make_reporting(self) -> Reporting:
        """What tells operators how it is, each second."""

    @abc.abstractmethod
    async def _make_work(self) -> W:
        """The work; the brokers have what it needs."""

    def _pages(self) -> list[Any]:
        """Tornado routes besides those for its health."""
        return []

    async def _may_take(self, work: W) -> None:
        """Return when deliveries may come: at once, unless a service has a reason to wait."""

    async def _must_pause(self, work: W) -> None:
        """Return when none may come until :meth:`_may_take` returns; never, unless a service has a
        reason."""
        await asyncio.Event().wait()

    def _pause(self, work: W) -> None:
        """Nothing more comes: give back what can be given back."""

    async def _end(self, work: W) -> None:
        """Its last word, when ``work`` doesn't run any more."""

    def readiness(self) -> Readiness:
        """Whether it does its work, and otherwise what it waits for."""
        work = self._work
        return Readiness.of(
            link=self._links.established and self._taking.established,
            consuming=bool(self._consumers) and not self._draining,
            store=self._store_checked and work is not None and work.store_answers,
        )

    @property
    def draining(self) -> bool:
        """Whether it was told to stop."""
        return self._draining

    @property
    def under_way(self) -> int:
        """How much it has taken that is neither done nor given up."""
        return 0 if self._work is None else self._work.under_way

    async def serve(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set, then drain."""
        settings = self._settings
        pages = OperatorsApplication(
            [*operators_routes(self.readiness), *self._pages()],
            names=settings.admin_hosts,
            default_handler_class=NotFoundHandler,
        )
        at = serving(pages, host=settings.host, port=settings.port, tls=settings.tls)
        async with at as self.port:
            self.listening.set()
            up()
            work = self._work = await self._make_work()
            failed = Failed(await self._links.publisher(in_flight=1), name=settings.name)
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(work.run(), name="work"),
                    tasks.create_task(failed.run(), name="failed"),
                    tasks.create_task(self._watch_store(), name="store check"),
                    tasks.create_task(self._make_reporting().run(self._links), name="reports"),
                    tasks.create_task(self._consume(work, failed), name="consume"),
                ]
                await stop.wait()
                await self._drain(work)
                for task in running:
                    task.cancel()
            await self._end(work)

    async def _consume(self, work: W, failed: Failed) -> None:
        while True:
            await self._may_take(work)
            if self._draining:
                return
            await self._begin(work, failed)
            await self._must_pause(work)
            consumers, self._consumers = self._consumers, []
            await cancel_all(consumers)
            self._pause(work)

    async def _begin(self, work: W, failed: Failed) -> None:
        prefetch = self._settings.prefetch
        for queue, link in itertools.product(self._settings.queues, self._taking.members):
            source = QueueSource()
            take = functools.partial(_take, work, failed, source)
            consumer = await link.consumer(queue, take, prefetch=prefetch)
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

    async def _drain(self, work: W) -> None:
        self._draining = True
        try:
            async with asyncio.timeout(self._settings.drain_seconds):
                await cancel_all(self._consumers)
                await work.settled()
        except TimeoutError:
            logger.warning(
                "%s leaves %d deliveries to the others", self._settings.name, work.under_way
            )


def _take(work: Work, failed: Failed, source: QueueSource, delivery: Delivery) -> None:
    try:
        work.take_delivery(source, delivery)
    except Exception as exc:
        if not delivery.redelivered:
            raise
        failed.reject_later(source, delivery, exc)
