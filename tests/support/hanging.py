"""Brokers in memory that can hang, like a stopped node."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from newsfabric.amqp import Delivery, OnDelivery, Queue
from newsfabric.amqp.spread import SpreadLink
from newsfabric.amqp.stub import StubBroker, StubConsumer, StubLink, StubPublisher


class HangingBroker(StubBroker):
    """A broker that can hang: its links stay up and accept all sends, but nothing is processed."""

    def __init__(self) -> None:
        super().__init__()
        self.going_on = asyncio.Event()
        self.going_on.set()
        self._held: list[Callable[[], object]] = []

    def connect(self) -> StubLink:
        link = _Link(self)
        self._links.append(link)
        return link

    def hang(self) -> None:
        self.going_on.clear()

    def go_on(self) -> None:
        """Process now all that was sent while the broker hung."""
        self.going_on.set()
        held, self._held = self._held, []
        for each in held:
            each()

    def in_turn(self, work: Callable[[], object]) -> None:
        if self.going_on.is_set():
            work()
        else:
            self._held.append(work)

    def _dispatch(self, queue: str) -> None:
        self.in_turn(functools.partial(super()._dispatch, queue))


class _Link(StubLink):
    broker: HangingBroker

    async def publisher(self, *, in_flight: int = 1000) -> StubPublisher:
        publisher = _Publisher(self, in_flight)
        self._publishers.append(publisher)
        return publisher

    async def consumer(
        self, queue: Queue, on_delivery: OnDelivery, *, prefetch: int = 1000
    ) -> StubConsumer:
        consumer = _Consumer(self, queue, on_delivery, prefetch)
        self._consumers.append(consumer)
        await consumer.resume()
        return consumer


class _Publisher(StubPublisher):
    def _arrive(self, *sent: Any) -> None:
        self._link.broker.in_turn(functools.partial(super()._arrive, *sent))


class _Consumer(StubConsumer):
    def ack(self, delivery: Delivery) -> None:
        self._broker.in_turn(functools.partial(super().ack, delivery))

    async def cancel(self) -> None:
        """Stop deliveries at once; return only when the broker runs and can confirm."""
        await super().cancel()
        await self._broker.going_on.wait()


def brokers(count: int) -> list[HangingBroker]:
    return [HangingBroker() for _ in range(count)]


def spread(*sides: StubBroker) -> SpreadLink:
    """Return a link to each of ``sides``, named b1, b2, …"""
    return SpreadLink({f"b{n}": side.connect() for n, side in enumerate(sides, 1)})
