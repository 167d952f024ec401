"""A publisher that wants receipts: sends, waits, sends again until it knows.

A broker's confirm only says "taken"; the receipt says stored and routed, or why not. Without
one in time the message is sent again with the same ``message_id``, which the fabric knows for
the same message. Each time it waits longer: a fabric that is behind is only
set back by repeats.
"""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, Self

from newsfabric.amqp import Consumer, Declare, Delivery, Link, Message, Publisher
from newsfabric.amqp.link import connect
from newsfabric.control import Receipt, decode_receipt
from newsfabric.errors import LinkClosed
from newsfabric.topology import PUBLISH, RECEIPTS

APP_ID: Final = "newsfabric-cli"
# A receipt takes milliseconds; its way back may be cut for as long as a shovel reconnects.
_SEND_AGAIN: Final = 2.0
# How many times as long it waits in the end.
_PATIENCE: Final = 5.0
_IN_FLIGHT: Final = 1000


def pauses(first: float) -> Iterator[float]:
    """How long to wait for a receipt each time: ``first`` seconds, then ever longer, for ever."""
    pause = first
    while True:
        yield pause
        pause = min(2 * pause, _PATIENCE * first)


class Sender:
    """Publishes to one region's client cluster and collects the receipts.

    Made by :meth:`open` or :meth:`over`; close it.
    """

    _consumer: Consumer
    _publisher: Publisher

    def __init__(self, link: Link, send_again: float, exchange: str) -> None:
        self._link = link
        self._exchange = exchange
        self._send_again = send_again
        # The queue's name is its key, and what receipts are addressed to.
        self._reply_to = f"receipts.{secrets.token_hex(8)}"
        self._waiting: dict[str, asyncio.Future[Receipt]] = {}

    @classmethod
    async def open(cls, urls: Sequence[str], *, name: str) -> Self:
        """A sender to the cluster at ``urls``. It connects by itself, also again."""
        return await cls.over(await connect(urls, name=name))

    @classmethod
    async def over(
        cls, link: Link, *, send_again: float = _SEND_AGAIN, exchange: str = PUBLISH
    ) -> Self:
        """A sender over ``link``, which it closes; it first sends again after ``send_again`` s."""
        sender = cls(link, send_again, exchange)
        try:
            await link.on_connect(sender._declare)
            sender._consumer = await link.consumer(sender._reply_to, sender._on_receipt)
            sender._publisher = await link.publisher(in_flight=_IN_FLIGHT)
        except BaseException:
            await link.close()
            raise
        return sender

    async def close(self) -> None:
        """Close the link."""
        await self._link.close()

    async def send(self, message: Message) -> Receipt:
        """Publish ``message``, which has a ``message_id``, until there is a receipt; return that.

        PublishNacked when the broker refuses it.
        """
        message_id = message.properties.message_id
        assert message_id is not None
        properties = dataclasses.replace(
            message.properties, reply_to=self._reply_to, correlation_id=message_id
        )
        wanting = dataclasses.replace(message, properties=properties)
        answer: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting[message_id] = answer
        try:
            for pause in pauses(self._send_again):
                await self._publish(wanting)
                await asyncio.wait([answer], timeout=pause)
                if answer.done():
                    return answer.result()
            raise AssertionError("it never stops sending")
        finally:
            del self._waiting[message_id]

    async def _publish(self, message: Message) -> None:
        """Publish until the broker has confirmed; PublishNacked when it refuses."""
        while True:
            await self._publisher.ready()
            with suppress(LinkClosed):
                await self._publisher.publish(self._exchange, message)
                return

    async def _declare(self, declare: Declare) -> None:
        await declare.queue(self._reply_to, durable=False, exclusive=True, auto_delete=True)
        await declare.bind(self._reply_to, RECEIPTS, self._reply_to)

    def _on_receipt(self, delivery: Delivery) -> None:
        self._consumer.ack(delivery)
        correlation_id = delivery.message.properties.correlation_id
        answer = self._waiting.get(correlation_id or "")
        with suppress(ValueError):
            receipt = decode_receipt(delivery.message)
            if answer is not None and not answer.done():
                answer.set_result(receipt)
