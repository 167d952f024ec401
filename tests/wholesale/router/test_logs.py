"""A router and its log: listed first, numbered under a lease, ended or closed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Sequence

import pytest
from core_cluster import EPOCH, CoreCluster, message, running, until
from metric_values import value

from newsfabric.amqp.message import Message
from newsfabric.amqp.stub import StubBroker
from newsfabric.errors import StoreError, StoreUnavailable
from newsfabric.messages.envelope import Envelope
from newsfabric.store.logs import DAY_MS, DirectoryRow, Log, Number, NumberState
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicPolicy, TopicTable
from wholesale.router import closer, closing, counters, listing, storing
from wholesale.router import router as router_module
from wholesale.router import routing as router_routing
from wholesale.router.router import Router

DAY = EPOCH // DAY_MS
LOG = Log("oregon", "oregon-router-1", EPOCH)
TOPICS = TopicTable([TopicPolicy(pattern="news.#", ttl=3_600.0)])


class UnreliableStore(MemoryStore):
    """A store whose directory, and whose writes of messages, can be away."""

    def __init__(self) -> None:
        super().__init__(TOPICS, now_ms=lambda: EPOCH)
        self.directory_is_away = False
        self.is_away = False
        self.poison: str | None = None
        self.changes: list[DirectoryRow] = []

    async def write(self, envelopes: Sequence[Envelope]) -> None:
        if self.is_away:
            raise StoreUnavailable("away")
        if any(envelope.message_id == self.poison for envelope in envelopes):
            raise StoreError("it can't hold this")
        await super().write(envelopes)

    async def list_log(self, log: Log) -> bool:
        if self.directory_is_away:
            raise StoreUnavailable("away")
        return await super().list_log(log)

    async def change_log(self, row: DirectoryRow) -> bool:
        if self.directory_is_away:
            raise StoreUnavailable("away")
        self.changes.append(row)
        return await super().change_log(row)

    async def rows(self) -> list[DirectoryRow]:
        return await self.directory("oregon", DAY)

    async def states(self, log: Log = LOG) -> dict[int, NumberState]:
        found = await self.numbers(log, first=1, last=100, limit=100)
        return {number.seq: number.state for number in found}


class Awake:
    """The clock of leases."""

    def __init__(self) -> None:
        self.at = 1_000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def awake() -> Awake:
    return Awake()


@pytest.fixture
async def core(monkeypatch: pytest.MonkeyPatch) -> CoreCluster:
    # As in production, but a hundred times faster.
    for module, name in ((listing, "BEAT"), (closer, "LOOK"), (router_module, "TICK_SECONDS")):
        monkeypatch.setattr(module, name, 0.01)
    broker = StubBroker()
    core = CoreCluster(broker, broker.connect(), UnreliableStore(), TOPICS)
    await core.open()
    return core


def store_of(core: CoreCluster) -> UnreliableStore:
    assert isinstance(core.store, UnreliableStore)
    return core.store


async def test_nothing_is_numbered_before_the_log_is_in_the_directory(core: CoreCluster):
    store = store_of(core)
    store.directory_is_away = True
    async with running(core) as router:
        core.publish(message(message_id="1", reply_to="me"))
        await until(lambda: router.under_way == 1)
        await asyncio.sleep(0.05)
        assert router.stream.seq == 0
        store.directory_is_away = False
        await until(lambda: len(core.receipts()) == 1)
    assert await store.states() == {1: NumberState.MESSAGE}
    assert [row.log for row in await store.rows()] == [LOG]


async def test_a_router_that_cant_write_the_directory_says_so_once_and_isnt_ready(
    core: CoreCluster, awake: Awake, caplog: pytest.LogCaptureFixture
):
    store = store_of(core)
    caplog.set_level("INFO", "wholesale.router.listing")
    async with running(core, awake=awake) as router:
        await until(lambda: router.store_answers)
        store.directory_is_away = True
        core.publish(message(message_id="1"))
        retries = value(counters.LISTING_RETRIES)
        await until(lambda: value(counters.LISTING_RETRIES) > retries + 1)
        # It still has a lease, and routes.
        assert router.store_answers
        assert caplog.records == []
        awake.at += 15.0
        await until(lambda: len(caplog.records) == 1)
        assert not router.store_answers
        await asyncio.sleep(0.05)
        store.directory_is_away = False
        await until(lambda: router.store_answers)
    assert [record.getMessage() for record in caplog.records] == [
        "can't write the directory, so nothing is routed: away",
        "the directory can be written again",
    ]


async def test_low_gets_into_the_directory(core: CoreCluster):
    async with running(core) as router:
        core.publish(*(message(message_id=str(n)) for n in range(5)))
        await until(lambda: router.stream.numbering.low == 5)
        await until(lambda: store_of(core).changes)
        await until(lambda: store_of(core).changes[-1].low == 5)
    assert (await store_of(core).rows())[0].ended is None


async def test_a_router_that_stops_says_where_its_log_ends(core: CoreCluster):
    async with running(core) as router:
        core.publish(*(message(message_id=str(n)) for n in range(5)))
        await until(lambda: router.stream.numbering.low == 5)
    await router.end_log()
    (row,) = await store_of(core).rows()
    assert (row.low, row.ended, row.voids) == (5, 5, ())


async def test_what_isnt_settled_leaves_the_log_open(core: CoreCluster):
    store = store_of(core)
    async with running(core) as router:
        await until(lambda: router.stream.numbering.is_listed)
        store.is_away = True
        core.publish(message(message_id="1"))
        await until(lambda: router.stream.seq == 1)
    await router.end_log()
    (row,) = await store.rows()
    assert (row.low, row.ended) == (0, None)


async def test_without_a_lease_nothing_is_published_and_with_one_it_goes_on(
    core: CoreCluster, awake: Awake
):
    store = store_of(core)
    async with running(core, awake=awake) as router:
        core.publish(message(message_id="1", reply_to="me"))
        await until(lambda: len(core.receipts()) == 1)
        store.directory_is_away = True
        awake.at += 14.0
        core.publish(message(message_id="2", reply_to="me"))
        await until(lambda: len(core.receipts()) == 2)
        awake.at += 1.1
        core.publish(message(message_id="3", reply_to="me"))
        await until(lambda: router.under_way == 1)
        await asyncio.sleep(0.05)
        assert len(core.envelopes()) == 2
        assert router.stream.seq == 2
        store.directory_is_away = False
        await until(lambda: len(core.receipts()) == 3)
        # The same log: it couldn't be closed.
        assert router.stream.log == LOG


async def test_what_was_stored_before_the_lease_ended_waits_for_the_next_one(
    core: CoreCluster, awake: Awake
):
    store = store_of(core)
    async with running(core, awake=awake) as router:
        await until(lambda: router.stream.numbering.is_listed)
        store.is_away = store.directory_is_away = True
        core.publish(message(message_id="1", reply_to="me"))
        await until(lambda: router.stream.seq == 1)
        awake.at += 20.0
        store.is_away = False
        await until(lambda: store._rows)
        await asyncio.sleep(0.05)
        assert core.envelopes() == []
        store.directory_is_away = False
        await until(lambda: len(core.receipts()) == 1)


async def test_a_router_whose_log_was_closed_gives_back_what_it_has_and_begins_another(
    core: CoreCluster, awake: Awake
):
    store = store_of(core)
    async with running(core, awake=awake) as router:
        await until(lambda: router.stream.numbering.is_listed)
        store.is_away = store.directory_is_away = True
        core.publish(message(message_id="1", reply_to="me"))
        await until(lambda: router.stream.seq == 1)
        # The router slept for a minute, and another one closed its log.
        awake.at += 60.0
        (row,) = await store.rows()
        closed = dataclasses.replace(row, version=row.version + 1, ended=0)
        assert await MemoryStore.change_log(store, closed)
        store.is_away = store.directory_is_away = False
        await until(lambda: len(core.receipts()) == 1)
        await core.none_owed(router)
        later = router.stream.log
        assert later.epoch > EPOCH
        assert [(e.epoch, e.seq) for e in core.envelopes()] == [(later.epoch, 1)]
        assert [row.log.epoch for row in await store.rows()] == [EPOCH, later.epoch]


async def test_a_name_and_an_epoch_that_are_taken_make_the_next_epoch(core: CoreCluster):
    await store_of(core).list_log(LOG)
    async with running(core) as router:
        core.publish(message(message_id="1", reply_to="me"))
        await until(lambda: len(core.receipts()) == 1)
        assert router.stream.log == LOG._replace(epoch=EPOCH + 1)


async def test_what_was_written_and_is_too_old_is_settled_and_never_published(core: CoreCluster):
    store, now = store_of(core), 0.0
    async with running(core, now=lambda: now) as router:
        await until(lambda: router.stream.numbering.is_listed)
        store.is_away = True
        core.publish(message(message_id="1", reply_to="me"))
        await until(lambda: router.stream.seq == 1)
        now = 151.0
        await asyncio.sleep(0.05)
        assert router.under_way == 1
        store.is_away = False
        await until(lambda: router.stream.numbering.low == 1)
        await core.none_owed(router)
    assert core.envelopes() == []
    assert core.receipts() == []
    assert await store.states() == {1: NumberState.MESSAGE}


async def test_what_has_no_number_yet_is_given_up_in_its_time_though_nothing_can_be_written(
    core: CoreCluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(storing, "_LOOK_SECONDS", 0.01)
    store, now = store_of(core), 0.0
    store.directory_is_away = True
    async with running(core, now=lambda: now) as router:
        core.publish(message(message_id="1", reply_to="me"))
        await until(lambda: router.under_way == 1)
        now = 149.0
        await asyncio.sleep(0.05)
        assert router.under_way == 1
        now = 150.0
        await core.none_owed(router)
    assert (core.envelopes(), core.receipts()) == ([], [])


async def test_a_message_that_the_store_cant_hold_is_a_void_number(
    core: CoreCluster, expect_error_log
):
    store = store_of(core)
    store.poison = "2"
    before = value(counters.VOID)
    async with running(core) as router:
        core.publish(*(message(message_id=str(n)) for n in (1, 2, 3)))
        await until(lambda: router.stream.numbering.low == 3)
    assert await store.states() == {
        1: NumberState.MESSAGE,
        2: NumberState.VOID,
        3: NumberState.MESSAGE,
    }
    assert value(counters.VOID) == before + 1
    expect_error_log("it can't hold this")


async def test_a_void_row_that_cant_be_written_yet_holds_low_back(
    core: CoreCluster, expect_error_log, monkeypatch: pytest.MonkeyPatch
):
    store = store_of(core)
    store.poison = "2"
    refused = 0

    async def refuse(log: Log, numbers: Sequence[int]) -> None:
        nonlocal refused
        refused += 1
        raise StoreError("not now")

    monkeypatch.setattr(store, "void", refuse)
    expect_error_log("it can't hold this")
    async with running(core) as router:
        core.publish(*(message(message_id=str(n), reply_to="me") for n in (1, 2, 3)))
        await until(lambda: refused >= 2)
        assert router.stream.numbering.low == 1
        # The messages after it are routed all the same.
        await until(lambda: {e.seq for e in core.envelopes()} == {1, 3})
        monkeypatch.delattr(store, "void")
        await until(lambda: router.stream.numbering.low == 3)


async def test_a_message_that_nothing_follows_is_reported_soon(
    core: CoreCluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(router_module, "TICK_SECONDS", 30.0)
    async with running(core):
        await until(lambda: any(tick.seq == 0 for tick in core.ticks()))
        core.publish(message(message_id="1"))
        await until(lambda: any(tick.seq == 1 for tick in core.ticks()))


async def test_of_a_batch_whose_log_is_closed_all_is_given_back_but_what_has_failed(
    core: CoreCluster, awake: Awake, expect_error_log, monkeypatch: pytest.MonkeyPatch
):
    store = store_of(core)
    expect_error_log("no AMQP form")
    encoded = router_routing.encode

    def encode(envelope: Envelope, *, low: int) -> Message:
        if envelope.message_id == "bad":
            # All later messages of this batch meet a closed log.
            awake.at += 60.0
            (row,) = (row for row in store._directory.values() if row.log.epoch == envelope.epoch)
            row = dataclasses.replace(row, version=row.version + 9, ended=0)
            store._directory[row.log] = row
            monkeypatch.setattr(router_routing, "sent_at_once", lambda *_: False)
            raise ValueError("no AMQP form")
        return encoded(envelope, low=low)

    sends_at_once = router_routing.sent_at_once
    monkeypatch.setattr(router_routing, "encode", encode)
    async with running(core, awake=awake) as router:
        await until(lambda: router.stream.numbering.is_listed)
        core.publish(*(message(message_id=i, reply_to="me") for i in ("bad", "1", "2")))
        await until(lambda: router.stream.log.epoch > EPOCH)
        monkeypatch.setattr(router_routing, "sent_at_once", sends_at_once)
        await until(lambda: {e.message_id for e in core.envelopes()} == {"1", "2"})
        await core.none_owed(router)


# Closing.


@contextlib.asynccontextmanager
async def beside_a_dead_one(
    core: CoreCluster, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Router, UnreliableStore]]:
    """Run router 2 beside the dead router 1, whose listed log has two settled numbers."""
    store = store_of(core)
    await store.list_log(LOG)
    await store.change_log(DirectoryRow(LOG, version=2, low=2))
    monkeypatch.setattr(closing.LogWatch, "close_after", 0.1)
    monkeypatch.setattr(closer, "_APART", 0.0)
    async with running(core, name="oregon-router-2", link=core.broker.connect()) as router:
        yield router, store


async def _until_it_ended(store: UnreliableStore) -> DirectoryRow:
    await until(lambda: store._directory[LOG].ended is not None)
    return store._directory[LOG]


async def test_the_log_of_a_dead_router_is_closed_by_another_of_its_region(
    core: CoreCluster, monkeypatch: pytest.MonkeyPatch
):
    numbers = [
        Number(2, NumberState.MESSAGE),
        Number(4, NumberState.MESSAGE),
        Number(5, NumberState.HALF),
        Number(7, NumberState.MESSAGE),
    ]

    async def read(log: Log, *, first: int, last: int, limit: int, at_home: bool) -> list[Number]:
        assert at_home
        return [n for n in numbers if first <= n.seq <= last][:limit] if log == LOG else []

    monkeypatch.setattr(core.store, "numbers", read)
    async with beside_a_dead_one(core, monkeypatch) as (_, store):
        assert await _until_it_ended(store) == DirectoryRow(
            LOG, version=3, low=2, ended=7, voids=((3, 3), (5, 6))
        )


async def test_a_living_routers_log_is_left_alone(
    core: CoreCluster, monkeypatch: pytest.MonkeyPatch
):
    async with beside_a_dead_one(core, monkeypatch) as (router, store):
        await _until_it_ended(store)
        own = store._directory[router.stream.log]
        assert own.ended is None


async def test_while_the_directory_cant_be_read_nothing_is_closed(
    core: CoreCluster, monkeypatch: pytest.MonkeyPatch
):
    async with beside_a_dead_one(core, monkeypatch) as (_, store):
        store.directory_is_away = True
        looked = 0

        async def log_days(*, at_home: bool = False) -> list[tuple[str, int]]:
            nonlocal looked
            looked += 1
            raise StoreUnavailable("away")

        monkeypatch.setattr(store, "log_days", log_days)
        await until(lambda: looked > 3)
        assert store._directory[LOG].ended is None
        monkeypatch.undo()
        monkeypatch.setattr(closing.LogWatch, "close_after", 0.1)
        monkeypatch.setattr(closer, "LOOK", 0.01)
        store.directory_is_away = False
        await _until_it_ended(store)
