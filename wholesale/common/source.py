"""A queue that a service consumes."""

from __future__ import annotations

from collections.abc import Callable

from newsfabric.amqp import Consumer
from newsfabric.amqp.message import Delivery


class QueueSource:
    """Acknowledgements of one queue's deliveries, and the check for stale deliveries.

    Deliveries may arrive before their consumer is known; their acknowledgements wait until then.
    """

    def __init__(self) -> None:
        self._consumer: Consumer | None = None
        self._generation = 0
        # Acknowledgements and rejections to send as soon as there is a consumer.
        self._early: list[Callable[[Consumer], None]] = []

    def attach(self, consumer: Consumer) -> None:
        """Send acknowledgements to ``consumer`` from now on, those that waited first."""
        self._consumer = consumer
        for say in self._early:
            say(consumer)
        self._early.clear()

    def saw(self, delivery: Delivery) -> bool:
        """Note ``delivery``. Return True if its channel is new: all earlier ones are stale."""
        renewed = delivery.generation != self._generation
        self._generation = delivery.generation
        return renewed

    def ack(self, delivery: Delivery) -> None:
        """Acknowledge ``delivery``."""
        if self._consumer is None:
            self._early.append(lambda consumer: consumer.ack(delivery))
        else:
            self._consumer.ack(delivery)

    def requeue(self, delivery: Delivery) -> None:
        """Have the broker put ``delivery`` back into its queue."""
        if self._consumer is None:
            self._early.append(lambda consumer: consumer.reject(delivery, requeue=True))
        else:
            self._consumer.reject(delivery, requeue=True)

    def is_stale(self, delivery: Delivery) -> bool:
        """Return whether ``delivery`` came on a closed channel: the broker delivers it again."""
        return delivery.generation != self._generation
