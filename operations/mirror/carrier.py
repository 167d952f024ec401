"""Consumes the original's messages and publishes copies into the other fabric, without waiting.

The source is exchange ``postoffice`` of one core broker: routers publish there every message of
every region, already accepted, once for each region that routed it. A gateway would send only
messages of subscribed topics, and client clusters have messages before they are validated.

The other fabric has no effect on the original: each message is acknowledged on arrival, then waits
in a buffer. A full buffer drops its oldest; any message is dropped after ten seconds, since it is
no live traffic any more. A message that the other broker refuses, or has not confirmed when its
link breaks, isn't sent again. If the mirror itself is too slow, or stopped, the core's queue drops
its oldest (``x-max-length``), and the queue is deleted with the connection.
"""

from __future__ import annotations

import asyncio
import collections
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final

from newsfabric.amqp import ConfirmingPublisher, Consumer, Declare, Delivery, Link, Message
from newsfabric.errors import LinkBusy, LinkClosed, LinkError, PublishNacked
from newsfabric.topology import POSTOFFICE, PUBLISH
from operations.mirror.copying import Candidate, Copying
from operations.mirror.share_record import Outcome

OLDEST: Final = 10.0
# Some seconds of a region's whole output.
QUEUE_ARGUMENTS: Final[dict[str, Any]] = {
    "x-max-length": 10_000,
    "x-max-length-bytes": 64 << 20,
    "x-message-ttl": int(OLDEST * 1000),
}
_PREFETCH: Final = 500
IN_FLIGHT: Final = 1_000
MAX_WAITING: Final = 10_000
MAX_WAITING_BYTES: Final = 64 << 20

OnHeard = Callable[[Candidate], None]
OnOutcome = Callable[[int, Outcome], None]


class SendBuffer:
    """Copies that wait to be sent; at the bound the oldest are dropped. Pure, times in seconds."""

    def __init__(
        self,
        *,
        most: int = MAX_WAITING,
        most_bytes: int = MAX_WAITING_BYTES,
        oldest: float = OLDEST,
    ) -> None:
        self._most, self._most_bytes, self._oldest = most, most_bytes, oldest
        # Each with its time of arrival.
        self._waiting: collections.deque[tuple[float, int, Message]] = collections.deque()
        self._bytes = 0

    def __len__(self) -> int:
        """Return the number of waiting copies."""
        return len(self._waiting)

    def push(self, identity: int, copy: Message, now: float) -> list[int]:
        """Add a copy; return the identities of the dropped ones."""
        self._waiting.append((now, identity, copy))
        self._bytes += len(copy.body)
        gone = self.expire(now)
        while len(self._waiting) > self._most or self._bytes > self._most_bytes:
            gone.append(self.pop()[0])
        return gone

    def expire(self, now: float) -> list[int]:
        """Drop the copies that are too old; return their identities."""
        gone = []
        while self._waiting and now - self._waiting[0][0] >= self._oldest:
            gone.append(self.pop()[0])
        return gone

    def pop(self) -> tuple[int, Message]:
        """Remove and return the oldest; IndexError if there is none."""
        _, identity, copy = self._waiting.popleft()
        self._bytes -= len(copy.body)
        return identity, copy


class Carrier:
    """A carrier of messages from one link to the other. :meth:`open` begins, :meth:`run` sends.

    ``on_candidate`` is called with each message that may be copied, in the share or not,
    ``on_outcome`` with each outcome of those in the share. ``left_out`` counts others by reason.
    """

    _consumer: Consumer
    _publisher: ConfirmingPublisher

    def __init__(
        self,
        copying: Copying,
        *,
        clock: Callable[[], float],
        on_candidate: OnHeard,
        on_outcome: OnOutcome,
        buffer: SendBuffer | None = None,
    ) -> None:
        self.left_out: collections.Counter[str] = collections.Counter()
        self.heard = 0
        #: The last error, and whether there was no success since.
        self.refusal = ""
        self.refuses = False
        self._copying = copying
        self._clock = clock
        self._on_candidate = on_candidate
        self._on_outcome = on_outcome
        self._buffer = SendBuffer() if buffer is None else buffer
        self._filled = asyncio.Event()
        self._stopped = False
        self._queue = f"mirror.{secrets.token_hex(8)}"

    async def open(self, original: Link, other: Link, patterns: Sequence[str]) -> Carrier:
        """Begin to consume the messages that match ``patterns``."""
        self._publisher = await other.publisher(in_flight=IN_FLIGHT)

        async def declare(declare: Declare) -> str:
            await declare.queue(
                self._queue,
                durable=False,
                exclusive=True,
                auto_delete=True,
                arguments=QUEUE_ARGUMENTS,
            )
            for pattern in patterns:
                await declare.bind(self._queue, POSTOFFICE, pattern)
            return self._queue

        self._consumer = await original.consumer(declare, self._on_delivery, prefetch=_PREFETCH)
        return self

    @property
    def waiting(self) -> int:
        """The number of copies that wait to be sent."""
        return len(self._buffer)

    def expire(self) -> None:
        """Drop copies that have waited for too long; to be called each second."""
        for identity in self._buffer.expire(self._clock()):
            self._on_outcome(identity, "dropped")

    async def stop(self) -> None:
        """Stop consuming; waiting copies are still sent."""
        self._stopped = True
        await self._consumer.cancel()

    async def run(self) -> None:
        """Send for ever."""
        while True:
            while not self._buffer:
                self._filled.clear()
                await self._filled.wait()
            await self._publisher.ready()
            self.expire()
            if self._buffer:
                self._send(*self._buffer.pop())
            # Let deliveries be handled in between, however long the backlog is.
            await asyncio.sleep(0)

    def _on_delivery(self, delivery: Delivery) -> None:
        self._consumer.ack(delivery)
        if self._stopped:
            return
        now = self._clock()
        found = self._copying.decide(delivery.message, now)
        if not isinstance(found, Candidate):
            self.left_out[found] += 1
            return
        self.heard += 1
        self._on_candidate(found)
        if found.copy is None:
            return
        for identity in self._buffer.push(found.identity, found.copy, now):
            self._on_outcome(identity, "dropped")
        self._filled.set()

    def _send(self, identity: int, copy: Message) -> None:
        try:
            confirmed = asyncio.ensure_future(self._publisher.publish_nowait(PUBLISH, copy))
        except (LinkClosed, LinkBusy) as exc:
            self._ended(identity, exc)
            return
        except ValueError as exc:
            # It can't be encoded. Messages received from a broker always can.
            self._fail(identity, "refused", exc)
            return
        self._on_outcome(identity, "sent")
        confirmed.add_done_callback(lambda done: self._confirmed(identity, done))

    def _confirmed(self, identity: int, done: asyncio.Future[None]) -> None:
        if done.cancelled():
            self._on_outcome(identity, "unconfirmed")
        elif (error := done.exception()) is None:
            self.refuses = False
            self._on_outcome(identity, "taken")
        else:
            self._ended(identity, error)

    def _ended(self, identity: int, error: BaseException) -> None:
        if not isinstance(error, LinkError):
            raise error
        refused = isinstance(error, PublishNacked)
        self._fail(identity, "refused" if refused else "unconfirmed", error)

    def _fail(self, identity: int, outcome: Outcome, why: BaseException) -> None:
        self.refuses, self.refusal = True, str(why)
        self._on_outcome(identity, outcome)
