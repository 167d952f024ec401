"""Failures of the Cassandra store, and the rows that it leaves in the tables."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest
from cassandra_keyspace import Keyspace
from envelopes import START_MS, Clock, envelope
from metric_values import value

from localfabric.nodes.cassandra import LocalCassandra
from localfabric.nodes.ports import free_ports
from newsfabric.errors import StoreError, StoreUnavailable
from newsfabric.store import _cassandra_rows as rows
from newsfabric.store import open_store
from newsfabric.store._cassandra_session import CassandraSession
from newsfabric.store._unreadable import UNREADABLE
from newsfabric.store.cassandra import CassandraStore
from newsfabric.store.logs import DirectoryRow, Log, Number, NumberState
from newsfabric.topics import TopicPolicy, TopicTable

T = TypeVar("T")

pytestmark = pytest.mark.cassandra

TOPICS = TopicTable([TopicPolicy(pattern="news.#", ttl=3_600.0)])
LOG = Log("oregon", "oregon-router-1", START_MS)
CHECK = (rows.SLOTS, ("topic:", 0, 0, 1))


@pytest.fixture
async def store(keyspace: Keyspace) -> AsyncIterator[CassandraStore]:
    opened = keyspace.emptied(TOPICS, Clock())
    yield opened
    await opened.close()


@pytest.fixture
def frozen(cassandra: LocalCassandra) -> Callable[[], object]:
    """Return a context in which the node is stopped; it answers pending requests afterwards."""

    @contextmanager
    def frozen() -> Iterator[None]:
        name = cassandra.nodes[0].name
        cassandra.signal(name, signal.SIGSTOP)
        try:
            yield
        finally:
            cassandra.signal(name, signal.SIGCONT)

    return frozen


async def test_rows_end_by_themselves_a_minute_after_their_message(store, keyspace):
    await store.write([envelope(1, key="story")])
    ((left, written),) = keyspace.execute(
        "SELECT TTL(body), WRITETIME(body) FROM messages_by_topic"
    )
    assert 3_600 < left <= 3_660
    assert written // 1_000 == START_MS
    ((left,),) = keyspace.execute("SELECT TTL(topic) FROM log")
    assert 3_600 < left - 2 * 86_400 <= 3_660
    ((left,),) = keyspace.execute("SELECT TTL(envelope) FROM latest_by_key")
    assert 7_200 < left <= 7_320


async def test_writing_leaves_no_tombstones(store, keyspace):
    # An unset field is left out; a null would be a tombstone.
    await store.write([envelope(n, at=n, message_id=None, body=b"%d" % n) for n in range(3)])
    found = keyspace.execute("SELECT JSON * FROM messages_by_topic")
    assert all("null" not in line for (line,) in found)


async def test_what_one_process_has_written_another_finds(store, keyspace):
    await store.write([envelope(1)])
    other = keyspace.opened(TOPICS, Clock())
    assert await other.history("news.breaking", limit=10) == [envelope(1)]
    await other.close()


async def test_a_partition_that_was_forgotten_is_noted_again(keyspace):
    store = keyspace.emptied(TOPICS, Clock(), note_again_s=0.0)
    await store.write([envelope(1)])
    keyspace.execute("TRUNCATE slots")
    await store.write([envelope(2, at=1)])
    found = await store.history("news.breaking", limit=10)
    assert found == [envelope(1), envelope(2, at=1)]
    await store.close()


async def test_history_goes_through_as_many_days_as_it_takes(keyspace):
    month = TopicTable([TopicPolicy(pattern="news.#", ttl=40 * 86_400.0)])
    store = keyspace.emptied(month, Clock(at=30 * 86_400_000))
    batch = [envelope(n, at=n * 86_400_000) for n in range(30)]
    await store.write(batch)
    assert await store.history("news.breaking", limit=100) == batch
    assert await store.history("news.breaking", limit=4) == batch[-4:]
    await store.close()


async def test_a_row_that_no_router_wrote_stops_only_itself(store, keyspace):
    await store.write([envelope(1), envelope(3)])
    keyspace.execute(
        "INSERT INTO messages_by_topic (topic, day, id, router, epoch, seq, body, rest) VALUES"
        f" ('news.breaking', {START_MS // rows.DAY_MS}, {envelope(2).id}, 'r', 1, 1, 0x00, '[]')"
    )
    for found in (
        await store.history("news.breaking", limit=10),
        await store.since("news.breaking", from_ms=0, limit=10),
    ):
        by_id = {e.id: e.body for e in found}
        assert by_id == {envelope(n).id: envelope(n).body for n in (1, 3)} | {envelope(2).id: b""}


async def test_half_of_a_number_is_what_no_router_wrote_and_it_is_counted(store, keyspace):
    batch = [envelope(n, at=n) for n in range(1, 9)]
    await store.write(batch)
    keyspace.execute(
        "UPDATE messages_by_topic SET rest = '[]'"
        f" WHERE topic = 'news.breaking' AND day = {START_MS // rows.DAY_MS}"
        f" AND id = {batch[3].id} AND router = '{LOG.router}' AND epoch = {LOG.epoch} AND seq = 4"
    )
    expected = [Number(e.seq, NumberState.MESSAGE, e) for e in batch]
    expected[3] = Number(4, NumberState.HALF)
    before = value(UNREADABLE)
    assert await store.numbers(LOG, first=1, last=8, limit=100) == expected
    assert value(UNREADABLE) == before + 1
    for limit in (3, 4, 7):
        assert await store.numbers(LOG, first=1, last=8, limit=limit) == expected[:limit]


@pytest.mark.parametrize("id_", ["null", "uuid()"])
async def test_a_log_row_that_names_no_message_is_half_and_stops_no_other(store, keyspace, id_):
    await store.write([envelope(1), envelope(3)])
    keyspace.execute(
        "INSERT INTO log (router, epoch, block, seq, topic, id)"
        f" VALUES ('{LOG.router}', {LOG.epoch}, 0, 2, 'news.breaking', {id_})"
    )
    assert await store.numbers(LOG, first=1, last=3, limit=100) == [
        Number(1, NumberState.MESSAGE, envelope(1)),
        Number(2, NumberState.HALF),
        Number(3, NumberState.MESSAGE, envelope(3)),
    ]


async def test_a_node_that_does_not_answer_is_unavailable_and_then_works_again(store, frozen):
    await store.write([envelope(1)])
    with frozen():
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await store.write([envelope(2, at=1)])
        assert time.monotonic() - began < 10
        with pytest.raises(StoreUnavailable):
            await store.check()
    await _until_well(store.check)
    await _until_well(lambda: store.write([envelope(2, at=1)]))
    found = await _until_well(lambda: store.history("news.breaking", limit=10))
    assert found == [envelope(1), envelope(2, at=1)]


async def test_requests_wait_for_their_turn_and_too_many_fail_at_once(cassandra, keyspace, frozen):
    session = CassandraSession(keyspace.address, None, in_flight=2, waiting=3)
    await session.read(*CHECK)
    with frozen():
        reads = [asyncio.create_task(session.read(*CHECK)) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable, match="3 requests are waiting"):
            await session.read(*CHECK)
    assert await asyncio.gather(*reads) == [[]] * 5
    await session.close()


async def test_giving_up_a_write_gives_its_turn_back(keyspace, frozen):
    session = CassandraSession(keyspace.address, None, in_flight=1)
    await session.read(*CHECK)
    with frozen():
        given_up = asyncio.create_task(session.read(*CHECK))
        await asyncio.sleep(0.05)
        given_up.cancel()
        await asyncio.wait([given_up])
    assert await session.read(*CHECK) == []
    await session.close()


async def test_a_session_reads_the_list_of_nodes_again_until_it_is_closed(keyspace):
    def rereading() -> list[asyncio.Task[object]]:
        return [task for task in asyncio.all_tasks() if task.get_name() == "store nodes"]

    session = CassandraSession(keyspace.address, None)
    assert rereading() == []
    await session.read(*CHECK)
    assert len(rereading()) == 1
    await session.close()
    assert rereading() == []


async def test_no_node_is_unavailable_and_not_tried_again_at_once():
    (port,) = free_ports(1)
    store = open_store(f"cassandra://127.0.0.1:{port}/k?dc=oregon", TOPICS, environ={})
    with pytest.raises(StoreUnavailable, match="no node answers"):
        await store.check()
    began = time.monotonic()
    for _ in range(100):
        with pytest.raises(StoreUnavailable):
            await store.write([envelope(1)])
    assert time.monotonic() - began < 5
    await store.close()


async def test_a_data_centre_that_is_none_is_named(keyspace):
    url = str(keyspace.address).replace("dc=oregon", "dc=oregn")
    store = open_store(url, TOPICS, environ={})
    with pytest.raises(StoreError, match="oregn"):
        await store.check()
    await store.close()


async def test_a_store_without_tables_says_what_to_run(cassandra):
    store = open_store(cassandra.url("nothing"), TOPICS, environ={})
    with pytest.raises(StoreError, match="run `newsfabric schema apply`"):
        await store.check()
    await store.close()


async def test_a_closed_store_says_so(store):
    await store.check()
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.write([envelope(1)])


async def _until_well(asks: Callable[[], Awaitable[T]]) -> T:
    """Return the store's first reply: a node that restarts on a busy machine is slow."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await asks()
            except StoreUnavailable:
                await asyncio.sleep(0.1)


