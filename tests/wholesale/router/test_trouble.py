"""A router whose store, broker or own code fails."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence

import pytest
from core_cluster import EPOCH, CoreCluster, message, running, until
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_values import value
from unit_share import examples

from gateway.logs.logs import Logs
from gateway.memory.hub import Hub
from newsfabric.amqp.stub import StubBroker
from newsfabric.errors import LinkRefused, StoreError, StoreUnavailable
from newsfabric.messages.envelope import Envelope
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicPolicy, TopicTable
from wholesale.common import store_retry
from wholesale.router import counters, storing
from wholesale.router.jobs import HOLD_SECONDS


class FailingStore(MemoryStore):
    """A store that raises the exception, if any, that ``fails`` returns for a write's envelopes."""

    def __init__(self, topics: TopicTable) -> None:
        super().__init__(topics, now_ms=lambda: EPOCH)
        self.fails: Callable[[Sequence[Envelope]], Exception | None] = lambda _: None
        self.writes = 0

    async def write(self, envelopes: Sequence[Envelope]) -> None:
        self.writes += 1
        problem = self.fails(envelopes)
        if problem is not None:
            raise problem
        await super().write(envelopes)


@pytest.fixture
def store(core: CoreCluster) -> FailingStore:
    core.store = store = FailingStore(core.topics)
    return store


def away(_: Sequence[Envelope]) -> Exception | None:
    return StoreUnavailable("on holiday")


@pytest.mark.promise("R1")
async def test_nothing_is_routed_or_answered_before_it_is_stored(
    core: CoreCluster, store: FailingStore
):
    store.fails = away
    async with running(core) as router:
        core.publish(*(message(reply_to="me", message_id=str(n)) for n in range(20)))
        await until(lambda: store.writes >= 3)
        assert (core.envelopes(), core.receipts()) == ([], [])
        assert not router.store_answers
        store.fails = lambda _: None
        await core.none_owed(router)
        assert [e.seq for e in core.envelopes()] == list(range(1, 21))
        assert len(core.receipts()) == 20
        assert router.store_answers


async def test_a_broken_store_costs_no_message_while_it_says_that_it_is_broken(
    core: CoreCluster, store: FailingStore, monkeypatch: pytest.MonkeyPatch
):
    async def broken() -> None:
        raise StoreError("malformed disk image")

    with monkeypatch.context() as patch:
        patch.setattr(store, "check", broken)
        store.fails = lambda _: StoreError("malformed disk image")
        async with running(core) as router:
            core.publish(*(message(message_id=str(n)) for n in range(3)))
            await until(lambda: store.writes >= 3)
            assert core.arrived("rejected") == []
            store.fails = lambda _: None
            await core.none_owed(router)
            assert len(core.envelopes()) == 3


async def test_an_outage_of_the_store_is_logged_once_and_its_end_once(
    core: CoreCluster, store: FailingStore, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, logger=store_retry.__name__)
    store.fails = away
    async with running(core) as router:
        core.publish(message())
        await until(lambda: store.writes >= 3)
        store.fails = lambda _: None
        await core.none_owed(router)
    assert [r.getMessage() for r in caplog.records] == [
        "the store is away: on holiday; trying again",
        "the store is back",
    ]


async def test_while_the_store_is_away_the_broker_keeps_what_is_over_the_prefetch(
    core: CoreCluster, store: FailingStore
):
    store.fails = away
    async with running(core, prefetch=10) as router:
        core.publish(*(message(message_id=str(n)) for n in range(100)))
        await until(lambda: store.writes >= 2)
        assert core.broker.depth("router.1") == 90
        store.fails = lambda _: None
        await core.none_owed(router)
        assert len(core.envelopes()) == 100


async def test_a_flapping_link_during_an_outage_doesnt_fill_the_memory(
    core: CoreCluster, store: FailingStore
):
    store.fails = away
    # Another router takes a share at each reconnect, so that new messages arrive every time.
    async with running(core, prefetch=50) as router:
        for start in range(0, 5000, 100):
            core.publish(*(message(message_id=str(start + n)) for n in range(100)))
            await _depth(core, start + 50)
            core.broker.cut()
            _rotate(core.broker)
            await core.broker.heal()
        # The numbered messages, and one prefetch.
        assert router.under_way <= 50 + storing.MAX_BATCH


async def _depth(core: CoreCluster, count: int) -> None:
    await until(lambda: core.broker.depth("router.1") == count)


def _rotate(broker: StubBroker) -> None:
    """Move the queue's oldest messages to its end, as if others had taken and returned them."""
    taken = broker.pop_messages("router.1")
    for each in taken[50:] + taken[:50]:
        broker.publish("intake", each)


