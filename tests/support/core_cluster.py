"""A core cluster in memory, and a router on it, for tests of the wholesale services."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from newsfabric import topology
from newsfabric.amqp import Declare, Links, Message, Properties
from newsfabric.amqp.spread import cancel_all
from newsfabric.amqp.stub import StubBroker, StubLink
from newsfabric.messages import control
from newsfabric.messages.control import Receipt, Tick
from newsfabric.messages.envelope import Envelope, decode
from newsfabric.store import Store
from newsfabric.store.logs import Log
from newsfabric.topics import TopicTable
from newsfabric.tracing.races import Races
from wholesale.common.source import QueueSource
from wholesale.router import counters
from wholesale.router.router import Router

EPOCH = 1_735_689_600_000
TIMEOUT = 60.0


async def until(holds: Callable[[], Any]) -> None:
    """Run the event loop until ``holds()`` is true; TimeoutError after 60 s."""
    async with asyncio.timeout(TIMEOUT):
        while not holds():  # noqa: ASYNC110 - what is awaited has no event of its own
            await asyncio.sleep(0)


def message(topic: str = "news.world", body: bytes = b"{}", **properties: Any) -> Message:
    return Message(topic, body, Properties(**properties))


@dataclasses.dataclass
class CoreCluster:
    """A core cluster in memory, with taps on the messages that a router publishes."""

    broker: StubBroker
    link: StubLink
    store: Store
    topics: TopicTable

    def __post_init__(self) -> None:
        self.taps: dict[str, str] = {}
        self.seen: dict[str, list[Message]] = {}

    async def open(self) -> None:
        part = topology.core(self.topics)

        async def declare(broker: Declare) -> None:
            await topology.declare_part(broker, part)

        await self.link.on_connect(declare)
        for exchange in ("postoffice", "outbound", "rejected", "receipts"):
            self.taps[exchange] = self.broker.tap(exchange)
            self.seen[exchange] = []

    def publish(self, *messages: Message) -> None:
        for each in messages:
            self.broker.publish("intake", each)

    def arrived(self, exchange: str) -> list[Message]:
        """Return all messages published to ``exchange`` so far, without ticks."""
        new = self.broker.pop_messages(self.taps[exchange])
        self.seen[exchange] += [m for m in new if m.properties.type != control.TICK]
        return self.seen[exchange]

    def envelopes(self, exchange: str = "postoffice") -> list[Envelope]:
        return [decode(m) for m in self.arrived(exchange)]

    def receipts(self) -> list[Receipt]:
        return [control.decode_receipt(m) for m in self.arrived("receipts")]

    def ticks(self) -> list[Tick]:
        found = self.broker.pop_messages(self.taps["postoffice"])
        return [control.decode_tick(m) for m in found if m.properties.type == control.TICK]

    async def none_owed(self, router: Router) -> None:
        """Wait until the broker's queues are empty and the router has settled all its messages."""
        await until(lambda: all(self.broker.depth(q) == 0 for q in topology.router_queues()))
        async with asyncio.timeout(TIMEOUT):
            await router.settled()


@contextlib.asynccontextmanager
async def running(
    core: CoreCluster,
    *,
    name: str = "oregon-router-1",
    link: Links | None = None,
    now_ms: Callable[[], int] = lambda: EPOCH,
    now: Callable[[], float] = time.monotonic,
    queues: Sequence[str] = topology.router_queues(),
    prefetch: int = 500,
    bronze_room: int = 250,
    epoch: int = EPOCH,
    awake: Callable[[], float] = lambda: 0.0,
) -> AsyncIterator[Router]:
    """Run a router on ``core`` that consumes ``queues``.

    Its clocks stand still by default: ids have the time ``EPOCH``, and a lease never ends.
    """
    link = link or core.link
    router = Router(
        Log("oregon", name, epoch),
        topics=core.topics,
        store=core.store,
        routes=await link.publisher(),
        answers=await link.publisher(),
        races=Races(counters.COPIES, counters.LEAD),
        now_ms=now_ms,
        now=now,
        bronze_room=bronze_room,
        awake=awake,
    )
    task = asyncio.create_task(router.run())
    consumers = []
    for queue, member in itertools.product(queues, link.members):
        source = QueueSource()
        take = functools.partial(router.take_delivery, source)
        consumer = await member.consumer(queue, take, prefetch=prefetch)
        source.attach(consumer)
        consumers.append(consumer)
    try:
        yield router
    finally:
        await cancel_all(consumers)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
