"""A router: the stages, connected, over given publishers and a given store.

This module knows no broker and no socket, so tests run it over stubs; service.py gives it real
ones.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Final

from newsfabric import topology
from newsfabric.amqp import ConfirmingPublisher
from newsfabric.amqp.message import Delivery, Message
from newsfabric.errors import LinkError
from newsfabric.messages import control
from newsfabric.messages.envelope import DEFAULT_LIMITS, MessageLimits
from newsfabric.store import Store
from newsfabric.store.logs import Log
from newsfabric.topics import TopicTable
from newsfabric.topology.roles import user_name
from newsfabric.tracing import otel_tracer
from newsfabric.tracing.otel_tracer import Tracer
from newsfabric.tracing.races import Races
from wholesale.common.progress import PendingOperations
from wholesale.common.source import QueueSource
from wholesale.router import counters
from wholesale.router.acknowledging import Acknowledger
from wholesale.router.clock_watch import ClockWatch
from wholesale.router.closer import Closer
from wholesale.router.identities import KnownIdentities
from wholesale.router.intake import Intake
from wholesale.router.jobs import PendingAck, RoutingJob
from wholesale.router.listing import Listing, awake_clock
from wholesale.router.receipts import ReceiptMaker
from wholesale.router.routing import Routing
from wholesale.router.settling import Settling
from wholesale.router.storing import Storing
from wholesale.router.stream import Stream
from wholesale.router.traffic import Traffic
from wholesale.router.waiting import BRONZE_ROOM
from wholesale.router.window import IdentityWindow

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 1.0
# A message that is followed by no other for so long is followed by a tick.
QUIET_SECONDS: Final = 0.2


def wall_clock_ms() -> int:
    """Return the milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Router:
    """A router: it takes deliveries with :meth:`take_delivery` while :meth:`run` is running.

    ``routes`` carries envelopes and ticks, ``answers`` receipts and rejections: two publishers, so
    that a flood of the one doesn't use up the room of the other. ``now_ms`` is the machine's clock,
    ``awake`` that of its lease. Its log begins at the epoch of ``first_log`` at the earliest.
    """

    def __init__(
        self,
        first_log: Log,
        *,
        topics: TopicTable,
        store: Store,
        routes: ConfirmingPublisher,
        answers: ConfirmingPublisher,
        races: Races,
        traffic: Traffic | None = None,
        limits: MessageLimits = DEFAULT_LIMITS,
        bronze_room: int = BRONZE_ROOM,
        tracer: Tracer | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
        now: Callable[[], float] = time.monotonic,
        awake: Callable[[], float] = awake_clock,
    ) -> None:
        receipts = ReceiptMaker(
            first_log.region, first_log.router, named_alone=bool(topics.publishers)
        )
        self._clock = ClockWatch(store, wall_ms=now_ms, now=awake)
        self._listing = Listing(store, first_log, clock=self._clock, now=awake)
        self._closer = Closer(
            store,
            region=first_log.region,
            own=lambda: self._listing.stream.log,
            now_ms=self._clock.now_ms,
            now=now,
        )
        self._now_ms = now_ms
        self._now = now
        self._routes = routes
        self._progress = PendingOperations()
        self._identities = KnownIdentities(IdentityWindow())
        self._evicted_early = 0
        # Log and number of the last tick.
        self._ticked: tuple[Log, int] | None = None
        self._intake = Intake(
            receipts=receipts,
            topics=topics,
            identities=self._identities,
            limits=limits,
            races=races,
        )
        self._acknowledger = Acknowledger(answers, self._progress)
        settling = Settling(
            receipts=receipts,
            identities=self._identities,
            intake=self._intake,
            acknowledger=self._acknowledger,
            progress=self._progress,
            now_ms=now_ms,
            now=now,
            sightings=races.sightings,
            tracer=tracer or otel_tracer.current(),
            traffic=traffic or Traffic(),
        )
        self._routing = Routing(publisher=routes, listing=self._listing, settling=settling, now=now)
        self._storing = Storing(
            store=store,
            listing=self._listing,
            settling=settling,
            hand_on=self._routing.route_stored,
            clock_ms=self._clock.now_ms,
            now_ms=now_ms,
            now=now,
            bronze_room=bronze_room,
        )

    @property
    def stream(self) -> Stream:
        """The log that is routed now."""
        return self._listing.stream

    @property
    def store_answers(self) -> bool:
        """True while the last write succeeded and there is a lease."""
        return self._storing.store_answers and self._listing.has_lease

    @property
    def clock_is_right(self) -> bool:
        """True while the machine's clock agrees with the store's, by the last comparison."""
        return self._clock.is_right

    @property
    def gets_through(self) -> bool:
        """True while the broker accepts envelopes and replies, as far as it has answered."""
        return self._routing.gets_through and self._acknowledger.gets_through

    @property
    def under_way(self) -> int:
        """The number of messages and acknowledgements that are neither settled nor given up."""
        return self._progress.under_way

    def take_delivery(self, source: QueueSource, delivery: Delivery) -> None:
        """Take ``delivery`` of ``source``; it is acknowledged when it is settled."""
        if source.saw(delivery):
            self._forget_stale()
        if control.is_canary(delivery.message):
            # A canary ends here: the keeper of shovels sends it no further. It may be forged.
            if not _is_keepers(delivery.message):
                counters.FORGED_CANARIES.inc()
            source.ack(delivery)
            return
        taken = self._intake.examine(delivery, source, now_ms=self._now_ms(), now=self._now())
        match taken:
            case RoutingJob():
                self._progress.begin()
                self._storing.store_later(taken, under_way=len(self._identities))
            case PendingAck():
                self._acknowledger.add_ack(taken)

    async def may_take(self) -> None:
        """Return when deliveries may come: when the clock is right."""
        await self._clock.right.wait()

    async def must_pause(self) -> None:
        """Return when deliveries must stop: when the clock is wrong."""
        await self._clock.wrong.wait()

    def pause(self) -> None:
        """Give back messages that have no number yet; the others go on."""
        self._storing.requeue()

    async def run(self) -> None:
        """Run all stages and send ticks, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for stage in (
                self._storing.run,
                self._storing.give_up_old,
                self._routing.publish,
                self._routing.confirm,
                self._acknowledger.run,
                self._listing.run,
                self._clock.run,
                self._closer.run,
                self._tick_on,
            ):
                tasks.create_task(stage(), name=f"router {stage.__qualname__}")

    async def settled(self) -> None:
        """Return when all messages taken so far are settled and answered."""
        await self._progress.idle()

    async def end_log(self) -> None:
        """Write the log's end, if all of it is settled; :meth:`run` must have ended."""
        await self._listing.end()

    async def tick(self) -> None:
        """Send the last number to this region and the others; the loss of a tick does no harm."""
        stream = self._listing.stream
        if not stream.numbering.is_listed:
            return
        self._ticked = stream.log, stream.seq
        message = control.encode_tick(stream.tick(now_ms=self._clock.now_ms()))
        try:
            async with asyncio.timeout(TICK_SECONDS):
                await self._routes.publish(topology.POSTOFFICE, message)
                await self._routes.publish(topology.OUTBOUND, message)
        except (LinkError, TimeoutError) as exc:
            logger.debug("no tick: %r", exc)

    async def _tick_on(self) -> None:
        """Tick each second, and soon after a message that no other follows.

        If that message is lost on its way to a gateway, only a tick shows that it exists.
        """
        last, moved_at, ticked_at = 0, self._now(), -math.inf
        while True:
            await asyncio.sleep(QUIET_SECONDS / 2)
            now, stream = self._now(), self._listing.stream
            if stream.seq != last:
                last, moved_at = stream.seq, now
            unticked = self._ticked != (stream.log, stream.seq)
            quiet = unticked and now >= moved_at + QUIET_SECONDS
            if quiet or now >= ticked_at + TICK_SECONDS:
                ticked_at = now
                self._count_evicted()
                await self.tick()

    def _count_evicted(self) -> None:
        before, self._evicted_early = self._evicted_early, self._identities.evicted_early
        counters.EVICTED_EARLY.inc(self._evicted_early - before)

    def _forget_stale(self) -> None:
        # The broker delivers unacknowledged messages of the old channel again. Without this removal
        # each reconnection during a long outage of the store would add one prefetch to the memory.
        self._identities.forget_stale_claims()
        self._storing.forget_unclaimed()
        self._acknowledger.forget_stale()


def _is_keepers(canary: Message) -> bool:
    """Return whether a broker vouches that a keeper of the region in its key sent ``canary``."""
    sender = canary.properties.user_id or ""
    region = sender.removeprefix(user_name("keeper", ""))
    return region != sender and canary.topic == control.canary_key(region)