async def test_an_answer_has_more_rows_than_a_page_of_the_driver(store, keyspace):
    scope = rows.topic_scope("news.breaking")
    insert = "INSERT INTO slots (scope, slot) VALUES ('{}', {});"
    slots = [insert.format(scope, n) for n in range(5_100)]
    for at in range(0, len(slots), 300):
        some = "".join(slots[at : at + 300])
        keyspace.execute(f"BEGIN UNLOGGED BATCH {some} APPLY BATCH")
    read = (rows.SLOTS, (scope, 0, 10_000, 10_000))
    assert len(await store._session.read(*read)) == 5_100


async def test_a_node_says_what_time_it_is_once_however_often_it_is_asked(store):
    (stated_ms,) = await store.clocks_ms()
    assert abs(stated_ms - time.time() * 1000) < 5_000


async def test_a_log_whose_names_ended_before_its_row_is_named_again(keyspace):
    began = keyspace.emptied(TOPICS, Clock())
    await began.list_log(LOG)
    await began.close()
    # As if the log had lived for longer than a TTL.
    keyspace.execute("TRUNCATE log_names")
    keyspace.execute("TRUNCATE log_days")
    store = keyspace.opened(TOPICS, Clock())
    row = DirectoryRow(LOG, version=2, low=7)
    assert await store.change_log(row)
    assert await store.log_days() == [("oregon", LOG.day)]
    assert await store.directory("oregon", LOG.day) == [row]
    await store.close()


