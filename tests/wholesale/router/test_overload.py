"""A router whose store can't keep up: bronze is dropped first, gold last, all memory is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from core_cluster import EPOCH, CoreCluster, message, running, until
from metric_values import value

from newsfabric import metrics
from newsfabric.amqp import Message
from newsfabric.amqp.stub import StubBroker
from newsfabric.messages.envelope import Envelope
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicTable, parse_topics
from wholesale.router import counters
from wholesale.router.service import RouterSettings

PREFETCH = 100
ROOM = 40
# The store is writing one message.
KEPT = ROOM - 1


class GatedStore(MemoryStore):
    """A store that writes one batch whenever a test lets it."""

    def __init__(self, topics: TopicTable) -> None:
        super().__init__(topics, now_ms=lambda: EPOCH)
        self.permits = asyncio.Semaphore(0)
        self.waits = 0

    async def write(self, envelopes: Sequence[Envelope]) -> None:
        self.waits += 1
        await self.permits.acquire()
        await super().write(envelopes)

    def open(self) -> None:
        for _ in range(10_000):
            self.permits.release()


@pytest.fixture
def topics() -> TopicTable:
    return parse_topics(
        {
            "topic": [
                {"pattern": "gold.*", "class": "gold"},
                {"pattern": "bronze.*", "class": "bronze"},
                {"pattern": "#"},
            ]
        }
    )


@pytest.fixture
async def core(topics: TopicTable) -> CoreCluster:
    broker = StubBroker()
    core = CoreCluster(broker, broker.connect(), GatedStore(topics), topics)
    await core.open()
    return core


def many(topic: str, count: int, first: int = 0) -> list[Message]:
    return [
        message(f"{topic}.x", b"{}", message_id=f"{topic}-{n}", reply_to="me")
        for n in range(first, first + count)
    ]


async def overloaded(core: CoreCluster) -> GatedStore:
    """Let the store hold its first batch, which is one silver message."""
    assert isinstance(core.store, GatedStore)
    store = core.store
    core.publish(*many("silver", 1))
    await until(lambda: store.waits == 1)
    return store


def routed(core: CoreCluster) -> list[str]:
    return [str(e.message_id) for e in core.envelopes()]


QUEUES = ("router.1", "router.2")


@pytest.mark.promise("O1")
async def test_gold_passes_whatever_waits_in_the_broker_before_it(core: CoreCluster):
    async with running(core, queues=QUEUES, prefetch=PREFETCH, bronze_room=ROOM) as router:
        store = await overloaded(core)
        core.publish(*many("silver", 1000, first=1), *many("gold", 20))
        await until(lambda: core.broker.depth("router.2") == 0)
        assert core.broker.depth("router.1") > 800
        store.open()
        await until(lambda: len(core.receipts()) >= 21)
        assert routed(core)[:21] == ["silver-0", *(f"gold-{n}" for n in range(20))]
        await core.none_owed(router)
        # By then, the copies of gold in the other queue are known.
        assert sorted(set(routed(core))) == sorted(routed(core))


async def test_what_waits_is_reported_while_the_store_holds_a_write(core: CoreCluster):
    async with running(core, queues=QUEUES, prefetch=PREFETCH):
        store = await overloaded(core)
        core.publish(*many("silver", 30, first=1))
        await until(lambda: waiting_messages() == 31)
        store.open()
        await until(lambda: waiting_messages() == 0)


def waiting_messages() -> float:
    """Return this process's value of the metric."""
    waiting = metrics.REGISTRY.get_sample_value("newsfabric_router_waiting_messages")
    assert waiting is not None
    return waiting


@pytest.mark.promise("O2")
async def test_bronze_over_its_room_is_dropped_oldest_first_counted_and_answered(core: CoreCluster):
    before = value(counters.SHED)
    async with running(core, queues=QUEUES, prefetch=PREFETCH, bronze_room=ROOM) as router:
        store = await overloaded(core)
        core.publish(*many("bronze", 1000))
        await until(lambda: len(core.receipts()) == 1000 - KEPT)
        assert {(r.status, r.reason) for r in core.receipts()} == {("rejected", "overload")}
        dropped = [r.message_id for r in core.receipts()]
        assert dropped == [f"bronze-{n}" for n in range(1000 - KEPT)]
        assert value(counters.SHED) - before == 1000 - KEPT
        store.open()
        await core.none_owed(router)
        assert routed(core) == ["silver-0", *(f"bronze-{n}" for n in range(1000 - KEPT, 1000))]
        # A dropped message is no evidence of an error.
        assert core.arrived("rejected") == []


