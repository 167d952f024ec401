"""Regions of one node or three, when a node is killed or its disk damaged."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from envelopes import START_MS, Clock, envelope

from bench.store import with_tables
from localfabric.nodes.cassandra import LocalCassandra
from localfabric.world.cassandra import answers
from localfabric.world.cassandra_home import CassandraHome
from newsfabric.errors import StoreError, StoreUnavailable
from newsfabric.messages.envelope import Envelope
from newsfabric.store._cassandra_cluster import cluster, wrapped
from newsfabric.store._cassandra_presence import LONG_WAIT
from newsfabric.store._cassandra_schema import Schema, cql_folder, load_migrations
from newsfabric.store._cassandra_url import parse_address
from newsfabric.store.cassandra import CassandraStore
from newsfabric.store.logs import DAY_MS, DirectoryRow, Log, Number, NumberState
from newsfabric.topics import TopicPolicy, TopicTable

pytestmark = [pytest.mark.slow, pytest.mark.cassandra, pytest.mark.timeout(600)]

TOPICS = TopicTable([TopicPolicy(pattern="news.#", ttl=3_600.0)])
KEYSPACE = "regions"
WRITERS = 8


@pytest.fixture(scope="module")
def regions(
    cassandra_home: CassandraHome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCassandra]:
    folder = tmp_path_factory.mktemp("regions")
    with LocalCassandra(folder, cassandra_home, centres=("oregon", "dublin")) as nodes:
        # A run that timed out may have left its lock, which ends after a minute or more.
        making = _until_it_works(lambda: asyncio.to_thread(_make_tables, nodes), seconds=300)
        asyncio.run(making)
        yield nodes


def _make_tables(nodes: LocalCassandra) -> None:
    migrations = load_migrations(cql_folder())
    address = parse_address(nodes.url(KEYSPACE))
    with Schema(address, None, migrations, replication={"oregon": 1, "dublin": 1}) as schema:
        schema.apply(lambda line: None)


def _empty(nodes: LocalCassandra) -> None:
    """Delete the rows and files of all messages; StoreUnavailable if a node doesn't reply yet."""
    made = cluster(parse_address(nodes.url(KEYSPACE)), None)
    try:
        made.connect(KEYSPACE).execute("TRUNCATE messages_by_topic", timeout=30)
    except Exception as exc:
        raise wrapped(exc, "truncate") from exc
    finally:
        made.shutdown()


@asynccontextmanager
async def opened(
    nodes: LocalCassandra, centre: str, keyspace: str = KEYSPACE
) -> AsyncIterator[CassandraStore]:
    """Yield the store as a process in ``centre`` opens it."""
    address = parse_address(nodes.url(keyspace, centre=centre))
    store = CassandraStore(address, TOPICS, environ={}, now_ms=Clock(10_000))
    try:
        yield store
    finally:
        await store.close()


async def test_what_a_region_cant_read_another_one_is_asked_for_and_writes_wait(regions):
    batch = [envelope(n, at=n, topic="news.elsewhere") for n in range(20)]
    async with opened(regions, "oregon") as store, opened(regions, "dublin") as other:
        await store.write(batch)
        await _until_it_has(other, "news.elsewhere", batch)
        await asyncio.to_thread(regions.kill, "oregon-store-1")
        assert await store.history("news.elsewhere", limit=100) == batch
        with pytest.raises(StoreUnavailable):
            await store.write([envelope(100, at=100, topic="news.elsewhere")])
        # The health check fails, too: it stands for writes.
        with pytest.raises(StoreUnavailable):
            await store.check()
        async with opened(regions, "oregon") as fresh:
            assert await fresh.history("news.elsewhere", limit=100) == batch
        # Messages that the other region writes meanwhile aren't missing when the node is back.
        meanwhile = [envelope(n, at=n, topic="news.elsewhere") for n in range(20, 40)]
        await other.write(meanwhile)
        await asyncio.to_thread(regions.start, "oregon-store-1")
        await _until_it_works(store.check)
        assert await store.history("news.elsewhere", limit=100) == batch + meanwhile


