"""A frontdesk in its region: links, load reports, receipts, HTTP, drain."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import time
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tornado.httpserver import HTTPServer

from newsfabric import topology
from newsfabric.amqp import Consumer, Link, Links
from newsfabric.amqp.message import Delivery
from newsfabric.amqp.spread import SKIPPED, cancel_all
from newsfabric.http.networks import Network, OtherMachines, Places
from newsfabric.http.pace import HISTORY_RATE, Rate
from newsfabric.line_limits import LineLimit
from newsfabric.messages import control, reports
from newsfabric.messages.envelope import DEFAULT_LIMITS, MessageLimits
from newsfabric.messages.reports import Report
from newsfabric.process.figures import ProcessFigures, Wanted
from newsfabric.process.operators import OperatorsApplication
from newsfabric.process.reporting import Reporting, Speaker
from newsfabric.process.service import (
    DocumentHandler,
    Readiness,
    health_routes,
    listen,
    operators_routes,
    up,
)
from newsfabric.process.version import version
from newsfabric.settings import Fabric, ServerFiles
from newsfabric.store import Store
from newsfabric.tls import CERTIFICATES_END
from newsfabric.tokens.bearer import check_private
from newsfabric.topics import TopicTable
from newsfabric.topology import Bounds
from newsfabric.topology.roles import user_name
from wholesale.common.http import ClientRateLimit, NotFoundHandler, application
from wholesale.common.own_queue import consume_own
from wholesale.frontdesk.api import counters, openapi
from wholesale.frontdesk.api.access import ApiKey, PublishAccess, check_exposure, is_loopback
from wholesale.frontdesk.api.answers import EndpointsReply
from wholesale.frontdesk.api.awaiting import Receipts
from wholesale.frontdesk.api.catching_up import HistoryProxy
from wholesale.frontdesk.api.handlers import (
    EndpointsHandler,
    HistoryHandler,
    PublishHandler,
)
from wholesale.frontdesk.api.repeats import Repeats
from wholesale.frontdesk.board.board import Board
from wholesale.frontdesk.board.board_access import BoardAccess, BoardSettings, read_board_keys
from wholesale.frontdesk.board.board_handlers import board_routes
from wholesale.frontdesk.board.picture import FrontdeskPlace
from wholesale.frontdesk.pages.handlers import page_routes
from wholesale.frontdesk.presence.boxes import Boxes
from wholesale.frontdesk.presence.presence import login_of

logger = logging.getLogger(__name__)

_LOOPBACK: Final = "127.0.0.1"
_OF_HTTP: Final = ("http://", "https://")
_OF_WEBSOCKETS: Final = ("ws://", "wss://")
# Old reports are useless, so these queues keep few of them, and briefly.
_BOUNDS: Final = Bounds(max_length=5000, max_bytes=4 << 20, message_ttl_ms=5000)
# Reports for the board are larger, and have a queue of their own: they never displace load reports,
# by which readers are sent to boxes. A thousand boxes send some 3 MB a second.
_REPORT_BOUNDS: Final = Bounds(max_length=5000, max_bytes=16 << 20, message_ttl_ms=5000)
# The figures of a frontdesk that the operations board shows.
FIGURES: Final = (
    Wanted(counters.LOAD_REPORTS, "outcome"),
    Wanted(counters.REPORTS, "outcome"),
    Wanted(counters.BOXES),
    Wanted(counters.ENDPOINTS, "gateways"),
    Wanted(counters.PUBLISHED, "status"),
    Wanted(counters.PUBLISH_SECONDS),
    Wanted(counters.BOARD_STREAMS),
    Wanted(SKIPPED, "node"),
    Wanted(CERTIFICATES_END, "use"),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FrontdeskSettings:
    """The settings of one frontdesk. ``port`` 0 takes a free one; no ``api_keys``: none is needed.

    One address may have ``per_address`` connections (0: any number), and request ``history`` at
    ``history_rate``. Balancers in the networks ``proxy_from`` are trusted to name a client's
    address. Metrics are on ``admin_port`` of loopback (None: nowhere), requested by an address or
    one of ``admin_hosts``. ``login`` is its user at the brokers, as which it vouches for publishers
    with an API key. Boxes with URLs outside ``gateways_at`` are ignored. None: the URLs may lead to
    any other machine, and to this one if ``host`` is of loopback. With ``tls`` ``port`` is https.
    For requests to other regions' frontdesks ``authorities`` are trusted, beside those of this
    machine. The ``board`` is for operators who log in, or on loopback for everybody there; other
    regions' frontdesks see this region's part of it. A request waits ``receipt_seconds`` for its
    receipt, at most ``max_pending`` at a time, and ``drain_seconds`` once the frontdesk is ordered
    to stop.
    """

    name: str
    region: str
    host: str = "127.0.0.1"
    port: int = 0
    tls: ServerFiles | None = None
    authorities: Path | None = None
    admin_port: int | None = None
    admin_hosts: tuple[str, ...] = ()
    per_address: int = 0
    history_rate: Rate = HISTORY_RATE
    api_keys: tuple[ApiKey, ...] = ()
    login: str | None = None
    proxy_from: tuple[Network, ...] = ()
    gateways_at: Places | None = None
    drain_seconds: float = 5.0
    receipt_seconds: float = 5.0
    max_pending: int = 1000
    board: BoardSettings = dataclasses.field(default_factory=BoardSettings)
    limits: MessageLimits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        check_exposure(self.host, self.api_keys)


class FrontdeskService:
    """A running frontdesk over ``core``, ``client`` and ``store``.

    ``core`` are links to the core's brokers. ``client`` has a link to each client broker, and these
    are closed here.
    """

    def __init__(
        self,
        settings: FrontdeskSettings,
        *,
        fabric: Fabric,
        topics: TopicTable,
        core: Links,
        client: Sequence[Link],
        store: Store,
    ) -> None:
        self.settings = settings
        unlisted = OtherMachines(loopback=is_loopback(settings.host))
        self._gateways_at = settings.gateways_at or unlisted
        # Set as soon as ``port`` is known and accepts connections.
        self.listening = asyncio.Event()
        self.port = 0
        self.admin_port = 0
        self._endpoints = EndpointsReply(settings.region, fabric.others(settings.region))
        self._topics = topics
        self._core = core
        self._client = client
        self._store = store
        self.boxes = Boxes(settings.region)
        self._forged = LineLimit()
        self._catching_up = HistoryProxy(None if settings.gateways_at else unlisted)
        self._history_pace = ClientRateLimit(settings.history_rate, settings.proxy_from)
        self._draining = False
        self._board = self._make_board(fabric)
        self._board_access = BoardAccess(
            settings.board,
            loopback=is_loopback(settings.host),
            names=settings.admin_hosts,
            clock=time.time,
        )
        self._reporting = Reporting(
            Speaker(
                kind="frontdesk", name=settings.name, region=settings.region, login=settings.login
            ),
            figures=ProcessFigures(FIGURES),
            readiness=self.readiness,
            draining=lambda: self._draining,
            outcomes=counters.OWN_REPORTS,
            on_report=self._take_own_report,
        )

    def readiness(self) -> Readiness:
        """Return whether it can reply, and if not, the conditions that it waits for.

        The store isn't among them: without it only history is missing.
        """
        return Readiness.of(
            core=self._core.established,
            client=any(link.established for link in self._client),
            not_draining=not self._draining,
        )

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set, then finish the requests under way."""
        # Errors in the file are reported at the start, not at the first request.
        await read_board_keys(self.settings.board.key_file)
        receipts = await Receipts.over(
            self._client,
            name=self.settings.name,
            most=self.settings.max_pending,
            seconds=self.settings.receipt_seconds,
        )
        consumers = [*await self._watch_boxes(), *await self._watch_reports()]
        if self._board_access.keys is not None:
            await self._board_access.keys.start()
        pages = application(self._routes(receipts))
        settings = self.settings
        server, self.port = listen(
            pages,
            host=settings.host,
            port=settings.port,
            tls=settings.tls,
            per_address=settings.per_address,
        )
        admin = self._listen_for_operators()
        self.listening.set()
        up()
        try:
            async with asyncio.TaskGroup() as tasks:
                beside = [tasks.create_task(work) for work in self._beside()]
                await stop.wait()
                self._draining = True
                server.stop()
                await self._finish(receipts)
                for task in beside:
                    task.cancel()
        finally:
            server.stop()
            await server.close_all_connections()
            if admin is not None:
                admin.stop()
                await admin.close_all_connections()
            await cancel_all(consumers)
            await receipts.close()
            if self._board_access.keys is not None:
                await self._board_access.keys.close()
            self._catching_up.close()

    def _beside(self) -> Iterator[Coroutine[Any, Any, None]]:
        yield self._board.run()
        yield self._reporting.run(self._core)
        if self._board_access.keys is not None:
            yield self._board_access.keys.keep_fresh()

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
            "topics": self._topics,
            "access": PublishAccess(self.settings.api_keys),
            "limits": self.settings.limits,
            "draining": lambda: self._draining,
            "login": self.settings.login,
        }
        keys = bool(self.settings.api_keys)
        described = functools.partial(openapi.openapi_document, self.settings.limits, keys=keys)
        endpoints = {"boxes": self.boxes, "endpoints": self._endpoints}
        history = {
            "store": self._store,
            "topics": self._topics,
            "boxes": self.boxes,
            "catching_up": self._catching_up,
            # Anybody may send requests while the store is away.
            "failing": LineLimit(),
            "pace": self._history_pace,
        }
        return [
            (r"/endpoints\.json", EndpointsHandler, endpoints),
            (r"/publish", PublishHandler, publish),
            (r"/history", HistoryHandler, history),
            (r"/openapi\.json", DocumentHandler, {"document": described}),
            *health_routes(self.readiness),
            *board_routes(self._board, self._board_access, self.settings.proxy_from),
            *page_routes(),
        ]

    async def _watch_boxes(self) -> list[Consumer]:
        return await consume_own(
            self._core,
            self._take_report,
            exchange=topology.UPSTREAM,
            key=control.load_key(self.settings.region, "*"),
            bounds=_BOUNDS,
        )

    async def _watch_reports(self) -> list[Consumer]:
        return await consume_own(
            self._core,
            self._take_seen,
            exchange=topology.UPSTREAM,
            key=reports.report_key(self.settings.region, "*"),
            bounds=_REPORT_BOUNDS,
        )

    def _take_report(self, delivery: Delivery) -> None:
        try:
            report = control.decode_load(delivery.message)
        except ValueError as exc:
            counters.REPORT_BAD.inc()
            logger.debug("no load report: %s", exc)
            return
        # A broker has validated the box's user_id; the rest is only claimed. (So is the routing
        # key: RabbitMQ's topic permissions don't apply to messages that a queue dead-letters.)
        sender = delivery.message.properties.user_id
        if sender != user_name("box", report.box):
            counters.REPORT_FORGED.inc()
            self._log_forged(report.box, sender)
            return
        if not self._is_placed(report):
            counters.REPORT_MISPLACED.inc()
            return
        now = time.monotonic()
        taken = self.boxes.report(report, now=now)
        (counters.REPORT_TAKEN if taken else counters.REPORT_IGNORED).inc()
        if taken:
            self._board.picture.load(report, now)

    def _is_placed(self, report: control.LoadReport) -> bool:
        """Return whether readers may be sent to the URLs that the box reports."""
        urls = (
            (report.sockjs_url, _OF_HTTP),
            (report.websocket_url, _OF_WEBSOCKETS),
            (report.sse_url, _OF_HTTP),
        )
        # A gateway that is away has no URLs.
        return all(
            url == "" or (url.lower().startswith(schemes) and self._gateways_at.allow(url))
            for url, schemes in urls
        )

    def _log_forged(self, box: str, sender: str | None) -> None:
        suppressed = self._forged.may_log(time.monotonic())
        if suppressed is not None:
            text = "rejected a load report of %.80r from user %.80r (and %d more)"
            logger.warning(text, box, sender, suppressed)

    def _take_seen(self, delivery: Delivery) -> None:
        try:
            report = reports.decode_report(delivery.message)
        except ValueError as exc:
            counters.SEEN_BAD.inc()
            logger.debug("no report: %s", exc)
            return
        if delivery.message.properties.user_id != login_of(report):
            counters.SEEN_FORGED.inc()
        elif self._is_own(report):
            # The frontdesk's own report, which _hear_itself has taken already.
            pass
        elif self._board.picture.report(report, time.monotonic()):
            counters.SEEN_TAKEN.inc()
        else:
            counters.SEEN_IGNORED.inc()

    def _take_own_report(self, report: Report) -> None:
        """Take its own report directly: it is present, even while the core is away."""
        self._board.picture.report(report, time.monotonic())

    def _is_own(self, report: Report) -> bool:
        own = self._reporting.speaker
        return (report.kind, report.name, report.region) == (own.kind, own.name, own.region)

    def _make_board(self, fabric: Fabric) -> Board:
        settings = self.settings
        own = fabric.region(settings.region)
        place = FrontdeskPlace(
            frontdesk=settings.name,
            region=settings.region,
            version=version(),
            frontdesk_url=own.frontdesk_url,
            planned={
                f"{own.name}/client": [node.name for node in own.client],
                f"{own.name}/core": [node.name for node in own.core],
            },
            others={other.name: other.frontdesk_url for other in fabric.others(own.name)},
        )
        if settings.board.key_file is not None and not settings.board.token_over_http:
            check_private(place.others.values())
        return Board(
            place,
            reaches=lambda: (
                self._core.connected,
                any(link.connected for link in self._client),
            ),
            key_file=settings.board.key_file,
            authorities=self.settings.authorities,
        )

    async def _finish(self, receipts: Receipts) -> None:
        try:
            async with asyncio.timeout(self.settings.drain_seconds):
                await receipts.idle()
        except TimeoutError:
            logger.warning(
                "%s stops with %d requests unanswered", self.settings.name, receipts.pending
            )