async def test_one_message_that_the_store_refuses_doesnt_take_the_others_with_it(
    core: CoreCluster, store: FailingStore, expect_error_log: Callable[[str], None]
):
    expect_error_log("can't adapt")

    def refuse_three(envelopes: Sequence[Envelope]) -> Exception | None:
        poison = any(e.message_id == "3" for e in envelopes)
        return TypeError("can't adapt") if poison else None

    store.fails = refuse_three
    async with running(core) as router:
        core.publish(*(message(reply_to="me", message_id=str(n)) for n in range(6)))
        await core.none_owed(router)
        assert [e.message_id for e in core.envelopes()] == list("01245")
        (evidence,) = core.arrived("rejected")
        assert (evidence.topic, evidence.properties.message_id) == ("internal", "3")
        statuses = {r.message_id: r.status for r in core.receipts()}
        assert statuses["3"] == "rejected"
        assert router.stream.seq == 6
        assert router.stream.to_void == {4}


async def test_a_fault_of_ours_in_the_first_stages_rejects_the_message_and_no_other(
    core: CoreCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    expect_error_log: Callable[[str], None],
):
    expect_error_log("m1")
    find = core.topics.find

    def failing(topic: str) -> object:
        if topic == "news.poison":
            raise ZeroDivisionError("a bug")
        return find(topic)

    monkeypatch.setattr(core.topics, "find", failing)
    async with running(core) as router:
        core.publish(
            message("news.poison", b'{"secret":1}', message_id="m1", reply_to="me"),
            message(message_id="good"),
        )
        await core.none_owed(router)
        assert [e.message_id for e in core.envelopes()] == ["good"]
        assert [m.topic for m in core.arrived("rejected")] == ["internal"]
        assert [r.reason for r in core.receipts()] == ["internal"]
    assert "secret" not in caplog.text


async def test_a_rejection_that_no_wire_can_carry_goes_out_plain(
    core: CoreCluster, expect_error_log: Callable[[str], None]
):
    expect_error_log("can't publish to rejected")
    async with running(core) as router:
        core.publish(message(body=b"{", timestamp=-1, headers={"own": 1}))
        await core.none_owed(router)
        (evidence,) = core.arrived("rejected")
        assert (evidence.topic, evidence.body) == ("not_json", b"{")
        assert "own" not in evidence.properties.headers


async def test_what_the_broker_refuses_is_published_again_as_it_was(
    core: CoreCluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("newsfabric.amqp.stub.PublishNacked", LinkRefused)
    core.broker.nacks = True
    async with running(core) as router:
        core.publish(message(reply_to="me", message_id="m1"), message("news.world", b"{"))
        await until(lambda: router.stream.seq == 1)
        core.broker.nacks = False
        await core.none_owed(router)
        assert [e.seq for e in core.envelopes("outbound")] == [1]
        assert [r.status for r in core.receipts()].count("routed") == 1
        assert len(core.arrived("rejected")) == 1


async def test_a_message_under_way_when_the_link_breaks_keeps_its_number(core: CoreCluster):
    async with running(core) as router:
        core.publish(message(reply_to="me", message_id="m1"))
        await until(lambda: router.stream.seq == 1)
        core.broker.cut()
        await core.broker.heal()
        await core.none_owed(router)
        assert {(e.message_id, e.seq) for e in core.envelopes()} == {("m1", 1)}
        assert core.receipts()[-1].id == core.envelopes()[0].id


@pytest.mark.promise("R4")
@settings(max_examples=examples(30))
@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 120))
async def test_whatever_is_cut_each_receipted_message_is_stored_and_routed(
    turns_between_cuts: list[int], count: int
):
    topics = TopicTable([TopicPolicy(pattern="news.*")])
    broker = StubBroker()
    core = CoreCluster(broker, broker.connect(), MemoryStore(topics, now_ms=lambda: EPOCH), topics)
    await core.open()
    async with running(core, prefetch=50) as router:
        core.publish(*(message(reply_to="me", message_id=str(n)) for n in range(count)))
        for turns in turns_between_cuts:
            for _ in range(turns):
                await asyncio.sleep(0)
            broker.cut()
            await broker.heal()
        await core.none_owed(router)
        names = {str(n) for n in range(count)}
        stored = await core.store.history("news.world", limit=1000)
        assert {r.message_id for r in core.receipts()} == names
        for exchange in ("postoffice", "outbound"):
            routed = core.envelopes(exchange)
            assert {e.message_id for e in routed} == names
            # Copies are allowed, but a number is never used for two messages.
            assert len({(e.seq, e.identity) for e in routed}) == len({e.seq for e in routed})
        assert {e.message_id for e in stored} == names


