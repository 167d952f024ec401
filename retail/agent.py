"""The agent of a retail box: a thin shell around ``feed``, ``load`` and ``drain``.

Each second it checks its shovels, carries out the commands of :class:`~retail.feed.Feeds`, and
sends its gateway's load to the core. Only arrivals prove that a shovel moves messages. So it
consumes, on its own broker, routers' ticks, keepers' canaries, and its own reports, which return by
a feed. After a signal or an order of its region's scaler it goes through
:class:`~retail.drain.Drain`; its last report is that all readers are gone.

The box knows only the core nodes that it was given.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from newsfabric import metrics
from newsfabric.amqp import Declare, Delivery, Link, Message
from newsfabric.amqp.link import connect
from newsfabric.brokers.management import Management
from newsfabric.brokers.watch import Watched
from newsfabric.errors import LinkClosed, LinkError, ManagementError
from newsfabric.line_limits import RepeatedFailures
from newsfabric.messages.control import (
    canary_key,
    decode_canary,
    decode_drain,
    decode_load,
    decode_tick,
    drain_key,
    encode_load,
    is_canary,
    is_drain,
    is_load,
    load_key,
    tick_key,
)
from newsfabric.messages.hops import hops, last_hop
from newsfabric.messages.reports import MAX_REASONS, ShovelSeen
from newsfabric.process.figures import ProcessFigures, Wanted
from newsfabric.process.reporting import IN_FLIGHT, Reporting, Speaker
from newsfabric.process.service import Readiness
from newsfabric.settings import Credentials
from newsfabric.tls import CERTIFICATES_END
from newsfabric.topology import (
    POSTOFFICE,
    UPSTREAM,
    ShovelLink,
    box_upstream,
    declare_retail,
    mask,
)
from newsfabric.topology.roles import user_name
from retail.drain import Drain
from retail.ends import BoxShovels, CoreEnd, GatewayAdmin
from retail.feed import Arrivals, Command, Feeds, Move, Restart, feed_name, watched_document
from retail.load import AWAY, GatewayLoad, GatewayReport, box_state, emptied, report

logger = logging.getLogger(__name__)

EVERY: Final = 1.0
# A deleted shovel or queue is made again within so many checks.
KEEP_EVERY: Final = 5
# Seconds for all declarations of a check. A check of more than 5 s would count as a sleep of this
# process, and each feed would get its full time again (retail/feed.py).
KEEP_WITHIN: Final = 2.0
# Seconds for the last report to arrive at the core; the link is closed afterwards.
LAST_REPORT_TIMEOUT: Final = 5.0
# Seconds for the last part of a drain: shovels and two queues.
CLEAN_TIMEOUT: Final = 8.0

_UPSTREAM: Final = "upstream"
_FEED_NAMES: Final = frozenset(feed_name(n) for n in (1, 2))
TICK_QUEUE: Final = "agent.ticks"
# Only the newest tick matters, and the agent reads ticks at once.
_TICK_ARGUMENTS: Final = {"x-max-length": 100, "x-message-ttl": 5000}

TICKS: Final = metrics.counter("retail_ticks", "Ticks and canaries that arrived", ["shovel"])
COMMANDS: Final = metrics.counter("retail_feed_commands", "Feeds moved or restarted", ["command"])
REPORTS: Final = metrics.counter("retail_load_reports", "Load reports", ["outcome"])
FEEDS: Final = metrics.gauge("retail_running_feeds", "Feeds whose shovel reports that it runs")
DRAINS: Final = metrics.counter("retail_drain_orders", "Orders of scalers", ["outcome"])
BOX_REPORTS: Final = metrics.counter(
    "retail_reports", "Reports to frontdesks, by outcome", ["outcome"]
)
# The figures of an agent that the operations board shows, beside those of its gateway.
FIGURES: Final = (
    Wanted(TICKS, "shovel"),
    Wanted(COMMANDS, "command"),
    Wanted(REPORTS, "outcome"),
    Wanted(FEEDS),
    Wanted(DRAINS, "outcome"),
    Wanted(CERTIFICATES_END, "use"),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """The settings of an agent. URLs are without credentials."""

    box: str
    region: str
    cores: tuple[str, ...]
    broker: str
    management: str
    gateway_admin: str
    drain_timeout: float
    credentials: Credentials


class Agent:
    """The agent of one box; :meth:`run` it once."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._gateway = GatewayAdmin(settings.gateway_admin)
        self._management = Management(settings.management, settings.credentials, timeout=3.0)
        self._shovels = BoxShovels(self._management, settings.credentials)
        self._arrivals = Arrivals()
        # The way back: load reports that return from the core are its canaries.
        self._back = Watched()
        self._rng = random.Random()  # noqa: S311 - jitter, not a secret
        self._drain = Drain()
        self._link: Link | None = None
        self._running: frozenset[str] = frozenset()
        self._states: dict[str, str] = {}
        # The gateway's last reply (None: it doesn't reply), and its last load.
        self._load: GatewayLoad | None = None
        self._known = AWAY
        self._gateway_report: GatewayReport | None = None
        self._feeds: Feeds | None = None
        self._looks = 0
        self._failures = RepeatedFailures()
        self._reporting = Reporting(
            # Without a login: the shovel to the core sets the user.
            Speaker(kind="box", name=settings.box, region=settings.region),
            figures=ProcessFigures(FIGURES),
            readiness=self.readiness,
            draining=lambda: self._drain.draining,
            more=self._seen,
            outcomes=BOX_REPORTS,
        )
        self._ordered = asyncio.Event()
        self._emptied = False
        # Set when the report that all readers are gone has returned from the core.
        self._last_arrival = asyncio.Event()

    def readiness(self) -> Readiness:
        """Return ready while a feed and the way back run, and messages arrive through them."""
        return Readiness.of(
            link=self._link is not None and self._link.established,
            canaries=self._arrivals.moving(_now()),
            feed=any(name.startswith("postoffice.") for name in self._running),
            upstream=_UPSTREAM in self._running and not self._back.silent(_now()),
            serving=not self._drain.draining,
        )

    def canaries(self) -> dict[str, Any]:
        """Return the reply to ``/canaries``: the age of the newest arrival by each shovel."""
        now = _now()
        feeds = self._feeds.feeds_document(now) if self._feeds else []
        return {
            "shovels": [*feeds, watched_document(_UPSTREAM, self._back, now)],
            "regions": {name: round(age * 1000) for name, age in self._arrivals.ages(now).items()},
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Feed the box and report until ``stop`` is set or a scaler orders a drain, then drain."""
        settings = self._settings
        self._feeds = Feeds(settings.box, settings.cores, _now(), self._rng)
        self._cores = {n: self._core_end(n, url) for n, url in self._feeds.urls.items()}
        link = self._link = await connect(
            [settings.broker], name=f"{settings.box}-agent", credentials=settings.credentials
        )
        try:
            await self._begin(link)
            await self._serve(stop)
        finally:
            for core in self._cores.values():
                await core.close()
            await link.close()
            self._management.close()
            self._gateway.close()

    async def _begin(self, link: Link) -> None:
        await link.on_connect(self._declare)
        self._ticking = await link.consumer(TICK_QUEUE, self._on_tick, prefetch=100)
        self._publisher = await link.publisher(in_flight=10)
        self._showing = await link.publisher(in_flight=IN_FLIGHT)
        for core in self._cores.values():
            await core.open()

    async def _serve(self, stop: asyncio.Event) -> None:
        tending = asyncio.create_task(_each_second(self._tend))
        reporting = asyncio.create_task(_each_second(self._report))
        events = [asyncio.create_task(event.wait()) for event in (stop, self._ordered)]
        tasks: set[asyncio.Task[Any]] = {tending, reporting, *events}
        try:
            # A task that ends before `stop` has met a bug: its error must end the process.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in (tending, reporting):
                if task.done():
                    task.result()
            await self._empty()
            await self._report_empty()
            tending.cancel()
            await self._clean()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # --- the feeds ------------------------------------------------------------------------

    async def _declare(self, declare: Declare) -> None:
        await declare_retail(declare)
        # Exclusive: a second agent on the same box is a mistake, and waits here.
        await declare.queue(TICK_QUEUE, durable=False, exclusive=True, arguments=_TICK_ARGUMENTS)
        await declare.bind(TICK_QUEUE, POSTOFFICE, tick_key("#"))
        await declare.bind(TICK_QUEUE, POSTOFFICE, canary_key("#"))
        settings = self._settings
        for key in (drain_key, load_key):
            await declare.bind(TICK_QUEUE, POSTOFFICE, key(settings.region, settings.box))

    def _on_tick(self, delivery: Delivery) -> None:
        self._ticking.ack(delivery)
        message = delivery.message
        if is_drain(message):
            self._on_drain(message)
            return
        if is_load(message):
            self._on_load(message)
            return
        shovel = last_hop(message.properties.headers)
        try:
            if is_canary(message):
                origin = decode_canary(message).region
            else:
                origin = decode_tick(message).origin
        except ValueError as exc:
            logger.debug("neither tick nor canary: %s", exc)
            return
        if shovel in _FEED_NAMES:
            TICKS.labels(shovel).inc()
            self._arrivals.note_arrival(shovel, origin, _now())

    def _on_drain(self, message: Message) -> None:
        """Obey a drain order of the region's scaler, whose user the core's broker validated.

        An order that arrived by more shovels than this box's own feed is another region's.
        """
        way = hops(message.properties.headers)
        try:
            order = decode_drain(message)
        except ValueError as exc:
            logger.debug("no order: %s", exc)
            order = None
        settings = self._settings
        mine = order and (order.region, order.box) == (settings.region, settings.box)
        mine = mine and message.properties.user_id == user_name("scaler", settings.region)
        if order is None or not mine or len(way) != 1 or way[0] not in _FEED_NAMES:
            DRAINS.labels("refused").inc()
            return
        DRAINS.labels("taken").inc()
        if not self._ordered.is_set():
            logger.info("drain ordered by %.80r", order.by)
            self._ordered.set()

    def _on_load(self, message: Message) -> None:
        # A broker has validated the sender's user: nobody else can send it as this box.
        if message.properties.user_id != self._settings.credentials.username:
            logger.debug("ignored a message of another user")
            return
        try:
            report = decode_load(message)
        except ValueError as exc:
            logger.debug("not a load report: %s", exc)
            return
        on_the_way = max(0.0, time.time() - report.sent_ms / 1000)
        self._back.arrived(_now() - on_the_way, _now())
        if self._emptied and report.state == "draining" and report.connections == 0:
            self._last_arrival.set()

    async def _tend(self) -> None:
        """Check the shovels once, and act on the result."""
        try:
            if self._looks % KEEP_EVERY == 0:
                await self._shovels.keep(self._links())
                await self._keep_queues()
            self._states = await self._shovels.states()
            self._looks += 1
        except ManagementError as exc:
            self._running, self._states = frozenset(), {}
            # Start again with a full check: the broker may have lost everything.
            self._looks = 0
            if self._failures.should_log(str(exc), _now()):
                logger.warning("own broker: %s", mask(str(exc)))
            return
        self._failures.ended()
        running = (name for name, state in self._states.items() if state == "running")
        await self._follow(frozenset(running))

    async def _keep_queues(self) -> None:
        """Declare deleted queues again.

        A shovel would declare its queue without bindings, and no process the gateway's queue.
        """
        assert self._link is not None
        keeps: list[Callable[[], Awaitable[None]]] = [partial(self._link.declare, self._declare)]
        keeps += [core.keep for core in self._cores.values()]
        await asyncio.gather(*map(self._keep, keeps))

    async def _keep(self, keep: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(KEEP_WITHIN):
                await keep()
        except LinkClosed:
            # A link that is down declares by itself when it is up again.
            pass
        except (LinkError, TimeoutError) as exc:
            why = str(exc) or "the broker doesn't answer"
            if self._failures.should_log(why, _now()):
                logger.warning("can't declare this box's queues again: %s", why)

    async def _follow(self, running: frozenset[str]) -> None:
        assert self._feeds is not None
        fresh = running - self._running
        self._running = running
        names = {n: feed_name(n) for n in self._cores}
        runs = frozenset(n for n, name in names.items() if name in running)
        FEEDS.set(len(runs))
        for n, name in names.items():
            if name in fresh:
                await self._cores[n].renew()
        came = {n: at for n, name in names.items() if (at := self._arrivals.through(name))}
        for command in self._feeds.check_feeds(runs, came, _now()):
            with suppress(ManagementError):
                await self._obey(command)
        await self._follow_back()

    async def _follow_back(self) -> None:
        if _UPSTREAM not in self._running:
            self._back.renewed()
        elif self._back.distrust(_now(), self._rng):
            logger.warning("upstream: restarting its shovel, which runs and brings nothing")
            with suppress(ManagementError):
                await self._shovels.restart(self._upstream())
            COMMANDS.labels("restart").inc()

    async def _obey(self, command: Command) -> None:
        match command:
            case Move(n, url):
                logger.warning("feed %d: %s is silent, taking %s", n, self._cores[n].url, url)
                await self._cores[n].close()
                self._cores[n] = self._core_end(n, url)
                await self._cores[n].open()
                await self._shovels.keep(self._links())
            case Restart(n):
                logger.warning("feed %d: restarting its shovel, which runs and brings nothing", n)
                await self._shovels.restart(self._cores[n].feed)
        COMMANDS.labels(type(command).__name__.lower()).inc()

    def _links(self) -> dict[str, ShovelLink]:
        feeds = [core.feed for core in self._cores.values()]
        return {link.name: link for link in (*feeds, self._upstream())}

    def _upstream(self) -> ShovelLink:
        """Return the shovel to the brokers of the feeds, since these return the box's reports."""
        return box_upstream([core.url for core in self._cores.values()])

    def _core_end(self, n: int, url: str) -> CoreEnd:
        settings = self._settings
        return CoreEnd(box=settings.box, n=n, url=url, credentials=settings.credentials)

    # --- load -----------------------------------------------------------------------------

    async def _report(self) -> None:
        """Get the gateway's load and report it to the core."""
        gateway = self._gateway
        found, self._gateway_report = await asyncio.gather(gateway.load(), gateway.report())
        self._load, self._known = found, found or self._known
        load = emptied(self._known) if self._emptied else found or AWAY
        fed = self.readiness().ready
        state = box_state(load, fed=fed, draining=self._drain.draining)
        settings = self._settings
        message = report(settings.region, settings.box, load, state, time.time_ns() // 1_000_000)
        try:
            async with asyncio.timeout(EVERY):
                await self._publisher.publish(UPSTREAM, encode_load(message))
        except (LinkError, TimeoutError):
            REPORTS.labels("lost").inc()
        else:
            REPORTS.labels("sent").inc()
            self._back.sent(_now())
        # After the load report, which matters more, and without delaying it.
        await self._reporting.once(self._showing)

    # --- the operators' report ------------------------------------------------------------

    async def _seen(self) -> dict[str, Any]:
        """Return the fields of the box's report beside the agent's own figures."""
        load, from_gateway, ready = self._load, self._gateway_report, self.readiness()
        why = list(ready.waiting_for)
        if load is None:
            why.append("gateway")
        elif from_gateway is not None:
            why += [f"gateway's {reason}" for reason in from_gateway.waiting_for]
        state = box_state(load or AWAY, fed=ready.ready, draining=self._drain.draining)
        return {
            "state": state,
            "waiting_for": tuple(why[:MAX_REASONS]),
            "engine": "" if from_gateway is None else from_gateway.engine,
            "figures": {} if from_gateway is None else from_gateway.figures,
            "shovels": self._seen_shovels(),
        }

    def _seen_shovels(self) -> tuple[ShovelSeen, ...]:
        box, core = self._settings.box, f"{self._settings.region}/core"
        return tuple(
            ShovelSeen(
                name=shovel["name"],
                runs_on=box,
                source=box if shovel["name"] == _UPSTREAM else core,
                state=self._states.get(shovel["name"], "missing"),
                canary_age_ms=shovel["canary_age_ms"],
                messages_per_second=None,
                restarts=shovel["restarts"],
            )
            for shovel in self.canaries()["shovels"]
        )

    # --- leaving --------------------------------------------------------------------------

    async def _empty(self) -> None:
        """Have the gateway send its readers elsewhere, and wait until they are gone."""
        self._drain.on("stop")
        logger.info("draining")
        try:
            async with asyncio.timeout(self._settings.drain_timeout):
                # At once, and not with the next second: no new reader should be sent here.
                await self._report()
                while self._drain.state == "ordering":
                    if self._drain.note_drain_reply(await self._gateway.drain()) == "ordering":
                        await asyncio.sleep(EVERY / 2)
                while self._drain.state == "emptying":
                    load = await self._gateway.load()
                    if (
                        self._drain.note_connections(None if load is None else load.connections)
                        == "emptying"
                    ):
                        await asyncio.sleep(EVERY / 2)
        except TimeoutError:
            left = self._load and self._load.connections
            logger.warning("drain timed out: %s readers left", left)
            self._drain.on("overdue")

    async def _report_empty(self) -> None:
        """Report that all readers are gone, if so: a box is ended only after that report.

        A gateway that has exited had a drain order, and has closed its readers' connections before.
        """
        if self._drain.left:
            return
        self._emptied = True
        try:
            async with asyncio.timeout(LAST_REPORT_TIMEOUT):
                await self._report()
                await self._last_arrival.wait()
        except TimeoutError:
            logger.warning("can't report to the core that the box is empty")

    async def _clean(self) -> None:
        """Delete the shovels and queues that this box made on its broker and on the core."""
        try:
            async with asyncio.timeout(CLEAN_TIMEOUT):
                await self._shovels.keep({})
                for core in self._cores.values():
                    await core.delete()
            self._drain.on("cleaned")
        except (TimeoutError, ManagementError) as exc:
            logger.warning("queues on the core will expire: %s", mask(str(exc)) or "out of time")
            self._drain.on("overdue")


async def _each_second(work: Callable[[], Awaitable[None]]) -> None:
    while True:
        began = _now()
        await work()
        await asyncio.sleep(max(0.0, EVERY - (_now() - began)))


def _now() -> float:
    return asyncio.get_running_loop().time()
