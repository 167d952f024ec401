"""AMQP for asyncio: what services ask of a broker, as protocols.

Two implementations, one contract suite (tests/amqp): :func:`newsfabric.amqp.link.connect` over
pika (the only importer of pika is this package) and
:class:`newsfabric.amqp.stub.StubBroker` in memory, for unit tests.

A :class:`Link` reconnects by itself, with full jitter, to any of its URLs, and
brings its consumers and its topology back. What was in flight when it broke
fails with :class:`~newsfabric.errors.LinkClosed`; whoever cares sends it again.

:class:`Links` are what a service has of brokers side by side (:mod:`newsfabric.amqp.spread`).
A link is links, too: to one broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from newsfabric.amqp.message import Delivery, Message, Properties
from newsfabric.errors import LinkError, LinkRefused

__all__ = [
    "ConfirmingPublisher",
    "Consumer",
    "Declare",
    "Delivery",
    "Link",
    "Links",
    "Message",
    "OnDelivery",
    "Properties",
    "Queue",
]

# Called on the loop for each delivery; must not block. Exceptions in it are bugs: counted, and
# logged at ERROR, seldom. The first time the delivery goes back to its queue, for another consumer
# may do better; one that was redelivered is thrown away, or it would come round for ever.
OnDelivery = Callable[[Delivery], None]


class Declare(Protocol):
    """Declares exchanges, queues and bindings; see :meth:`Link.on_connect`.

    What the broker refuses raises LinkError with its words; others can be declared after it.
    """

    async def exchange(self, name: str, *, type: str = "topic", durable: bool = True) -> None:
        """Declare an exchange; no error if it is there with the same type."""

    async def queue(
        self,
        name: str,
        *,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
    ) -> str:
        """Declare a queue and return its name (the broker makes one up for ``""``)."""

    async def bind(self, queue: str, exchange: str, key: str) -> None:
        """Bind ``queue`` to ``exchange`` with ``key``."""

    async def delete_queue(self, name: str) -> None:
        """Delete a queue; no error if there is none."""


# What a consumer takes from: the name of a queue, or what declares one of the consumer's own, which
# goes with it (``auto_delete``), and returns its name.
Queue = str | Callable[[Declare], Awaitable[str]]


class ConfirmingPublisher(Protocol):
    """Publishes with confirms; at most ``in_flight`` are unconfirmed at a time."""

    async def publish(self, exchange: str, message: Message, *, mandatory: bool = False) -> None:
        """Publish and wait for the broker's confirm.

        Waits while ``in_flight`` are unconfirmed. Raises LinkClosed when the link breaks
        first or is down (also when there is no such exchange), LinkRefused when we may not publish
        this, or something else that was in flight, PublishNacked when the broker refuses or
        (``mandatory``) returns it.
        """

    def publish_nowait(
        self, exchange: str, message: Message, *, mandatory: bool = False
    ) -> asyncio.Future[None]:
        """Publish without waiting; await the result for the confirm.

        For pipelines. Raises LinkBusy at the bound and while the broker is out of room
        (use :meth:`ready`), LinkClosed when down, ValueError for a message with no AMQP form.
        What a consumer was given always has one. An unawaited failure isn't reported as
        "never retrieved".
        """

    async def ready(self) -> None:
        """Return as soon as the link is up and fewer than ``in_flight`` are unconfirmed."""

    @property
    def is_ready(self) -> bool:
        """Whether :meth:`ready` would return at once: not while the broker is out of room."""

    @property
    def in_flight(self) -> int:
        """How many are unconfirmed now."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Call ``changed``, which must not block, whenever :attr:`is_ready` may be another."""


class Consumer(Protocol):
    """Takes deliveries from one queue until :meth:`cancel`, across reconnects."""

    def ack(self, delivery: Delivery) -> None:
        """Acknowledge. Acks of a contiguous run leave as one ``multiple`` ack per loop turn."""

    def reject(self, delivery: Delivery, *, requeue: bool) -> None:
        """Give a delivery back (``requeue``) or throw it away."""

    async def cancel(self) -> None:
        """Stop taking deliveries; those unacknowledged can still be acked until the link closes."""


class Links(Protocol):
    """A link to each of some brokers that stand side by side, kept alive until :meth:`close`.

    What is consumed is consumed on each of :attr:`members`: what came from one broker is
    acknowledged there. What is published goes to all.
    """

    @property
    def members(self) -> Sequence[Link]:
        """The link to each broker."""

    @property
    def connected(self) -> bool:
        """Whether a link is up now."""

    @property
    def established(self) -> bool:
        """Whether one is up, all that is declared is there, and all its consumers consume.

        What a broker refuses is tried again: a service that is up and consumes nothing isn't ready.
        """

    async def publisher(self, *, in_flight: int = 1000) -> ConfirmingPublisher:
        """A publisher on its own channel in confirm mode; usable at once if a link is up."""

    async def close(self) -> None:
        """Flush acks, wait briefly for confirms, close. No task is left behind."""


class Link(Links, Protocol):
    """One connection to a broker, or to one of several."""

    @property
    def trouble(self) -> LinkError | None:
        """Why it isn't up: what the last try came to. None before, and while it is up."""

    async def refused(self) -> LinkRefused:
        """Return their words as soon as every broker turned it away when it was last asked."""

    async def consumer(
        self, queue: Queue, on_delivery: OnDelivery, *, prefetch: int = 1000
    ) -> Consumer:
        """Consume ``queue`` with acks, again after each reconnect (and :meth:`on_connect`).

        While the queue doesn't exist, tries again with backoff. One of its own is declared on each
        connection, and again when it was lost there: the broker deleted it, or an operator did.
        ``on_delivery`` isn't called before this has returned.
        """

    async def on_connect(self, declare: Callable[[Declare], Awaitable[None]]) -> None:
        """Run ``declare`` now and, before consumers resume, after each reconnect.

        While the link is down this returns at once. A LinkError out of ``declare`` is
        logged, and it is tried again with backoff.
        """

    async def declare(self, declare: Callable[[Declare], Awaitable[None]]) -> None:
        """Run ``declare`` once, now: for what somebody may have deleted since :meth:`on_connect`.

        LinkClosed while the link is down; what the broker refuses is a LinkError.
        """
