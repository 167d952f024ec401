"""More than the store can write, over real brokers and shovels: waiting and dropped messages, and
the time of recovery."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from pathlib import Path

import pika
import pytest
from brokers import NamedNodes as Nodes
from metric_values import value

from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.amqp import Message
from newsfabric.amqp.link import connect
from newsfabric.messages.control import Receipt
from newsfabric.messages.envelope import Envelope
from newsfabric.publish import AsyncPublisher
from newsfabric.settings import Credentials, Fabric, Region
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicTable, parse_topics
from newsfabric.topology import parts
from newsfabric.topology.values import ROUTER_BOUNDS
from operations.cli.messages import make_message
from shovels.apply import ManagementClients, carry_out, read_state
from wholesale.router import counters
from wholesale.router.service import RouterService, RouterSettings

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

TOPICS = parse_topics(
    {
        "topic": [
            {"pattern": "live.*", "class": "gold"},
            {"pattern": "ticks.*", "class": "bronze"},
            {"pattern": "news.*"},
        ]
    }
)
logger = logging.getLogger(__name__)

# Small, so that a few seconds of load reach the bounds.
QUEUE = 1000
PREFETCH = 400
QUEUES = ("router.1", "router.2")
FLOOD = 6000
GOLD = 120
PATIENCE = 60.0


class SlowStore(MemoryStore):
    """A store that writes some 400 messages a second."""

    def __init__(self, topics: TopicTable) -> None:
        super().__init__(topics)
        self.stored: collections.Counter[str] = collections.Counter()

    async def write(self, envelopes: Sequence[Envelope]) -> None:
        await asyncio.sleep(0.0025 * len(envelopes))
        await super().write(envelopes)
        self.stored.update(each.topic.partition(".")[0] for each in envelopes)


@pytest.fixture
def nodes(rabbitmq_home: RabbitmqHome, tmp_path: Path) -> Iterator[Nodes]:
    with Nodes(tmp_path, rabbitmq_home, ["oregon-client-1", "oregon-core-1"]) as started:
        yield started


@pytest.fixture
async def store() -> SlowStore:
    return SlowStore(TOPICS)


@pytest.fixture
async def region(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> Region:
    """Make the shovels and queues of a region."""
    small = dataclasses.replace(ROUTER_BOUNDS, max_length=QUEUE)
    monkeypatch.setattr(parts, "ROUTER_BOUNDS", small)
    region = Region(
        name="oregon",
        frontdesk_url="http://127.0.0.1:1",
        client=(nodes.node("oregon-client-1"),),
        core=(nodes.node("oregon-core-1"),),
    )
    async with ManagementClients(Fabric((region,)), Credentials()) as brokers:
        done = await carry_out(brokers, await read_state(brokers, "oregon", TOPICS))
    assert [(each.action, each.error) for each in done if each.error] == []
    return region


@pytest.fixture
async def router(region: Region, store: SlowStore) -> AsyncIterator[RouterService]:
    link = await connect([region.core[0].amqp_url], name="router")
    settings = RouterSettings(
        name="r1", region="oregon", queues=QUEUES, prefetch=PREFETCH, bronze_room=PREFETCH // 2
    )
    service = RouterService(settings, links=link, taking=link, store=store, topics=TOPICS)
    stop = asyncio.Event()
    task = asyncio.create_task(service.serve(stop))
    await service.listening.wait()
    yield service
    stop.set()
    await task
    await link.close()


def numbered(topic: str, number: int) -> Message:
    return make_message(
        f"{topic}.x", b"{}", message_id=f"{topic}-{number}", app_id="desk", now_ms=1
    )


@contextlib.asynccontextmanager
async def sending(region: Region) -> AsyncIterator[AsyncPublisher]:
    urls = [region.client[0].amqp_url]
    async with await AsyncPublisher.open(urls, app_id="desk", timeout=None) as publisher:
        yield publisher


async def flood(region: Region) -> None:
    """Publish silver and bronze without receipts, as fast as the broker confirms them."""
    link = await connect([region.client[0].amqp_url], name="flood")
    try:
        publisher = await link.publisher(in_flight=500)
        confirms: collections.deque[Awaitable[None]] = collections.deque()
        for n in range(FLOOD):
            for topic in ("news", "ticks"):
                await publisher.ready()
                confirms.append(publisher.publish_nowait("publish", numbered(topic, n)))
        for confirm in confirms:
            await confirm
    finally:
        await link.close()


async def paced(publisher: AsyncPublisher, topic: str, count: int, seconds: float) -> list[float]:
    """Return the seconds that each of ``count`` messages waited for its receipt ``routed``."""

    async def timed(number: int) -> tuple[float, Receipt]:
        await asyncio.sleep(seconds * number / count)
        start = time.monotonic()
        receipt = await publisher.send(numbered(topic, 100_000 + number))
        return time.monotonic() - start, receipt

    answers = await asyncio.gather(*(timed(n) for n in range(count)))
    assert {receipt.status for _, receipt in answers} == {"routed"}
    return [waited for waited, _ in answers]


def depths(url: str) -> dict[str, int]:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        found = (channel.queue_declare(name, passive=True).method for name in QUEUES)
        return {method.queue: method.message_count for method in found}


@dataclasses.dataclass
class QueueHighs:
    """The most messages seen waiting, in a queue and in the router."""

    url: str
    router: RouterService
    in_queue: int = 0
    in_router: int = 0

    async def close_due(self) -> int:
        found = await asyncio.to_thread(depths, self.url)
        self.in_queue = max(self.in_queue, *found.values())
        self.in_router = max(self.in_router, self.router.under_way)
        return sum(found.values())

    async def run(self) -> None:
        while True:
            await self.close_due()
            await asyncio.sleep(0.1)

    async def until_empty(self) -> float:
        """Return the seconds until nothing waits any more."""
        start = time.monotonic()
        async with asyncio.timeout(PATIENCE):
            # A broker's queues have no events to wait for.
            while await self.close_due() or self.router.under_way:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return time.monotonic() - start


@pytest.mark.promise("O1", "O2", "O3", "O4", "O5")
async def test_under_overload_gold_arrives_bronze_is_dropped_and_all_is_bounded(
    region: Region, router: RouterService, store: SlowStore
) -> None:
    shed_before = value(counters.SHED)
    watch = QueueHighs(region.core[0].amqp_url, router)
    async with sending(region) as publisher, asyncio.timeout(PATIENCE):
        await publisher.send(numbered("news", 99_999))
        watching = asyncio.create_task(watch.run())
        flooding = asyncio.create_task(flood(region))
        silver = asyncio.create_task(paced(publisher, "news", 50, 3.0))
        gold = await paced(publisher, "live", GOLD, 5.0)
        await flooding
        waited = await silver
        watching.cancel()
        recovery = await watch.until_empty()
        afterwards = await paced(publisher, "news", 5, 0.1)
    shed = value(counters.SHED) - shed_before
    figures = {
        "slowest gold": max(gold),
        "slowest silver with a receipt": max(waited),
        "stored": dict(store.stored),
        "bronze dropped": shed,
        "most in a queue": watch.in_queue,
        "most in the router": watch.in_router,
        "seconds until empty": recovery,
        "slowest after that": max(afterwards),
    }
    logger.info("under overload: %s", figures)
    assert store.stored["live"] == GOLD
    # A batch being written, a batch of its own, and a repeat lost on its way. If that takes longer,
    # the machine is busy, and silver waits even longer.
    assert max(gold) < max(5, max(waited))
    assert shed > 0
    assert store.stored["ticks"] < store.stored["news"]
    assert watch.in_queue <= QUEUE
    assert watch.in_router <= PREFETCH * len(QUEUES)
    # On a busy machine too.
    assert recovery < 60
    assert max(afterwards) < 10
