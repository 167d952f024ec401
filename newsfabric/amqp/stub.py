"""A broker in memory, for the tests of services: the part of RabbitMQ that the fabric relies on.

It keeps the same contract as a real broker (tests/amqp/test_contract.py runs on both): topic,
direct and fanout exchanges, competing consumers with prefetch, acks, requeue in order, drop-head
bounds, TTL, confirms, mandatory returns, redelivery after a cut. It has no clusters, no policies,
no flow control, and a declaration that fails is tried again only at the next connect.

Messages move in turns of the loop, never inside a call, as they would over a socket.

::

    broker = StubBroker()
    link = broker.connect()
    broker.cut()             # every link is down
    await broker.heal()      # and up again, with its declarations run
    broker.nacks = True      # every publication is refused
"""

from __future__ import annotations

import asyncio
import collections
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from newsfabric.amqp import Declare, OnDelivery, Queue
from newsfabric.amqp.message import Delivery, Message
from newsfabric.amqp.stub_queues import NAMES, QueueOptions, Stored, StubExchanges, StubQueue
from newsfabric.amqp.wire import encode_publish
from newsfabric.errors import (
    LinkBusy,
    LinkClosed,
    LinkError,
    LinkRefused,
    PublishNacked,
    PublishReturned,
)

logger = logging.getLogger(__name__)

# RabbitMQ's default.
_FRAME_MAX: Final = 131_072
_Declaring = Callable[[Declare], Awaitable[None]]