async def test_a_flood_of_bronze_keeps_no_silver_waiting(core: CoreCluster):
    async with running(core, queues=QUEUES, prefetch=PREFETCH, bronze_room=ROOM) as router:
        store = await overloaded(core)
        core.publish(*many("bronze", 5000), *many("silver", 10, first=1))
        await until(lambda: core.broker.depth("router.1") == 0)
        store.open()
        await core.none_owed(router)
        assert routed(core)[:11] == [f"silver-{n}" for n in range(11)]


async def test_where_silver_is_too_much_already_no_bronze_takes_its_place(core: CoreCluster):
    async with running(core, queues=QUEUES, prefetch=PREFETCH, bronze_room=ROOM) as router:
        store = await overloaded(core)
        mixed = zip(many("silver", 500, first=1), many("bronze", 500), strict=True)
        core.publish(*(each for pair in mixed for each in pair))
        # When the router holds only silver, the bronze in between has been dropped.
        await until(lambda: core.broker.depth("router.1") == 1000 - 2 * (PREFETCH - 1) + 1)
        assert {r.message_id for r in core.receipts()} == {
            f"bronze-{n}" for n in range(PREFETCH - 2)
        }
        store.open()
        await core.none_owed(router)
        assert [name for name in routed(core) if name.startswith("silver")] == [
            f"silver-{n}" for n in range(501)
        ]


@pytest.mark.promise("O3")
async def test_silver_waits_in_the_broker_and_none_of_it_is_dropped(core: CoreCluster):
    async with running(core, queues=QUEUES, prefetch=PREFETCH, bronze_room=ROOM) as router:
        store = await overloaded(core)
        core.publish(*many("silver", 1000, first=1))
        await until(lambda: router.under_way == PREFETCH)
        assert core.broker.depth("router.1") == 1001 - PREFETCH
        store.open()
        await core.none_owed(router)
        assert routed(core) == [f"silver-{n}" for n in range(1001)]


@pytest.mark.promise("O4")
async def test_what_a_router_holds_is_bounded_by_its_prefetch_whatever_comes(core: CoreCluster):
    async with running(core, queues=QUEUES, prefetch=PREFETCH, bronze_room=ROOM) as router:
        await overloaded(core)
        most = 0
        for start in range(1, 5000, 500):
            for topic in ("bronze", "gold", "silver"):
                core.publish(*many(topic, 500, first=start))
            await asyncio.sleep(0)
            most = max(most, router.under_way)
        assert most <= PREFETCH * len(QUEUES)


@pytest.mark.promise("O2", "R2")
async def test_a_dropped_message_that_is_sent_again_is_new(core: CoreCluster):
    async with running(core, queues=QUEUES, prefetch=PREFETCH, bronze_room=ROOM) as router:
        store = await overloaded(core)
        core.publish(*many("bronze", ROOM + 1))
        await until(lambda: any(r.reason == "overload" for r in core.receipts()))
        store.open()
        await core.none_owed(router)
        assert "bronze-0" not in routed(core)
        core.publish(*many("bronze", 1))
        await core.none_owed(router)
        assert routed(core)[-1] == "bronze-0"
        last = core.receipts()[-1]
        assert (last.status, last.message_id, last.repeated) == ("routed", "bronze-0", False)


@pytest.mark.promise("O2")
async def test_what_is_dropped_had_no_number_so_readers_see_no_hole(core: CoreCluster):
    async with running(core, queues=QUEUES, prefetch=PREFETCH, bronze_room=ROOM) as router:
        store = await overloaded(core)
        core.publish(*many("bronze", 500))
        await until(lambda: core.broker.depth("router.1") == 0)
        store.open()
        await core.none_owed(router)
        assert [e.seq for e in core.envelopes()] == list(range(1, KEPT + 2))
        assert router.stream.seq == KEPT + 1


def test_a_room_for_bronze_that_would_fill_the_prefetch_is_refused():
    with pytest.raises(ValueError, match="bronze_room"):
        RouterSettings(name="r", region="o", queues=QUEUES, prefetch=100, bronze_room=100)
