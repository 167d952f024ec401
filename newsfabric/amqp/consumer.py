"""A consumer of one queue with acks, over a link that reconnects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from newsfabric import metrics
from newsfabric.amqp import OnDelivery, Queue
from newsfabric.amqp.acks import Acks
from newsfabric.amqp.channel import Channel
from newsfabric.amqp.connection import BrokerConnection
from newsfabric.amqp.declaring import declare_once
from newsfabric.amqp.message import Delivery, Message
from newsfabric.amqp.retry import Retry
from newsfabric.amqp.wire import ReturnReason, WireError, encode_ack, encode_reject
from newsfabric.errors import LinkError, LinkRefused
from newsfabric.line_limits import LineLimit

logger = logging.getLogger(__name__)

FAILED = metrics.counter("amqp_failed_deliveries", "Deliveries on which a consumer failed: bugs")

_CONSUMER_TAG = "newsfabric"


class LinkConsumer:
    """A :class:`newsfabric.amqp.Consumer` on a channel of its own.

    A *generation* is one life of that channel. Acks of an earlier one are dropped: the
    broker has put those deliveries back into the queue.
    """

    def __init__(self, name: str, queue: Queue, on_delivery: OnDelivery, prefetch: int) -> None:
        if not 1 <= prefetch <= 65_535:
            raise ValueError("prefetch must be in 1..65535")
        self._name = f"{name}: consumer of {repr(queue) if isinstance(queue, str) else 'its queue'}"
        self._queue = queue
        self._on_delivery = on_delivery
        self._prefetch = prefetch
        self._loop = asyncio.get_running_loop()
        self._generation = 0
        self._acks = Acks()
        self._failing = LineLimit()
        self._channel: Channel | None = None
        self._flush_is_due = False
        self._cancelled = False
        self._consuming = False

    @property
    def established(self) -> bool:
        """True if deliveries of its queue are sent to it, or it was cancelled."""
        return self._consuming or self._cancelled

    def ack(self, delivery: Delivery) -> None:
        """See :meth:`newsfabric.amqp.Consumer.ack`."""
        if (
            delivery.generation == self._generation
            and self._acks.ack(delivery.tag)
            and not self._flush_is_due
        ):
            self._flush_is_due = True
            self._loop.call_soon(self.flush)

    def reject(self, delivery: Delivery, *, requeue: bool) -> None:
        """See :meth:`newsfabric.amqp.Consumer.reject`."""
        if delivery.generation == self._generation:
            self._reject(delivery.tag, requeue=requeue)

    def _reject(self, tag: int, *, requeue: bool) -> None:
        channel = self._channel
        if self._acks.reject(tag) and channel is not None and channel.is_open:
            channel.connection.send(encode_reject(channel.number, tag, requeue=requeue))

    def flush(self) -> None:
        """Send the broker all acks so far."""
        self._flush_is_due = False
        channel = self._channel
        acks = self._acks.flush()
        if acks and channel is not None and channel.is_open:
            number = channel.number
            channel.connection.send(
                b"".join(encode_ack(number, ack.tag, multiple=ack.multiple) for ack in acks)
            )

    async def cancel(self) -> None:
        """See :meth:`newsfabric.amqp.Consumer.cancel`."""
        self._cancelled = True
        if self._channel is not None and self._channel.is_open:
            # A closed channel delivers nothing more either.
            with suppress(LinkError):
                await self._channel.request("basic_cancel", consumer_tag=_CONSUMER_TAG)

    async def serve(self, connection: BrokerConnection, attempted: Callable[[], None]) -> None:
        """Keep consuming on ``connection`` until it is closed."""
        retry = Retry(self._name)
        queue = ""
        while not self._cancelled and not connection.closed.done():
            try:
                queue = queue or await self._declared(connection)
                error = await self._use_channel(connection, queue, attempted, retry)
                queue = ""
            except LinkRefused as exc:
                # Another queue would be refused as well, and this one stays for as long as we do.
                error = exc
            except LinkError as exc:
                error, queue = exc, ""
            attempted()
            if not self._cancelled and not connection.closed.done():
                await retry.failed(error)

    async def _declared(self, connection: BrokerConnection) -> str:
        """The name of the queue, which is declared now if it is our own."""
        if isinstance(self._queue, str):
            return self._queue
        return await declare_once(connection, self._queue)

    async def _use_channel(
        self, connection: BrokerConnection, queue: str, attempted: Callable[[], None], retry: Retry
    ) -> LinkError:
        channel = await Channel.open(connection)
        channel.on_cancel(lambda _frame: self._on_cancelled_by_broker(channel))
        connection.owners.attach(channel.number, self)
        self._generation += 1
        self._acks = Acks()
        self._channel = channel
        try:
            await channel.request("basic_qos", prefetch_count=self._prefetch)
            await channel.request(
                "basic_consume",
                queue=queue,
                consumer_tag=_CONSUMER_TAG,
                # Only pika needs it: deliveries bypass pika.
                on_message_callback=lambda *_delivery: None,
            )
            retry.succeeded()
            self._consuming = True
            attempted()
            return await channel.closed()
        finally:
            self._consuming = False
            self._channel = None
            connection.owners.detach(channel.number, self)

    def _on_cancelled_by_broker(self, channel: Channel) -> None:
        # The queue was deleted, or its node is gone. Closing the channel returns unacknowledged
        # deliveries to the queue, if it exists.
        channel.close(because=LinkError("the broker has cancelled it"))

    def on_deliver(self, tag: int, redelivered: bool, message: Message) -> None:
        """Take a delivery; WireError above the prefetch, or out of order."""
        try:
            self._acks.delivered(tag)
        except ValueError as exc:
            raise WireError(str(exc)) from exc
        if self._acks.outstanding > self._prefetch:
            raise WireError(f"more than {self._prefetch} deliveries at once")
        if self._cancelled:
            self._reject(tag, requeue=True)
            return
        try:
            self._on_delivery(Delivery(message, redelivered, tag, self._generation))
        except Exception as exc:
            self._failed(tag, redelivered, exc)

    def _failed(self, tag: int, redelivered: bool, exc: Exception) -> None:
        """Give back a delivery that failed for the first time: another consumer may succeed."""
        FAILED.inc()
        suppressed = self._failing.may_log(self._loop.time())
        if suppressed is not None:
            what = "dropped" if redelivered else "requeued"
            text = "%s: delivery %d failed, %s (and %d more)"
            logger.error(text, self._name, tag, what, suppressed, exc_info=exc)
        self._reject(tag, requeue=not redelivered)

    def on_return(self, reason: ReturnReason, message: Message) -> None:
        """Raise WireError: nothing is published on a consumer's channel."""
        raise WireError("a return on a consumer's channel")

    def on_confirm(self, tag: int, multiple: bool, taken: bool) -> None:
        """Raise WireError: nothing is published on a consumer's channel."""
        raise WireError("a confirm on a consumer's channel")

    def on_unblocked(self) -> None:
        """Do nothing: consumers aren't blocked."""