async def test_all_that_a_change_of_the_directory_writes_ends_together(store, keyspace):
    await store.list_log(LOG)
    await store.change_log(DirectoryRow(LOG, version=2, low=7, ended=9))
    (ends,) = keyspace.execute("SELECT TTL(version), TTL(low), TTL(ended), TTL(voids) FROM logs")
    assert max(ends) - min(ends) <= 1
    # Longer than the longest ttl, which is that of tokens, and two days.
    assert ends[0] > 30 * 86_400 + 2 * 86_400


@pytest.mark.parametrize(
    "column",
    ["voids = 'nothing'", "version = null", "voids = '[1]'", "low = -1", "voids = '[[5, 4]]'"],
)
async def test_a_row_of_the_directory_that_no_router_wrote_hides_no_other(store, keyspace, column):
    other = LOG._replace(router="oregon-router-8")
    await store.list_log(other)
    await store.list_log(LOG)
    where = f"region = 'oregon' AND router = '{LOG.router}' AND epoch = {LOG.epoch}"
    keyspace.execute(f"UPDATE logs SET {column} WHERE {where}")
    before = value(UNREADABLE)
    assert await store.directory("oregon", LOG.day) == [DirectoryRow(other)]
    assert value(UNREADABLE) == before + 1


async def test_logs_of_other_regions_are_changed_by_nobody_here(store):
    abroad = LOG._replace(region="dublin")
    for change in (
        store.list_log(abroad),
        store.change_log(DirectoryRow(abroad, version=2)),
        store.void(abroad, [1]),
    ):
        with pytest.raises(StoreError, match="changed through its own data centre"):
            await change
    with pytest.raises(StoreUnavailable):
        await store.numbers(abroad, first=1, last=9, limit=9, at_home=True)
