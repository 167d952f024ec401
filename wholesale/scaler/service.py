"""A scaler in its region: receives load reports on the core, decides each second, and acts.

Two or more run in a region, and none leads (wholesale.scaler.deciding). A scaler without a link to
the core decides nothing, and reports that.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from typing import Any, Final

from newsfabric import topology
from newsfabric.amqp import ConfirmingPublisher, Links
from newsfabric.amqp.message import Delivery
from newsfabric.amqp.spread import cancel_all
from newsfabric.errors import LinkError
from newsfabric.messages import control
from newsfabric.messages.control import DrainOrder, encode_drain
from newsfabric.process.figures import ProcessFigures
from newsfabric.process.operators import OperatorsApplication
from newsfabric.process.reporting import Reporting, Speaker
from newsfabric.process.service import DocumentHandler, Readiness, operators_routes, serving, up
from newsfabric.settings import ServerFiles
from newsfabric.topology import Bounds
from newsfabric.topology.roles import user_name
from wholesale.common.http import NotFoundHandler
from wholesale.common.own_queue import consume_own
from wholesale.scaler import counters
from wholesale.scaler.acting import Acting
from wholesale.scaler.choice import Decision
from wholesale.scaler.deciding import Scaler, counts
from wholesale.scaler.drivers import Driver
from wholesale.scaler.drivers.cloudwatch import MetricsSink
from wholesale.scaler.plan import ScalingPlan

logger = logging.getLogger(__name__)

EVERY: Final = 1.0
# Of a thousand boxes, for five seconds. Older reports are useless.
_BOUNDS: Final = Bounds(max_length=5000, max_bytes=4 << 20, message_ttl_ms=5000)
_KINDS: Final = ("ready", "booting", "unready", "leaving", "silent", "unknown", "failed")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScalerSettings:
    """The settings of one scaler. ``port`` 0 takes a free one; ``driver`` is its name, for people.

    With ``tls`` the port is https. ``login`` is its user name at the brokers, by which frontdesks
    recognise its reports.
    """

    name: str
    region: str
    login: str | None = None
    driver: str = "none"
    host: str = "127.0.0.1"
    port: int = 0
    tls: ServerFiles | None = None
    admin_hosts: tuple[str, ...] = ()
    plan: ScalingPlan = dataclasses.field(default_factory=ScalingPlan)


class ScalerService:
    """A running scaler over ``core``, links to its core, and ``driver``; the caller owns both."""

    def __init__(
        self,
        settings: ScalerSettings,
        *,
        core: Links,
        driver: Driver,
        watching: MetricsSink | None = None,
    ) -> None:
        self.settings = settings
        # Set as soon as ``port`` is known and accepts connections.
        self.listening = asyncio.Event()
        self.port = 0
        self.scaler = Scaler(settings.region, settings.plan)
        self.acting = Acting(driver, self._take_list, time.monotonic)
        self._core = core
        self._metrics_sink = watching
        self._decided = False
        self._draining = False
        self._reporting = Reporting(
            Speaker(
                kind="scaler", name=settings.name, region=settings.region, login=settings.login
            ),
            figures=ProcessFigures(counters.FIGURES),
            readiness=self.readiness,
            draining=lambda: self._draining,
            outcomes=counters.REPORTS,
        )

    def readiness(self) -> Readiness:
        """Return whether it receives reports and decides; a failing driver doesn't matter."""
        return Readiness.of(
            core=self._core.connected, decided=self._decided, not_draining=not self._draining
        )

    def scale_document(self) -> dict[str, Any]:
        """Return the reply to ``GET /scale``."""
        plan = dataclasses.asdict(self.settings.plan)
        return {
            "scaler": self.settings.name,
            "region": self.settings.region,
            "now_ms": time.time_ns() // 1_000_000,
            "plan": plan,
            **self.scaler.decision_document(),
            "driver": {"name": self.settings.driver, **self.acting.driver_document()},
        }

    async def serve(self, stop: asyncio.Event) -> None:
        """Decide and act until ``stop`` is set."""
        settings = self.settings
        pages = OperatorsApplication(
            [
                (r"/scale", DocumentHandler, {"document": self.scale_document}),
                *operators_routes(self.readiness),
            ],
            names=settings.admin_hosts,
            default_handler_class=NotFoundHandler,
        )
        at = serving(pages, host=settings.host, port=settings.port, tls=settings.tls)
        async with at as self.port:
            self.listening.set()
            up()
            await self._work(stop)

    async def _work(self, stop: asyncio.Event) -> None:
        reports = await consume_own(
            self._core,
            self._take_report,
            exchange=topology.UPSTREAM,
            key=control.load_key(self.settings.region, "*"),
            bounds=_BOUNDS,
        )
        orders = await self._core.publisher(in_flight=100)
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(self._decide_on(orders), name="decide"),
                    tasks.create_task(self.acting.run(), name="act"),
                    tasks.create_task(self._reporting.run(self._core), name="reports"),
                ]
                if self._metrics_sink is not None:
                    running.append(tasks.create_task(self._metrics_sink.run(self.scale_document)))
                await stop.wait()
                self._draining = True
                for task in running:
                    task.cancel()
        finally:
            await cancel_all(reports)

    async def _decide_on(self, orders: ConfirmingPublisher) -> None:
        while True:
            began = time.monotonic()
            decision = self.decide(began)
            if decision is not None:
                await self._order(orders, decision.drain)
            await asyncio.sleep(max(0.0, EVERY - (time.monotonic() - began)))

    def decide(self, now: float) -> Decision | None:
        """Make a decision and pass it to the driver; None while no reports can arrive."""
        if not self._core.connected:
            self.scaler.disconnected()
            self._decided = False
            return None
        with counters.DECIDE_SECONDS.time():
            decision = self.scaler.decide(now=now, driver_well=self.acting.well)
        self._decided = True
        self.acting.decided(decision)
        self._count(decision)
        return decision

    async def _order(self, orders: ConfirmingPublisher, boxes: tuple[str, ...]) -> None:
        # All at once: a core in alarm accepts none of them, and decisions must continue.
        await asyncio.gather(*(self._order_one(orders, box) for box in boxes))

    async def _order_one(self, orders: ConfirmingPublisher, box: str) -> None:
        order = DrainOrder(
            region=self.settings.region,
            box=box,
            by=self.settings.name,
            sent_ms=time.time_ns() // 1_000_000,
        )
        try:
            async with asyncio.timeout(EVERY):
                message = encode_drain(order, user_id=self.settings.login)
                await orders.publish(topology.ORDERS, message)
        except (LinkError, TimeoutError) as exc:
            # The order is repeated in a few seconds, until the box obeys.
            counters.DRAINS.labels("failed").inc()
            logger.info("drain of %s: %s", box, str(exc) or "the core doesn't take it")
        else:
            counters.DRAINS.labels("sent").inc()
            logger.info("ordered %s to drain", box)

    # --- input ----------------------------------------------------------------------------

    def _take_report(self, delivery: Delivery) -> None:
        try:
            report = control.decode_load(delivery.message)
        except ValueError as exc:
            counters.REPORT_BAD.inc()
            logger.debug("no load report: %s", exc)
            return
        # As in a frontdesk: a broker has validated the box's user_id, and nothing else.
        if delivery.message.properties.user_id != user_name("box", report.box):
            counters.REPORT_FORGED.inc()
            return
        taken = self.scaler.note_report(report, now=time.monotonic())
        (counters.REPORT_TAKEN if taken else counters.REPORT_IGNORED).inc()

    def _take_list(self, instances: Any) -> None:
        self.scaler.listed(instances, now=time.monotonic())

    def _count(self, decision: Decision) -> None:
        view = self.scaler.view
        assert view is not None
        counters.WANTED.set(decision.wanted)
        counters.SUPPLY.set(decision.supply)
        counters.REFUSED.set(decision.refused)
        counters.READERS.set(view.now_needed.readers)
        counters.MISSING.set(view.now_needed.missing)
        counters.GROWTH.set(view.now_needed.growth)
        found = counts(view)
        for kind in _KINDS:
            counters.BOXES.labels(kind).set(found.get(kind, 0))
