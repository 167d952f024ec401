"""One queue that a service consumes."""

from __future__ import annotations

from collections.abc import Callable

from newsfabric.amqp import Consumer
from newsfabric.amqp.message import Delivery


class QueueSource:
    """Acks for one queue's deliveries, and which of them the broker has taken back.

    Deliveries may come before the consumer that they belong to is known; acks wait until then.
    """

    def __init__(self) -> None:
        self._consumer: Consumer | None = None
        self._generation = 0
        # What is to be said of deliveries as soon as there is a consumer.
        self._early: list[Callable[[Consumer], None]] = []

    def attach(self, consumer: Consumer) -> None:
        """``consumer`` is where acks go."""
        self._consumer = consumer
        for say in self._early:
            say(consumer)
        self._early.clear()

    def saw(self, delivery: Delivery) -> bool:
        """Note ``delivery``; True if its channel is new, so that all before it are stale."""
        renewed = delivery.generation != self._generation
        self._generation = delivery.generation
        return renewed

    def ack(self, delivery: Delivery) -> None:
        """Acknowledge ``delivery``."""
        if self._consumer is None:
            self._early.append(lambda consumer: consumer.ack(delivery))
        else:
            self._consumer.ack(delivery)

    def give_back(self, delivery: Delivery) -> None:
        """Have the broker put ``delivery`` back into its queue."""
        if self._consumer is None:
            self._early.append(lambda consumer: consumer.reject(delivery, requeue=True))
        else:
            self._consumer.reject(delivery, requeue=True)

    def is_stale(self, delivery: Delivery) -> bool:
        """Whether ``delivery`` came on a channel that is gone."""
        return delivery.generation != self._generation
