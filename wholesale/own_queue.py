"""A queue of a process's own, on what is said to many of them: reports, receipts.

Each process hears all of it, unlike the queues that services compete on. What isn't taken soon is
dropped: the next one says more. The queue goes with its connection.
"""

from __future__ import annotations

from collections.abc import Callable

from newsfabric.amqp import Consumer, Declare, Link
from newsfabric.amqp.message import Delivery
from newsfabric.topology import Bounds
from wholesale.source import QueueSource


async def consume_own(
    link: Link,
    queue: str,
    take: Callable[[Delivery], None],
    *,
    exchange: str,
    key: str,
    bounds: Bounds,
) -> Consumer:
    """Give ``take`` what ``exchange`` gets with ``key``, each acknowledged as soon as it was taken.

    ``queue`` is declared, again after each reconnection, as this connection's alone: its name must
    differ from those of other processes.
    """

    async def declare(broker: Declare) -> None:
        await broker.queue(
            queue,
            durable=False,
            exclusive=True,
            auto_delete=True,
            arguments=bounds.arguments(),
        )
        await broker.bind(queue, exchange, key)

    await link.on_connect(declare)
    source = QueueSource()

    def on_delivery(delivery: Delivery) -> None:
        source.saw(delivery)
        take(delivery)
        source.ack(delivery)

    consumer = await link.consumer(queue, on_delivery)
    source.attach(consumer)
    return consumer
