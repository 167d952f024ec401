"""The feed: the box's queue of envelopes and ticks, consumed into the hub.

One queue per box, whatever its readers are subscribed to. A message is acknowledged when its
fan-out is done, so at most ``prefetch`` messages are unacknowledged. Undecodable messages are
counted and acknowledged: if they were returned, the broker would redeliver them for ever.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
from collections.abc import Callable

import orjson

from gateway.feed.broadcast import Broadcast
from gateway.feed.follower import Follower
from gateway.logs.known_log import KnownLog
from gateway.memory.hub import Hub
from gateway.past.late import is_late
from gateway.process import measures
from gateway.process.settings import GatewaySettings
from gateway.wire.position import log_of
from newsfabric import topology
from newsfabric.amqp import Consumer, Delivery, Link
from newsfabric.messages.control import decode_tick, tick_key
from newsfabric.messages.envelope import Envelope, decode, low_of, ms_of_id
from newsfabric.messages.hops import hops
from newsfabric.store.logs import Log
from newsfabric.store.rules import clock_ms
from newsfabric.topics import CONTROL_WORD, REVOKED
from newsfabric.tracing.races import DIRECT, Races

logger = logging.getLogger(__name__)

_CONTROL: str = f"{CONTROL_WORD}."
_TICKS: str = tick_key("")


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class Feed:
    """The consumer of the queue ``gateway``, until the link is closed. ``clock`` is monotonic."""

    hub: Hub
    follower: Follower
    broadcast: Broadcast
    races: Races
    settings: GatewaySettings
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._consumer: Consumer | None = None
        self._began = self.clock()
        self._ticked_at: float | None = None
        # Undecodable messages; one line is logged each time the count has doubled.
        self._undecodable = 0

    @property
    def age(self) -> float | None:
        """Seconds since the last tick of our own region; None before the first one."""
        return None if self._ticked_at is None else self.clock() - self._ticked_at

    @property
    def is_fresh(self) -> bool:
        """True if the last tick is recent enough for readers to be sent here."""
        age = self.age
        return age is not None and age <= self.settings.feed_fresh

    @property
    def has_no_feed(self) -> bool:
        """True if there was no feed for so long that readers are better served elsewhere."""
        fed_at = self._began if self._ticked_at is None else self._ticked_at
        return self.clock() - fed_at > self.settings.feed_timeout_seconds

    async def start(self, link: Link) -> None:
        """Declare the box's topology and consume, now and after each reconnect. Wait first until
        the start of each log is known here."""
        await self.follower.begun.wait()
        await link.on_connect(topology.declare_retail)
        self._consumer = await link.consumer(
            topology.GATEWAY_QUEUE, self.on_delivery, prefetch=self.settings.prefetch
        )

    def on_delivery(self, delivery: Delivery) -> None:
        """Handle a message from the link; acknowledge it when its fan-out is done."""
        topic = delivery.message.topic
        try:
            if not topic.startswith(_CONTROL) or topic == REVOKED:
                if self._publish(delivery):
                    return
            elif topic.startswith(_TICKS):
                self._tick(delivery)
        except ValueError as exc:
            self._log_undecodable(topic, exc)
        self._ack(delivery)

    def _publish(self, delivery: Delivery) -> bool:
        """Publish the message and acknowledge it afterwards; return False if it isn't published."""
        envelope = decode(delivery.message)
        # A number isn't settled before it was published, so low was below it.
        low = min(low_of(delivery.message), max(0, envelope.seq - 1))
        # Frames are spliced from the body's bytes: one bad body would break every reader's parser.
        orjson.loads(envelope.body)
        way = hops(delivery.message.properties.headers)
        sighting = self.races.came(envelope, way, clock_ms())
        log, routed_ms = log_of(envelope), ms_of_id(envelope.id)
        known = self.follower.note_report(log, envelope.seq, low, sent_ms=routed_ms)
        if self._is_left_to_follower(envelope, known):
            measures.LEFT_TO_FOLLOWER.inc()
            return False
        publication = self.hub.offer(envelope, time.time())
        if publication is None:
            return False
        publication.way = way[-1] if way else DIRECT
        self.broadcast.publish(publication, sighting, functools.partial(self._ack, delivery))
        return True

    def _is_left_to_follower(self, envelope: Envelope, known: KnownLog) -> bool:
        """Return whether the message is left to the follower, which reads it from the store.

        A message so old must be looked up first (:mod:`gateway.past.late`). And from a log with too
        many holes, no message is taken that makes one more.
        """
        time_ms = self.hub.logs.times.latest_ms(clock_ms(), self.clock())
        if is_late(envelope, time_ms) and not self.hub.was_published(envelope):
            return True
        beyond = envelope.seq > known.seen.top + 1
        return beyond and len(known.seen) >= self.hub.logs.limits.runs

    def _tick(self, delivery: Delivery) -> None:
        tick = decode_tick(delivery.message)
        log = Log(tick.origin, tick.router, tick.epoch)
        self.follower.note_tick(log, tick.seq, tick.low, sent_ms=tick.sent_ms)
        if tick.origin == self.settings.region:
            self._ticked_at = self.clock()

    def _ack(self, delivery: Delivery) -> None:
        if self._consumer is not None:
            self._consumer.ack(delivery)

    def _log_undecodable(self, topic: str, exc: ValueError) -> None:
        measures.UNDECODABLE.inc()
        self._undecodable += 1
        if self._undecodable & (self._undecodable - 1) == 0:
            logger.warning("%d undecodable so far, now on %.80r: %s", self._undecodable, topic, exc)
