"""A frontdesk in its region: links, load reports, receipts, HTTP, drain."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import secrets
import time
from collections.abc import Callable
from typing import Any, Final

from tornado.httpserver import HTTPServer

from newsfabric import control, topology
from newsfabric.amqp import Consumer, Declare, Link
from newsfabric.amqp.message import Delivery
from newsfabric.envelope import DEFAULT_LIMITS, Limits
from newsfabric.networks import Network, Places
from newsfabric.operators import OperatorsApplication
from newsfabric.pace import HISTORY_RATE, Pace, Rate
from newsfabric.seldom import Seldom
from newsfabric.service import (
    DocumentHandler,
    Readiness,
    health_routes,
    listen,
    operators_routes,
)
from newsfabric.settings import Fabric
from newsfabric.store import Store
from newsfabric.topics import TopicTable
from newsfabric.topology import Bounds
from newsfabric.topology.roles import user_name
from wholesale.frontdesk import counters, openapi
from wholesale.frontdesk.access import ApiKey, PublishAccess, check_exposure
from wholesale.frontdesk.answers import Endpoints
from wholesale.frontdesk.awaiting import Receipts
from wholesale.frontdesk.boxes import Boxes
from wholesale.frontdesk.catching_up import CatchingUp
from wholesale.frontdesk.handlers import (
    EndpointsHandler,
    HistoryHandler,
    PublishHandler,
)
from wholesale.frontdesk.pages import page_routes
from wholesale.frontdesk.repeats import Repeats
from wholesale.http import NotFoundHandler, application
from wholesale.source import QueueSource

logger = logging.getLogger(__name__)

_LOOPBACK: Final = "127.0.0.1"
# Old reports and receipts are of no use to anyone, so these queues keep little and briefly.
_BOUNDS: Final = Bounds(max_length=5000, max_bytes=4 << 20, message_ttl_ms=5000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FrontdeskSettings:
    """How one frontdesk runs. ``port`` 0 takes a free one; without ``api_keys`` none is asked for.

    Metrics are on ``admin_port`` of loopback (None: nowhere), asked by an address or one of
    ``admin_hosts``. One address may ask for ``history`` at ``history_rate``; what balancers in the
    networks ``proxy_from`` say of whom they ask for is believed. ``login`` is the user that it logs
    in as, by which it vouches for those whose key it has seen. Boxes whose URLs lead elsewhere than
    to ``gateways_at`` are ignored (None: they may lead anywhere).
    A request waits ``receipt_seconds`` for its receipt, at most ``max_pending`` of them at
    a time, and ``drain_seconds`` once the frontdesk was told to stop.
    """

    name: str
    region: str
    host: str = "127.0.0.1"
    port: int = 0
    admin_port: int | None = None
    admin_hosts: tuple[str, ...] = ()
    history_rate: Rate = HISTORY_RATE
    api_keys: tuple[ApiKey, ...] = ()
    login: str | None = None
    proxy_from: tuple[Network, ...] = ()
    gateways_at: Places | None = None
    drain_seconds: float = 5.0
    receipt_seconds: float = 5.0
    max_pending: int = 1000
    limits: Limits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        check_exposure(self.host, self.api_keys)


class FrontdeskService:
    """Runs one frontdesk over ``core``, ``client`` (links to those clusters) and ``store``."""

    def __init__(
        self,
        settings: FrontdeskSettings,
        *,
        fabric: Fabric,
        topics: TopicTable,
        core: Link,
        client: Link,
        store: Store,
    ) -> None:
        self.settings = settings
        # Set as soon as ``port`` is known and answers.
        self.listening = asyncio.Event()
        self.port = 0
        self.admin_port = 0
        self._endpoints = Endpoints(settings.region, fabric.others(settings.region))
        self._topics = topics
        self._core = core
        self._client = client
        self._store = store
        self.boxes = Boxes(settings.region)
        self._catching_up = CatchingUp()
        self._history_pace = Pace(settings.history_rate)
        # Exclusive queues are this connection's own; the suffix keeps two processes apart.
        self._queue = f"{topology.FRONTDESK_QUEUES}{settings.name}.{secrets.token_hex(4)}"
        self._draining = False

    def readiness(self) -> Readiness:
        """Whether it can answer, and otherwise what it waits for.

        The store isn't asked for: without it there is no history, and everything else.
        """
        return Readiness.of(
            core=self._core.connected,
            client=self._client.connected,
            not_draining=not self._draining,
        )

    async def serve(self, stop: asyncio.Event) -> None:
        """Answer until ``stop`` is set, then finish what is under way."""
        receipts = await self._await_receipts()
        reports = await self._watch_boxes()
        pages = application(self._routes(receipts))
        server, self.port = listen(pages, host=self.settings.host, port=self.settings.port)
        admin = self._listen_for_operators()
        self.listening.set()
        try:
            await stop.wait()
            self._draining = True
            server.stop()
            await self._finish(receipts)
        finally:
            await server.close_all_connections()
            if admin is not None:
                admin.stop()
                await admin.close_all_connections()
            await reports.cancel()
            self._catching_up.close()

    def _listen_for_operators(self) -> HTTPServer | None:
        settings = self.settings
        if settings.admin_port is None:
            return None
        pages = OperatorsApplication(
            operators_routes(self.readiness),
            names=settings.admin_hosts,
            default_handler_class=NotFoundHandler,
        )
        server, self.admin_port = listen(pages, host=_LOOPBACK, port=settings.admin_port)
        return server

    def _routes(self, receipts: Receipts) -> list[Any]:
        publish = {
            "receipts": receipts,
            "repeats": Repeats(),
            "access": PublishAccess(self.settings.api_keys),
            "limits": self.settings.limits,
            "draining": lambda: self._draining,
            "login": self.settings.login,
        }
        keys = bool(self.settings.api_keys)
        described = functools.partial(openapi.document, self.settings.limits, keys=keys)
        endpoints = {"boxes": self.boxes, "endpoints": self._endpoints}
        history = {
            "store": self._store,
            "topics": self._topics,
            "boxes": self.boxes,
            "catching_up": self._catching_up,
            # Anybody may ask while the store is away.
            "failing": Seldom(),
            "pace": self._history_pace,
            "balancers": self.settings.proxy_from,
        }
        return [
            (r"/endpoints\.json", EndpointsHandler, endpoints),
            (r"/publish", PublishHandler, publish),
            (r"/history", HistoryHandler, history),
            (r"/openapi\.json", DocumentHandler, {"document": described}),
            *health_routes(self.readiness),
            *page_routes(),
        ]

    async def _await_receipts(self) -> Receipts:
        async def declare(broker: Declare) -> None:
            await self._own_queue(broker)
            await broker.bind(self._queue, topology.RECEIPTS, self._queue)

        await self._client.on_connect(declare)
        settings = self.settings
        receipts = Receipts(
            await self._client.publisher(in_flight=settings.max_pending),
            self._queue,
            most=settings.max_pending,
            timeout=settings.receipt_seconds,
        )
        await _consume(self._client, self._queue, receipts.take)
        return receipts

    async def _watch_boxes(self) -> Consumer:
        async def declare(broker: Declare) -> None:
            await self._own_queue(broker)
            key = control.load_key(self.settings.region, "*")
            await broker.bind(self._queue, topology.UPSTREAM, key)

        await self._core.on_connect(declare)
        return await _consume(self._core, self._queue, self._take_report)

    async def _own_queue(self, broker: Declare) -> None:
        await broker.queue(
            self._queue,
            durable=False,
            exclusive=True,
            auto_delete=True,
            arguments=_BOUNDS.arguments(),
        )

    def _take_report(self, delivery: Delivery) -> None:
        try:
            report = control.decode_load(delivery.message)
        except ValueError as exc:
            counters.REPORT_BAD.inc()
            logger.debug("no load report: %s", exc)
            return
        # A broker has checked whom the box logged in as; the rest is its own word. (The routing
        # key is too: RabbitMQ's topic permissions don't look at what a queue dead-letters.)
        if delivery.message.properties.user_id != user_name("box", report.box):
            counters.REPORT_FORGED.inc()
            return
        allowed = self.settings.gateways_at
        urls = (report.sockjs_url, report.websocket_url, report.sse_url)
        # A gateway that is away has none.
        if allowed is not None and not all(url == "" or allowed.allow(url) for url in urls):
            counters.REPORT_MISPLACED.inc()
            return
        taken = self.boxes.report(report, now=time.monotonic())
        (counters.REPORT_TAKEN if taken else counters.REPORT_IGNORED).inc()

    async def _finish(self, receipts: Receipts) -> None:
        try:
            async with asyncio.timeout(self.settings.drain_seconds):
                await receipts.idle()
        except TimeoutError:
            logger.warning("%s leaves %d requests", self.settings.name, receipts.pending)


async def _consume(link: Link, queue: str, take: Callable[[Delivery], None]) -> Consumer:
    """Consume ``queue``, each delivery acknowledged as soon as it was taken."""
    source = QueueSource()

    def on_delivery(delivery: Delivery) -> None:
        source.saw(delivery)
        take(delivery)
        source.ack(delivery)

    consumer = await link.consumer(queue, on_delivery)
    source.attach(consumer)
    return consumer
