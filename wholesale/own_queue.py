"""A queue of a process's own, on what is said to many of them: reports, receipts.

Each process hears all of it, unlike the queues that services compete on. What isn't taken soon is
dropped: the next one says more. The queue goes with its connection.

There is one on each of the brokers. What was published to all of them comes by each, and is taken
once: the copies of the others are dropped before anybody reads them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from newsfabric.amqp import Consumer, Declare, Link, Links
from newsfabric.amqp.message import Delivery, Message
from newsfabric.topology import Bounds
from wholesale.source import QueueSource

# Of a thousand boxes, and the two minutes of a region's services that a broker may hang.
_REMEMBERED: Final = 8192


async def consume_own(
    links: Links,
    take: Callable[[Delivery], None],
    *,
    exchange: str,
    key: str,
    bounds: Bounds,
) -> list[Consumer]:
    """Give ``take`` what ``exchange`` gets with ``key``, each acknowledged as soon as it was taken.

    A queue is declared on each broker, again after each reconnection and when it was lost, as that
    connection's alone. The broker gives it a name: a service's rights cover no other.
    """
    heard = Heard()

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


class Heard:
    """What has come lately, at most ``most`` of it: the oldest is forgotten first. Pure."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        # By what was said, the broker that was the first to bring it.
        self._first: dict[int, int] = {}

    def is_new(self, message: Message, broker: int) -> bool:
        """Whether no other broker has brought ``message``, which came by ``broker``.

        Of its properties those count that say from whom it is and for whom: a broker has checked
        the first, so nobody can have another's word dropped by saying it before.
        """
        properties = message.properties
        about = message.topic, properties.user_id, properties.correlation_id, message.body
        # In-process, with a secret of its own.
        first = self._first.setdefault(hash(about), broker)
        if len(self._first) > self._most:
            del self._first[next(iter(self._first))]
        return first == broker
