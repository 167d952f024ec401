"""Publishers and consumers of a :class:`newsfabric.amqp.stub.StubLink`."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from newsfabric.amqp import OnDelivery
from newsfabric.amqp.message import Delivery, Message
from newsfabric.amqp.stub_queues import Stored
from newsfabric.amqp.wire import encode_publish
from newsfabric.errors import LinkBusy, LinkClosed, LinkError, PublishNacked, PublishReturned

if TYPE_CHECKING:
    from newsfabric.amqp.stub import StubBroker, StubLink

logger = logging.getLogger(__name__)

# What RabbitMQ proposes unless it is told otherwise.
_FRAME_MAX: Final = 131_072


class StubPublisher:
    """A :class:`newsfabric.amqp.ConfirmingPublisher`: confirms come in the next loop turn."""

    def __init__(self, link: StubLink, in_flight: int) -> None:
        if in_flight < 1:
            raise ValueError("in_flight must be at least 1")
        self._link = link
        self._bound = in_flight
        self._unconfirmed: set[asyncio.Future[None]] = set()
        self._changed = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """How many are unconfirmed now."""
        return len(self._unconfirmed)

    async def ready(self) -> None:
        """See :meth:`newsfabric.amqp.ConfirmingPublisher.ready`."""
        while not self.is_ready:
            await self._wait()

    @property
    def is_ready(self) -> bool:
        """See :attr:`newsfabric.amqp.ConfirmingPublisher.is_ready`."""
        return self._link.connected and not self._is_full()

    async def publish(self, exchange: str, message: Message, *, mandatory: bool = False) -> None:
        """See :meth:`newsfabric.amqp.ConfirmingPublisher.publish`."""
        while self._link.connected and self._is_full():
            await self._wait()
        await self._send(exchange, message, mandatory=mandatory)

    def publish_nowait(self, exchange: str, message: Message) -> Awaitable[None]:
        """See :meth:`newsfabric.amqp.ConfirmingPublisher.publish_nowait`."""
        return self._send(exchange, message, mandatory=False)

    def _is_full(self) -> bool:
        return len(self._unconfirmed) >= self._bound

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _send(self, exchange: str, message: Message, *, mandatory: bool) -> asyncio.Future[None]:
        if not self._link.connected:
            raise LinkClosed("no link to publish on")
        if self._is_full():
            raise LinkBusy(f"{len(self._unconfirmed)} unconfirmed publications")
        # Raises ValueError for what can't be put on a wire.
        encode_publish(1, exchange, message, mandatory=mandatory, frame_max=_FRAME_MAX)
        loop = asyncio.get_running_loop()
        confirmed: asyncio.Future[None] = loop.create_future()
        self._unconfirmed.add(confirmed)
        loop.call_soon(functools.partial(self._arrive, confirmed, exchange, message, mandatory))
        return confirmed

    def _arrive(
        self, confirmed: asyncio.Future[None], exchange: str, message: Message, mandatory: bool
    ) -> None:
        """The message is at the broker."""
        if confirmed not in self._unconfirmed:
            return
        error: LinkError | None = None
        try:
            if self._link.broker.nacks:
                error = PublishNacked("the broker refused the message")
            elif not self._link.broker.publish(exchange, message) and mandatory:
                error = PublishReturned(f"returned: no queue for {message.topic!r}")
        except LinkError as exc:
            # A broker closes the channel, and with it goes all that is in flight on it.
            self.lose(str(exc))
            return
        self._unconfirmed.discard(confirmed)
        _settle(confirmed, error)
        self.update()

    def lose(self, reason: str) -> None:
        """Everything unconfirmed fails."""
        for confirmed in self._unconfirmed:
            _settle(confirmed, LinkClosed(reason))
        self._unconfirmed.clear()
        self.update()

    def update(self) -> None:
        """Those who wait look again."""
        self._changed.set()


def _settle(confirmed: asyncio.Future[None], error: LinkError | None) -> None:
    if confirmed.done():
        return
    if error is None:
        confirmed.set_result(None)
    else:
        confirmed.set_exception(error)
        # Marks it as seen: "never retrieved" is nothing that a pipeline has to hear.
        confirmed.exception()


class StubConsumer:
    """A :class:`newsfabric.amqp.Consumer` of one queue."""

    def __init__(
        self, broker: StubBroker, queue: str, on_delivery: OnDelivery, prefetch: int
    ) -> None:
        if not 1 <= prefetch <= 65_535:
            raise ValueError("prefetch must be in 1..65535")
        self.queue = queue
        self._broker = broker
        self._on_delivery = on_delivery
        self._prefetch = prefetch
        self._unacked: dict[int, Stored] = {}
        self._tag = 0
        self._generation = 0
        self._cancelled = False

    @property
    def has_room(self) -> bool:
        """Whether it may be given another message."""
        return len(self._unacked) < self._prefetch

    def deliver(self, stored: Stored) -> None:
        """Give it a message."""
        self._tag += 1
        self._unacked[self._tag] = stored
        delivery = Delivery(stored.message, stored.redelivered, self._tag, self._generation)
        try:
            self._on_delivery(delivery)
        except Exception:
            what = "thrown away" if delivery.redelivered else "given back"
            logger.exception("consumer of %r: delivery %d failed, %s", self.queue, self._tag, what)
            self.reject(delivery, requeue=not delivery.redelivered)

    def ack(self, delivery: Delivery) -> None:
        """See :meth:`newsfabric.amqp.Consumer.ack`."""
        self._settle(delivery)

    def reject(self, delivery: Delivery, *, requeue: bool) -> None:
        """See :meth:`newsfabric.amqp.Consumer.reject`."""
        stored = self._settle(delivery)
        if stored is not None and requeue:
            self._broker.put_back(self.queue, [stored])

    def _settle(self, delivery: Delivery) -> Stored | None:
        if delivery.generation != self._generation:
            return None
        stored = self._unacked.pop(delivery.tag, None)
        self._broker.dispatch(self.queue)
        return stored

    async def cancel(self) -> None:
        """See :meth:`newsfabric.amqp.Consumer.cancel`."""
        self._cancelled = True
        self._broker.remove_consumer(self)

    def resume(self) -> None:
        """Its link is up."""
        if not self._cancelled:
            self._generation += 1
            self._tag = 0
            self._broker.add_consumer(self)

    def pause(self) -> None:
        """Its link is gone: what it had goes back to the queue."""
        self._broker.remove_consumer(self)
        unacked = list(self._unacked.values())
        self.forget()
        self._broker.put_back(self.queue, unacked)

    def forget(self) -> None:
        """Acks for what it had count for nothing from now on."""
        self._generation += 1
        self._unacked.clear()
