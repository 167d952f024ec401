"""A process's own queue on each broker, for broadcasts to many processes: reports, receipts.

Each process receives all of them, unlike the queues on which services compete. Messages that aren't
consumed soon are dropped, since the next ones are newer. The broker deletes the queue with its
connection.

A message published to all brokers arrives by each of them and is taken once: copies from the other
brokers are dropped before they are decoded. Two messages with the same topic, sender and body are
one here, so it isn't for publishers' messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from newsfabric.amqp import Consumer, Declare, Link, Links
from newsfabric.amqp.message import Delivery, Message
from newsfabric.topology import Bounds
from wholesale.common.source import QueueSource

# Reports of a thousand boxes, and of a region's services for the two minutes that a broker may
# hang.
_REMEMBERED: Final = 8192


async def consume_own(
    links: Links,
    take: Callable[[Delivery], None],
    *,
    exchange: str,
    key: str,
    bounds: Bounds,
) -> list[Consumer]:
    """Call ``take`` with each message of ``exchange`` and ``key``, acknowledged when it returns.

    An exclusive queue is declared on each broker, and again after each reconnection or loss. The
    broker names it: a service's rights cover no other name.
    """
    heard = FirstDeliveries()

    async def consume(broker: int, link: Link) -> Consumer:
        async def declare(broker: Declare) -> str:
            name = await broker.queue(
                "", durable=False, exclusive=True, auto_delete=True, arguments=bounds.arguments()
            )
            await broker.bind(name, exchange, key)
            return name

        source = QueueSource()

        def on_delivery(delivery: Delivery) -> None:
            source.saw(delivery)
            if heard.is_new(delivery.message, broker):
                take(delivery)
            source.ack(delivery)

        consumer = await link.consumer(declare, on_delivery)
        source.attach(consumer)
        return consumer

    return await asyncio.gather(*(consume(n, link) for n, link in enumerate(links.members)))


class FirstDeliveries:
    """The messages received lately, at most ``most``: the oldest is forgotten first. Pure."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        # Hash of a message → the index of the broker that delivered it first.
        self._first: dict[int, int] = {}

    def is_new(self, message: Message, broker: int) -> bool:
        """Return whether no other broker than ``broker`` has delivered ``message`` before.

        Besides topic and body the sender, which a broker has validated, and the addressee are
        compared. So no process can get another's message dropped by sending the same one before.
        """
        properties = message.properties
        about = message.topic, properties.user_id, properties.correlation_id, message.body
        # Only compared in this process; Python's hash has a random secret for each process.
        first = self._first.setdefault(hash(about), broker)
        if len(self._first) > self._most:
            del self._first[next(iter(self._first))]
        return first == broker