async def test_while_a_node_hangs_numbers_are_read_elsewhere_and_so_is_what_needs_the_last_word(
    regions,
):
    log = Log("oregon", "oregon-router-8", START_MS)
    batch = [envelope(n, at=n, topic="news.hangs", router=log.router) for n in range(1, 6)]
    expected = [Number(e.seq, NumberState.MESSAGE, e) for e in batch]
    async with opened(regions, "oregon") as store, opened(regions, "dublin") as other:
        await _until_it_works(lambda: store.write(batch))
        await _until_it_has(other, "news.hangs", batch)
        regions.signal("oregon-store-1", signal.SIGSTOP)
        try:
            assert await store.numbers(log, first=1, last=100, limit=100) == expected
            # A read that needs the latest state still begins here: the last read waited briefly.
            assert store._session._silence.begins_here(LONG_WAIT, time.monotonic())
            assert await store.history("news.hangs", limit=100) == batch
            assert not store._session._silence.begins_here(LONG_WAIT, time.monotonic())
        finally:
            regions.signal("oregon-store-1", signal.SIGCONT)


async def test_numbers_are_read_at_home_and_nothing_is_concluded_while_home_is_away(regions):
    log = Log("oregon", "oregon-router-9", START_MS)
    batch = [envelope(n, at=n, topic="news.numbers", router=log.router) for n in range(1, 21)]
    expected = [Number(e.seq, NumberState.MESSAGE, e) for e in batch]

    def read_numbers(store: CassandraStore, *, at_home: bool) -> Coroutine[Any, Any, list[Number]]:
        return store.numbers(log, first=1, last=100, limit=100, at_home=at_home)

    def since(store: CassandraStore) -> Coroutine[Any, Any, list[Envelope]]:
        return store.since("news.numbers", from_ms=0, limit=100, region="oregon")

    async with opened(regions, "oregon") as store, opened(regions, "dublin") as other:
        await _until_it_works(lambda: store.write(batch))
        # Rows that oregon acknowledged are found, at any state of replication.
        assert await read_numbers(other, at_home=True) == expected
        assert await since(other) == batch
        await _until_it_has(other, "news.numbers", batch)
        await asyncio.to_thread(regions.kill, "oregon-store-1")
        with pytest.raises(StoreUnavailable):
            await read_numbers(other, at_home=True)
        with pytest.raises(StoreUnavailable):
            await since(other)
        # In dublin they may still be found.
        assert await read_numbers(other, at_home=False) == expected
        # Like any read, this one asks the region that replies.
        assert await read_numbers(store, at_home=False) == expected
        with pytest.raises(StoreUnavailable):
            await read_numbers(store, at_home=True)
        await asyncio.to_thread(regions.start, "oregon-store-1")
        await _until_it_works(lambda: read_numbers(other, at_home=True))


async def test_the_directory_is_changed_at_home_and_read_everywhere(regions):
    day = START_MS // DAY_MS
    oregon = Log("oregon", "oregon-router-7", START_MS)
    dublin = Log("dublin", "dublin-router-7", START_MS)
    ended = DirectoryRow(dublin, version=2, low=3, ended=5, voids=((4, 4),))

    async with opened(regions, "oregon") as store, opened(regions, "dublin") as other:
        assert await _until_it_works(lambda: store.list_log(oregon))
        await asyncio.to_thread(regions.kill, "oregon-store-1")
        # No log of oregon can be changed while its store is away; dublin's logs can.
        with pytest.raises(StoreUnavailable):
            await store.change_log(DirectoryRow(oregon, version=2, low=9))
        assert await _until_it_works(lambda: other.list_log(dublin))
        assert await other.change_log(ended)
        assert await other.directory("oregon", day) == [DirectoryRow(oregon)]
        await asyncio.to_thread(regions.start, "oregon-store-1")
        await _until_it_works(store.check)
        async with asyncio.timeout(60):
            while await store.directory("dublin", day) != [ended]:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.1)
        assert await store.log_days() == [("dublin", day), ("oregon", day)]