@pytest.mark.promise("R4")
async def test_what_a_killed_router_had_not_acknowledged_goes_to_the_other(
    core: CoreCluster, store: FailingStore
):
    store.fails = away
    doomed = core.broker.connect()
    async with running(core, name="oregon-router-2", link=doomed):
        core.publish(*(message(reply_to="me", message_id=str(n)) for n in range(50)))
        await until(lambda: core.broker.depth("router.1") == 0)
        store.fails = lambda _: None
        await doomed.close()
        async with running(core) as router:
            await until(lambda: len(core.receipts()) == 50)
            await core.none_owed(router)
            assert {e.message_id for e in core.envelopes()} == {str(n) for n in range(50)}


GOLD = TopicTable([TopicPolicy(pattern="news.*", topic_class="gold", keep=50)])


@dataclasses.dataclass
class Time:
    """A clock that tests move."""

    seconds: float = 0.0

    def now(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return EPOCH + int(self.seconds * 1000)


async def gold_core() -> CoreCluster:
    broker = StubBroker()
    core = CoreCluster(broker, broker.connect(), FailingStore(GOLD), GOLD)
    await core.open()
    return core


def shown(hub: Hub, envelopes: Sequence[Envelope], now_ms: int) -> list[str | None]:
    """Return the messages of ``envelopes`` that connected readers are given."""
    return [e.message_id for e in envelopes if hub.offer(e, now_ms / 1000) is not None]


@pytest.mark.promise("S4", "D1")
async def test_what_a_region_held_for_longer_than_identities_last_isnt_given_to_readers_again():
    oregon, dublin, time = await gold_core(), await gold_core(), Time()
    hub = Hub(GOLD, Logs(time.now_ms() - 3_600_000), clock=time.now)
    clock = {"now": time.now, "now_ms": time.now_ms}
    oregon.store.fails = away
    async with (
        running(oregon, **clock) as here,
        running(dublin, name="dublin-router-1", epoch=EPOCH + 1, **clock) as there,
    ):
        gold = [message(message_id=f"g{n}", reply_to="me") for n in range(200)]
        oregon.publish(*gold)
        dublin.publish(*gold)
        await dublin.none_owed(there)
        await until(lambda: oregon.store.writes >= 1)
        readers = shown(hub, dublin.envelopes(), time.now_ms())
        # More messages pass than the topic keeps in memory.
        time.seconds += 20 * 60
        dublin.publish(*(message(message_id=f"l{n}") for n in range(60)))
        await dublin.none_owed(there)
        readers += shown(hub, dublin.envelopes()[200:], time.now_ms())
        oregon.store.fails = lambda _: None
        await oregon.none_owed(here)
        readers += shown(hub, oregon.envelopes(), time.now_ms())
        assert readers == [f"g{n}" for n in range(200)] + [f"l{n}" for n in range(60)]
        assert oregon.receipts() == []
        # Messages that are stored and too old to be published are settled.
        assert here.stream.numbering.low == here.stream.seq > 0


async def test_what_waited_for_the_store_for_too_long_has_no_receipt_and_may_come_again(
    core: CoreCluster, store: FailingStore
):
    time = Time()
    store.fails = away
    before = value(counters.EXPIRED)
    async with running(core, now=time.now) as router:
        core.publish(*(message(reply_to="me", message_id=str(n)) for n in range(300)))
        await until(lambda: store.writes >= 1)
        time.seconds = HOLD_SECONDS - 1
        core.publish(message(reply_to="me", message_id="young"))
        await until(lambda: router.under_way == 301)
        time.seconds = HOLD_SECONDS
        store.fails = lambda _: None
        await core.none_owed(router)
        assert [r.message_id for r in core.receipts()] == ["young"]
        assert value(counters.EXPIRED) - before == 300
        core.publish(message(reply_to="me", message_id="0"))
        await core.none_owed(router)
        assert [(r.message_id, r.status) for r in core.receipts()][1:] == [("0", "routed")]


async def test_what_waited_for_the_broker_for_too_long_isnt_routed(
    core: CoreCluster, monkeypatch: pytest.MonkeyPatch
):
    # A refusal to confirm would mean that the message is published.
    monkeypatch.setattr("newsfabric.amqp.stub.PublishNacked", LinkRefused)
    time = Time()
    refused = value(counters.PUBLISH_RETRIES) + 2
    async with running(core, now=time.now) as router:
        core.broker.nacks = True
        core.publish(message(reply_to="me", message_id="m1"))
        await until(lambda: value(counters.PUBLISH_RETRIES) == refused)
        time.seconds = HOLD_SECONDS
        core.broker.nacks = False
        await core.none_owed(router)
        assert (core.envelopes(), core.receipts()) == ([], [])
        assert (router.stream.seq, router.stream.numbering.low) == (1, 1)


async def test_a_tick_without_a_link_is_left_out(core: CoreCluster):
    async with running(core) as router:
        await until(lambda: router.stream.numbering.is_listed)
        core.broker.cut()
        await router.tick()
        await core.broker.heal()
        await router.tick()
        assert len(core.ticks()) == 1
