"""A service on its region's core brokers: pages, links, queues, readiness, drain.

Its :class:`Work` handles the deliveries; this class supplies them and drains the work at the end.
Services of a kind compete on the same queues. Deliveries that a service has not acknowledged when
it dies are given to another one by the broker. So there is no handover and no leader. A service
that receives everything, as the scaler does, isn't one of these.

The service consumes each of its queues on each broker, and works as long as one broker does. It
never waits for a broker that is down or hangs.

It has two connections to each broker. A broker that is short of memory or disk reads nothing more
from a connection that publishes, not even acknowledgements. So a second connection consumes and
acknowledges: messages of a blocked broker are routed by the other brokers, which frees its memory.
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
    """The processing of some queues' deliveries; each is acknowledged when it is processed."""

    @property
    def store_answers(self) -> bool:
        """True if the store answered the last request that the work needed."""

    @property
    def under_way(self) -> int:
        """The number of deliveries taken that are neither done nor given up."""

    def take_delivery(self, source: QueueSource, delivery: Delivery) -> None:
        """Take ``delivery`` of ``source``. An exception is a bug; see wholesale.common.failed."""

    async def run(self) -> None:
        """Work until cancelled."""

    async def settled(self) -> None:
        """Return when all deliveries taken so far are done or given up."""


W = TypeVar("W", bound=Work)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CoreSettings:
    """The settings of one service.

    ``prefetch`` applies to each queue on each broker, and so bounds all deliveries that it holds.
    ``login`` is its user name at the brokers, which its reports state. ``drain_seconds`` is the
    time for unfinished deliveries after a stop; the others take the rest. ``port`` 0 takes a free
    one, requested by an address or one of ``admin_hosts``. With ``tls`` it is https.
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
    """A running service: it publishes over ``links`` and takes deliveries over ``taking``.

    The caller owns and closes these links and ``store``.
    """

    def __init__(
        self, settings: CoreSettings, *, links: Links, taking: Links, store: Store
    ) -> None:
        # Set as soon as ``port`` is known and accepts connections.
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
        """Return the reporting that sends the service's state to operators each second."""

    @abc.abstractmethod
    async def _make_work(self) -> W:
        """Return the work. The queues and exchanges that it needs exist on the brokers."""

    def _pages(self) -> list[Any]:
        """Return Tornado routes in addition to the health routes."""
        return []

    async def _may_take(self, work: W) -> None:
        """Return when consuming may begin: at once, unless a service has a reason to wait."""

    async def _must_pause(self, work: W) -> None:
        """Return when consuming must pause, until :meth:`_may_take` returns again.

        By default it never returns.
        """
        await asyncio.Event().wait()

    def _pause(self, work: W) -> None:
        """Give deliveries back after the consumers were cancelled, as far as possible."""

    async def _end(self, work: W) -> None:
        """Do the last steps of the service after ``work`` has stopped running."""

    def readiness(self) -> Readiness:
        """Return whether the service does its work, and if not, the conditions it waits for."""
        work = self._work
        return Readiness.of(
            link=self._links.established and self._taking.established,
            consuming=bool(self._consumers) and not self._draining,
            store=self._store_checked and work is not None and work.store_answers,
        )

    @property
    def draining(self) -> bool:
        """True if the service was ordered to stop."""
        return self._draining

    @property
    def under_way(self) -> int:
        """The number of deliveries that the service has taken and neither done nor given up."""
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
                "%s stops with %d deliveries unprocessed; the others take them",
                self._settings.name,
                work.under_way,
            )


def _take(work: Work, failed: Failed, source: QueueSource, delivery: Delivery) -> None:
    try:
        work.take_delivery(source, delivery)
    except Exception as exc:
        if not delivery.redelivered:
            raise
        failed.reject_later(source, delivery, exc)
