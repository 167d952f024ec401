"""One region as a publisher sees it: a link to its client cluster, and the queue for receipts."""

from __future__ import annotations

import dataclasses
import logging
import secrets
from collections.abc import Callable
from typing import Self

from newsfabric.amqp import Consumer, Declare, Delivery, Link, Message, Publisher
from newsfabric.control import Receipt, decode_receipt
from newsfabric.topology import PUBLISH, RECEIPTS

logger = logging.getLogger(__name__)


class Entrance:
    """Publishes into one region. Made by :meth:`over`; close it.

    ``on_receipt`` is given each receipt with its ``correlation_id``.
    """

    _consumer: Consumer
    _publisher: Publisher

    def __init__(
        self,
        link: Link,
        app_id: str,
        on_receipt: Callable[[str, Receipt], None],
        user_id: str | None,
    ) -> None:
        self._link = link
        self._user_id = user_id
        # Its name is its key, and what receipts are addressed to. A publisher's rights
        # (docs/guarantees.md) cover what begins with its name.
        self._reply_to = f"{app_id}.receipts.{secrets.token_hex(8)}"
        self._on_receipt = on_receipt

    @classmethod
    async def over(
        cls,
        link: Link,
        *,
        app_id: str,
        window: int,
        on_receipt: Callable[[str, Receipt], None],
        user_id: str | None = None,
    ) -> Self:
        """An entrance over ``link``, which it closes; at most ``window`` unconfirmed at a time.

        ``user_id`` is what it logs in as, where messages shall say so.
        """
        entrance = cls(link, app_id, on_receipt, user_id)
        try:
            await link.on_connect(entrance._declare)
            entrance._consumer = await link.consumer(entrance._reply_to, entrance._on_delivery)
            entrance._publisher = await link.publisher(in_flight=window)
        except BaseException:
            await link.close()
            raise
        return entrance

    @property
    def connected(self) -> bool:
        """Whether its link is up now."""
        return self._link.connected

    async def ready(self) -> None:
        """Return as soon as the broker would take a message."""
        await self._publisher.ready()

    async def publish(self, message: Message) -> None:
        """Publish until the broker has confirmed; LinkError if it won't, or is gone."""
        properties = dataclasses.replace(
            message.properties, reply_to=self._reply_to, user_id=self._user_id
        )
        addressed = dataclasses.replace(message, properties=properties)
        await self._publisher.publish(PUBLISH, addressed, mandatory=True)

    async def close(self) -> None:
        """Close the link."""
        await self._link.close()

    async def _declare(self, declare: Declare) -> None:
        await declare.queue(self._reply_to, durable=False, exclusive=True, auto_delete=True)
        await declare.bind(self._reply_to, RECEIPTS, self._reply_to)

    def _on_delivery(self, delivery: Delivery) -> None:
        self._consumer.ack(delivery)
        try:
            receipt = decode_receipt(delivery.message)
        except ValueError as exc:
            logger.debug("no receipt: %s", exc)
            return
        self._on_receipt(delivery.message.properties.correlation_id or "", receipt)