async def test_a_single_node_that_is_killed_keeps_all_that_it_has_acknowledged(regions):
    acknowledged: list[Envelope] = []
    many = asyncio.Event()

    async def writes(store: CassandraStore, first: int) -> None:
        number = first
        while True:
            one = envelope(number, at=number, topic="news.kept")
            try:
                await store.write([one])
            except StoreError:
                return
            acknowledged.append(one)
            number += WRITERS
            if len(acknowledged) >= 300:
                many.set()

    async with opened(regions, "oregon") as store, asyncio.TaskGroup() as group:
        await store.check()
        for first in range(WRITERS):
            group.create_task(writes(store, first))
        await many.wait()
        # While writes are under way.
        await asyncio.to_thread(regions.kill, "oregon-store-1")
    await asyncio.to_thread(regions.start, "oregon-store-1")
    # A store object that saw no failure reads in its own region.
    async with opened(regions, "oregon") as store:
        await _until_it_works(store.check)
        found = await store.since("news.kept", from_ms=0, limit=100_000)
        missing = {one.seq for one in acknowledged} - {one.seq for one in found}
        assert missing == set()


@pytest.mark.promise("R7")
async def test_what_a_damaged_sstable_has_lost_another_region_is_asked_for(regions):
    # In the damaged file are the rows of this test alone.
    await _until_it_works(functools.partial(asyncio.to_thread, _empty, regions))
    log = Log("oregon", "oregon-router-6", START_MS)
    batch = [envelope(n, at=n, topic="news.damaged", router=log.router) for n in range(1, 101)]
    async with opened(regions, "oregon") as store, opened(regions, "dublin") as other:
        await _until_it_works(lambda: store.write(batch))
        await _until_it_has(other, "news.damaged", batch)
    await asyncio.to_thread(regions.stop, "oregon-store-1")
    _flip_a_bit(regions.nodes[0].folder / "data" / KEYSPACE)
    await asyncio.to_thread(regions.start, "oregon-store-1")
    async with opened(regions, "oregon") as store:
        await _until_it_works(store.check)
        with pytest.raises(StoreUnavailable, match="1 failure"):
            await store.numbers(log, first=1, last=100, limit=100, at_home=True)
        numbers = await store.numbers(log, first=1, last=100, limit=100)
        assert numbers == [Number(e.seq, NumberState.MESSAGE, e) for e in batch]
        assert await store.history("news.damaged", limit=100) == batch


@pytest.mark.long
@pytest.mark.promise("R7")
async def test_of_three_nodes_one_with_a_damaged_sstable_leaves_and_the_others_have_all(
    cassandra_home: CassandraHome, tmp_path: Path
) -> None:
    with LocalCassandra(tmp_path, cassandra_home, nodes=3) as nodes:
        await asyncio.to_thread(with_tables, nodes, replicas=3, keyspace="damaged")
        batch = [envelope(n, at=n, topic="news.damaged") for n in range(1, 101)]
        log = Log("oregon", "oregon-router-1", START_MS)
        async with opened(nodes, "oregon", "damaged") as store:
            await _until_it_works(lambda: store.write(batch))
        await asyncio.to_thread(nodes.stop, "oregon-store-1")
        _flip_a_bit(nodes.nodes[0].folder / "data" / "damaged")
        await asyncio.to_thread(nodes.start, "oregon-store-1")
        async with opened(nodes, "oregon", "damaged") as store:
            await _until_it_works(store.check)
            whole = [Number(e.seq, NumberState.MESSAGE, e) for e in batch]
            read = functools.partial(store.numbers, log, first=1, last=100, limit=100)
            # Reads fail that find the damage, and reads until the others know the node is down.
            async with asyncio.timeout(60):
                while await asyncio.to_thread(answers, nodes.nodes[0].cql_port):
                    with contextlib.suppress(StoreUnavailable):
                        assert await read() == whole
            for _ in range(10):
                assert await _until_it_works(read) == whole


def _flip_a_bit(keyspace: Path) -> None:
    """Flip a bit in the middle of each file with messages in the node's folder ``keyspace``."""
    files = [*keyspace.glob("messages_by_topic-*/*-Data.db")]
    assert files
    for file in files:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)


async def _until_it_has(store: CassandraStore, topic: str, batch: list[Envelope]) -> None:
    async with asyncio.timeout(30):
        while await store.history(topic, limit=100) != batch:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.1)


async def _until_it_works(act, *, seconds=60):
    async with asyncio.timeout(seconds):
        while True:
            try:
                return await act()
            except StoreUnavailable:
                await asyncio.sleep(0.2)