class StubBroker:
    """Exchanges, queues and links in one process. ``clock`` (seconds) is for TTLs."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.nacks = False
        self.up = True
        self._clock = clock
        self._exchanges = StubExchanges()
        self._queues: dict[str, StubQueue] = {}
        # By queue name, not by queue: a consumer outlives the queue that it waits for.
        self._consumers: dict[str, collections.deque[StubConsumer]] = {}
        self._links: list[StubLink] = []

    def connect(self) -> StubLink:
        """Return a link to this broker, up if the broker is."""
        link = StubLink(self)
        self._links.append(link)
        return link

    def cut(self) -> None:
        """Cut the connection of every link; all stay down until :meth:`heal`."""
        self.up = False
        for link in self._links:
            link.lose()

    async def heal(self) -> None:
        """Connect every link again and run its declarations."""
        self.up = True
        for link in list(self._links):
            await link.restore()

    def publish(self, exchange: str, message: Message) -> bool:
        """Route ``message`` as if a stranger had sent it; return whether any queue took it."""
        queues = self.route(exchange, message.topic)
        for name in queues:
            self._queues[name].push(message, self._clock())
            self.dispatch(name)
        return bool(queues)

    def tap(self, exchange: str, key: str = "#") -> str:
        """Return a new queue bound to ``exchange``; :meth:`pop_messages` reads the publications."""
        queue = self.declare_queue("", QueueOptions(), None)
        self.bind(queue, exchange, key)
        return queue

    def pop_messages(self, queue: str) -> list[Message]:
        """Empty ``queue`` and return its messages."""
        return [stored.message for stored in iter(lambda: self._pop(queue), None)]

    def _pop(self, queue: str) -> Stored | None:
        return self._queues[queue].pop(self._clock())

    def depth(self, queue: str) -> int:
        """Return the number of messages that wait in ``queue``, without the unacknowledged."""
        return self._queues[queue].depth(self._clock())

    def route(self, exchange: str, key: str) -> list[str]:
        """Return the names of the queues for a message; LinkError if there is no such exchange."""
        if not exchange:
            # The default exchange: each queue is bound with its name (section 3.1.3.1).
            return [key] if key in self._queues else []
        return self._exchanges.route(exchange, key)

    def declare_exchange(self, name: str, kind: str = "topic") -> None:
        """Declare an exchange: topic, direct or fanout; LinkError if it has another type."""
        self._exchanges.declare(name, kind)

    def delete_exchange(self, name: str) -> None:
        """Delete an exchange with its bindings, if there is one."""
        self._exchanges.delete(name)

    def declare_queue(self, name: str, options: QueueOptions, owner: StubLink | None) -> str:
        """Declare a queue; LinkError if it exists with other options."""
        if not name:
            name = f"amq.gen-{next(NAMES)}"
        queue = self._queues.get(name)
        if queue is None:
            self._queues[name] = StubQueue(options, owner if options.exclusive else None)
            self.dispatch(name)
        elif queue.options != options:
            raise LinkError(f"406 PRECONDITION_FAILED - queue '{name}' has other arguments")
        elif queue.owner not in (None, owner):
            raise LinkError(f"405 RESOURCE_LOCKED - queue '{name}' is another link's")
        return name

    def bind(self, queue: str, exchange: str, key: str) -> None:
        """Bind a queue; LinkError if the queue or the exchange is missing."""
        if queue not in self._queues:
            raise LinkError(f"404 NOT_FOUND - no queue '{queue}'")
        self._exchanges.bind(queue, exchange, key)

    def delete_queue(self, name: str) -> None:
        """Delete a queue with its bindings and messages, if there is one."""
        if self._queues.pop(name, None) is None:
            return
        self._exchanges.unbind(name)
        for consumer in list(self._consumers.get(name, ())):
            consumer.lose()

    def delete_queues_of(self, link: StubLink) -> None:
        """Delete the exclusive queues of ``link``."""
        for name in [name for name, queue in self._queues.items() if queue.owner is link]:
            self.delete_queue(name)

    def add_consumer(self, consumer: StubConsumer) -> None:
        """Give ``consumer`` its share of its queue from now on."""
        self._consumers.setdefault(consumer.queue, collections.deque()).append(consumer)
        self.dispatch(consumer.queue)

    def remove_consumer(self, consumer: StubConsumer) -> None:
        """Stop deliveries to ``consumer``; delete an auto-delete queue with its last one."""
        consumers = self._consumers.get(consumer.queue, collections.deque())
        if consumer in consumers:
            consumers.remove(consumer)
        queue = self._queues.get(consumer.queue)
        if queue is not None and queue.options.auto_delete and not consumers:
            self.delete_queue(consumer.queue)

    def put_back(self, queue: str, stored: Iterable[Stored]) -> None:
        """Requeue deliveries, each in its old place."""
        if queue in self._queues:
            self._queues[queue].put_back(stored)
            self.dispatch(queue)

    def dispatch(self, queue: str) -> None:
        """Deliver as many messages of ``queue`` as possible, in the next turn of the loop."""
        if self._consumers.get(queue):
            asyncio.get_running_loop().call_soon(self._dispatch, queue)

    def _dispatch(self, queue: str) -> None:
        while queue in self._queues and (consumer := self._next_consumer(queue)):
            stored = self._pop(queue)
            if stored is None:
                return
            consumer.deliver(stored)

    def _next_consumer(self, queue: str) -> StubConsumer | None:
        consumers = self._consumers.get(queue, collections.deque())
        for _ in range(len(consumers)):
            consumers.rotate(-1)
            if consumers[-1].has_room:
                return consumers[-1]
        return None

    def forget(self, link: StubLink) -> None:
        """Forget ``link``, which is closed for good."""
        if link in self._links:
            self._links.remove(link)


class StubLink:
    """A :class:`newsfabric.amqp.Link` to a :class:`StubBroker`."""

    def __init__(self, broker: StubBroker) -> None:
        self.broker = broker
        self.members: tuple[StubLink] = (self,)
        self.connected = broker.up
        self.trouble: LinkError | None = None
        self._undeclared: set[_Declaring] = set()
        self._closed = False
        self._declarations: list[_Declaring] = []
        self._publishers: list[StubPublisher] = []
        self._consumers: list[StubConsumer] = []

    @property
    def established(self) -> bool:
        """True if the link is up with all its declarations; consumers wait for their queue."""
        return self.connected and not self._undeclared

    async def refused(self) -> LinkRefused:
        """Wait for ever: a broker in memory refuses no login."""
        return await asyncio.Future[LinkRefused]()

    async def publisher(self, *, in_flight: int = 1000) -> StubPublisher:
        """See :meth:`newsfabric.amqp.Links.publisher`; ValueError for ``in_flight`` below 1."""
        publisher = StubPublisher(self, in_flight)
        self._publishers.append(publisher)
        return publisher

    async def consumer(
        self, queue: Queue, on_delivery: OnDelivery, *, prefetch: int = 1000
    ) -> StubConsumer:
        """See :meth:`newsfabric.amqp.Link.consumer`; ValueError for a wrong ``prefetch``."""
        consumer = StubConsumer(self, queue, on_delivery, prefetch)
        self._consumers.append(consumer)
        await consumer.resume()
        return consumer

    async def on_connect(self, declare: _Declaring) -> None:
        """See :meth:`newsfabric.amqp.Link.on_connect`; tried again by :meth:`restore` alone."""
        self._declarations.append(declare)
        if self.connected:
            await self._declare(declare)

    async def declare(self, declare: _Declaring) -> None:
        """See :meth:`newsfabric.amqp.Link.declare`."""
        if not self.connected:
            raise LinkClosed("the stub link is down")
        await declare(StubDeclare(self))

    async def _declare(self, declare: _Declaring) -> None:
        self._undeclared.discard(declare)
        try:
            await declare(StubDeclare(self))
        except LinkError as exc:
            self._undeclared.add(declare)
            logger.warning("stub link: declaration: %s", exc)

    async def close(self) -> None:
        """See :meth:`newsfabric.amqp.Links.close`; it waits one turn of the loop for confirms."""
        self._closed = True
        # Confirms are a turn of the loop away.
        await asyncio.sleep(0)
        self.lose()
        self.broker.forget(self)

    def lose(self) -> None:
        """Lose the connection: publications fail, deliveries return to their queue."""
        self.connected = False
        for publisher in self._publishers:
            publisher.lose("the link was cut")
        for consumer in self._consumers:
            consumer.pause()
        self.broker.delete_queues_of(self)

    async def restore(self) -> None:
        """Connect again: declarations first, then publishers and consumers."""
        if self.connected or self._closed:
            return
        for declare in list(self._declarations):
            await self._declare(declare)
        self.connected = True
        for publisher in self._publishers:
            publisher.update()
        for consumer in self._consumers:
            await consumer.resume()


class StubDeclare:
    """A :class:`newsfabric.amqp.Declare` for one link."""

    def __init__(self, link: StubLink) -> None:
        self._link = link

    async def exchange(self, name: str, *, type: str = "topic", durable: bool = True) -> None:
        """See :meth:`newsfabric.amqp.Declare.exchange`; ``durable`` makes no difference here."""
        self._link.broker.declare_exchange(name, type)

    async def queue(
        self, name: str, *, arguments: dict[str, Any] | None = None, **options: bool
    ) -> str:
        """See :meth:`newsfabric.amqp.Declare.queue`."""
        wanted = QueueOptions(**options, arguments=arguments or {})
        return self._link.broker.declare_queue(name, wanted, self._link)

    async def bind(self, queue: str, exchange: str, key: str) -> None:
        """See :meth:`newsfabric.amqp.Declare.bind`."""
        self._link.broker.bind(queue, exchange, key)

    async def delete_queue(self, name: str) -> None:
        """See :meth:`newsfabric.amqp.Declare.delete_queue`."""
        self._link.broker.delete_queue(name)


class StubPublisher:
    """A :class:`newsfabric.amqp.ConfirmingPublisher`: confirms arrive in the next loop turn."""

    def __init__(self, link: StubLink, in_flight: int) -> None:
        if in_flight < 1:
            raise ValueError("in_flight must be at least 1")
        self._link = link
        self._bound = in_flight
        self._unconfirmed: set[asyncio.Future[None]] = set()
        self._changed = asyncio.Event()
        self._watchers: list[Callable[[], None]] = [self._changed.set]

    @property
    def in_flight(self) -> int:
        """The number of unconfirmed publications."""
        return len(self._unconfirmed)

    async def ready(self) -> None:
        """See :meth:`newsfabric.amqp.ConfirmingPublisher.ready`."""
        while not self.is_ready:
            self._changed.clear()
            await self._changed.wait()

    @property
    def is_ready(self) -> bool:
        """See :attr:`newsfabric.amqp.ConfirmingPublisher.is_ready`."""
        return self._link.connected and len(self._unconfirmed) < self._bound

    async def publish(self, exchange: str, message: Message, *, mandatory: bool = False) -> None:
        """See :meth:`newsfabric.amqp.ConfirmingPublisher.publish`."""
        while self._link.connected and not self.is_ready:
            self._changed.clear()
            await self._changed.wait()
        await self.publish_nowait(exchange, message, mandatory=mandatory)

    def publish_nowait(
        self, exchange: str, message: Message, *, mandatory: bool = False
    ) -> asyncio.Future[None]:
        """See :meth:`newsfabric.amqp.ConfirmingPublisher.publish_nowait`."""
        if not self._link.connected:
            raise LinkClosed("no link to publish on")
        if not self.is_ready:
            raise LinkBusy(f"{len(self._unconfirmed)} unconfirmed publications")
        # Raises ValueError for a message that has no AMQP form.
        encode_publish(1, exchange, message, mandatory=mandatory, frame_max=_FRAME_MAX)
        loop = asyncio.get_running_loop()
        confirmed: asyncio.Future[None] = loop.create_future()
        self._unconfirmed.add(confirmed)
        loop.call_soon(self._arrive, confirmed, exchange, message, mandatory)
        return confirmed

    def watch(self, changed: Callable[[], None]) -> None:
        """See :meth:`newsfabric.amqp.ConfirmingPublisher.watch`."""
        self._watchers.append(changed)

    def _arrive(
        self, confirmed: asyncio.Future[None], exchange: str, message: Message, mandatory: bool
    ) -> None:
        """Take the message at the broker."""
        if confirmed not in self._unconfirmed:
            return
        error: LinkError | None = None
        try:
            if self._link.broker.nacks:
                error = PublishNacked("the broker refused the message")
            elif not self._link.broker.publish(exchange, message) and mandatory:
                error = PublishReturned(f"returned: no queue for {message.topic!r}")
        except LinkError as exc:
            # A broker closes the channel, and all publications in flight on it fail.
            self.lose(str(exc))
            return
        self._unconfirmed.discard(confirmed)
        _settle(confirmed, error)
        self.update()

    def lose(self, reason: str) -> None:
        """Fail all unconfirmed publications."""
        for confirmed in self._unconfirmed:
            _settle(confirmed, LinkClosed(reason))
        self._unconfirmed.clear()
        self.update()

    def update(self) -> None:
        """Call all watchers."""
        for changed in self._watchers:
            changed()


def _settle(confirmed: asyncio.Future[None], error: LinkError | None) -> None:
    if confirmed.done():
        return
    if error is None:
        confirmed.set_result(None)
    else:
        confirmed.set_exception(error)
        # Marks the error as retrieved: a pipeline needs no "never retrieved".
        confirmed.exception()


class StubConsumer:
    """A :class:`newsfabric.amqp.Consumer` of one queue."""

    def __init__(
        self, link: StubLink, queue: Queue, on_delivery: OnDelivery, prefetch: int
    ) -> None:
        if not 1 <= prefetch <= 65_535:
            raise ValueError("prefetch must be in 1..65535")
        self.queue = ""
        self._named = queue
        self._link = link
        self._broker = link.broker
        self._on_delivery = on_delivery
        self._prefetch = prefetch
        self._unacked: dict[int, Stored] = {}
        self._tag = 0
        self._generation = 0
        self._cancelled = False
        self._resuming: asyncio.Future[None] | None = None

    @property
    def has_room(self) -> bool:
        """True if another message may be delivered to it."""
        return len(self._unacked) < self._prefetch

    def deliver(self, stored: Stored) -> None:
        """Deliver a message, in a turn of the loop; a failed one is requeued once, then dropped."""
        self._tag += 1
        self._unacked[self._tag] = stored
        delivery = Delivery(stored.message, stored.redelivered, self._tag, self._generation)
        try:
            self._on_delivery(delivery)
        except Exception:
            what = "dropped" if delivery.redelivered else "requeued"
            logger.exception("consumer of %r: delivery %d failed, %s", self.queue, self._tag, what)
            self.reject(delivery, requeue=not delivery.redelivered)

    def ack(self, delivery: Delivery) -> None:
        """See :meth:`newsfabric.amqp.Consumer.ack`; no effect if the link was cut since."""
        self._settle(delivery)

    def reject(self, delivery: Delivery, *, requeue: bool) -> None:
        """See :meth:`newsfabric.amqp.Consumer.reject`; no effect if the link was cut since."""
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

    async def resume(self) -> None:
        """Consume again, if the link is up: it was down, or the consumer's own queue was lost."""
        if self._link.connected and not self._cancelled:
            named = self._named
            self.queue = named if isinstance(named, str) else await named(StubDeclare(self._link))
            self._generation += 1
            self._tag = 0
            self._broker.add_consumer(self)

    def pause(self) -> None:
        """Requeue all unacknowledged deliveries: the link is gone."""
        self._broker.remove_consumer(self)
        unacked = list(self._unacked.values())
        self.forget()
        self._broker.put_back(self.queue, unacked)

    def lose(self) -> None:
        """Handle the loss of the queue: wait for one of that name, or declare another own queue."""
        self.forget()
        if not isinstance(self._named, str):
            self._broker.remove_consumer(self)
            self._resuming = asyncio.ensure_future(self.resume())

    def forget(self) -> None:
        """Ignore acks of all deliveries so far from now on."""
        self._generation += 1
        self._unacked.clear()
