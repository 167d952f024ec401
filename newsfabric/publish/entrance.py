"""A broker as a publisher sees it: a link to it, and the queue for its receipts."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Self

from newsfabric.amqp import ConfirmingPublisher, Consumer, Declare, Delivery, Link, Message
from newsfabric.errors import LinkBusy, LinkError, LinkRefused
from newsfabric.messages.control import Receipt, decode_receipt
from newsfabric.topology import PUBLISH, TO_QUEUES

logger = logging.getLogger(__name__)


class Entrance:
    """A publisher through one broker. Begin with :meth:`open`; close it.

    ``on_receipt`` is called with each receipt's ``correlation_id`` and the receipt. ``user_id`` is
    the link's login, for messages that shall have it. ``arguments`` are those of the queue for
    receipts, ``receipts`` is the exchange that it is bound to, where no shovel brings receipts.
    """

    _consumer: Consumer
    _publisher: ConfirmingPublisher

    def __init__(
        self,
        link: Link,
        *,
        on_receipt: Callable[[str, Receipt], None],
        user_id: str | None = None,
        exchange: str = PUBLISH,
        receipts: str = TO_QUEUES,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        self._link = link
        self._user_id = user_id
        self._arguments = arguments
        self._exchange = exchange
        self._receipts = receipts
        # The address of receipts: the name that the broker gave the current queue. A publisher's
        # rights (docs/guarantees.md) cover no other name.
        self._reply_to = ""
        self._on_receipt = on_receipt
        # Whether the queue for receipts exists, and whether the broker refuses it.
        self._declared, self._forbidden = asyncio.Event(), asyncio.Event()
        self._refusal: LinkError | None = None

    async def open(self, *, window: int) -> Self:
        """Begin; at most ``window`` publications are unconfirmed at a time."""
        self._consumer = await self._link.consumer(self._declare, self._on_delivery)
        self._publisher = await self._link.publisher(in_flight=window)
        return self

    @property
    def connected(self) -> bool:
        """True if the broker can be used now."""
        return self._link.connected and self._declared.is_set() and self._publisher.is_ready

    @property
    def trouble(self) -> LinkError | None:
        """The reason why the broker can't be used, None if there is no trouble."""
        return self._link.trouble or self._refusal

    async def ready(self) -> None:
        """Return as soon as the broker would take a message."""
        await self._declared.wait()
        await self._publisher.ready()

    async def refused(self) -> None:
        """Return as soon as the broker refuses us; :attr:`trouble` is the reason."""
        await first_of(self._link.refused(), self._forbidden.wait())

    async def publish(self, message: Message, correlation_id: str) -> None:
        """Publish until the broker has confirmed; LinkError if it refuses, is gone or has no room.

        Doesn't wait for room: another broker may have some.
        """
        if not self._publisher.is_ready:
            raise LinkBusy("the broker takes no more now")
        properties = message.properties
        properties = dataclasses.replace(
            properties,
            correlation_id=correlation_id,
            reply_to=self._reply_to,
            user_id=self._user_id or properties.user_id,
        )
        addressed = dataclasses.replace(message, properties=properties)
        await self._publisher.publish(self._exchange, addressed, mandatory=True)

    async def close(self) -> None:
        """Close the link."""
        await self._link.close()

    async def _declare(self, declare: Declare) -> str:
        # Receipts that were addressed to an earlier one are lost: their messages are sent again.
        self._declared.clear()
        try:
            self._reply_to = await declare.queue(
                "", durable=False, exclusive=True, auto_delete=True, arguments=self._arguments
            )
            if self._receipts:
                await declare.bind(self._reply_to, self._receipts, self._reply_to)
        except LinkRefused as exc:
            self._refusal = exc
            self._forbidden.set()
            raise
        self._refusal = None
        self._forbidden.clear()
        self._declared.set()
        return self._reply_to

    def _on_delivery(self, delivery: Delivery) -> None:
        self._consumer.ack(delivery)
        try:
            receipt = decode_receipt(delivery.message)
        except ValueError as exc:
            logger.debug("no receipt: %s", exc)
            return
        self._on_receipt(delivery.message.properties.correlation_id or "", receipt)


async def first_of(*work: Coroutine[Any, Any, Any]) -> None:
    """Return, or raise, as the first of ``work`` does; the others are cancelled."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await cancel(tasks)


async def cancel(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel ``tasks`` and return when all have ended, with or without an error."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
