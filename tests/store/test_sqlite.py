"""Properties of the SQLite file beyond the contract: several processes, locks, crashes, bounds."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import sqlite3
import struct
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from envelopes import START_MS, Clock, envelope
from metric_values import value

from newsfabric.errors import StoreError, StoreUnavailable
from newsfabric.store import _sqlite_file as file
from newsfabric.store import _sqlite_logs as logs
from newsfabric.store import _sqlite_reads as reads
from newsfabric.store._unreadable import UNREADABLE
from newsfabric.store.logs import Log, Number, NumberState
from newsfabric.store.sqlite import SqliteStore
from newsfabric.topics import TopicPolicy, TopicTable

TOPICS = TopicTable([TopicPolicy(pattern="#", ttl=3600.0)])
SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(path, TOPICS, now_ms=Clock(), busy_s=30.0)
    yield opened
    await opened.close()


@pytest.fixture
async def impatient(path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(path, TOPICS, now_ms=Clock(), busy_s=0.05, max_waiting=10)
    yield opened
    await opened.close()


@pytest.fixture
def other_process(store: SqliteStore, path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection that may hold the file's lock as another process would."""
    connection = file.connect(path, busy_s=1.0)
    yield connection
    connection.close()


async def count(store: SqliteStore) -> int:
    return len(await store.since("news.breaking", from_ms=0, limit=10_000))


def transactions(path: Path) -> int:
    """Return the number of commits in the write-ahead log (SQLite file format, section 4.1)."""
    log = path.with_name(path.name + "-wal").read_bytes()
    page_size, salts = struct.unpack(">I", log[8:12])[0], log[16:24]
    frames = (log[at : at + 24] for at in range(32, len(log), 24 + page_size))
    # A frame that ends a transaction has the size of the file then, all others have 0.
    return sum(frame[8:16] == salts and frame[4:8] != bytes(4) for frame in frames)


async def test_what_one_process_writes_another_reads_at_once(store, path):
    other = SqliteStore(path, TOPICS, now_ms=Clock())
    assert await other.history("news.breaking", limit=1) == []
    await store.write([envelope(1)])
    assert await other.history("news.breaking", limit=1) == [envelope(1)]
    await other.close()


async def test_it_lasts_until_it_is_opened_again(path):
    for number in (1, 2):
        store = SqliteStore(path, TOPICS, now_ms=Clock())
        await store.write([envelope(number, at=number)])
        assert await count(store) == number
        await store.close()


# Several writers


async def test_writes_that_wait_are_committed_together(store, path, other_process):
    await store.write([envelope(0)])
    before = transactions(path)
    other_process.execute("BEGIN IMMEDIATE")
    writes = [asyncio.create_task(store.write([envelope(n, at=n)])) for n in range(1, 101)]
    await asyncio.sleep(0)
    # The store's thread waits with the first few writes by now, or soon.
    other_process.execute("ROLLBACK")
    await asyncio.gather(*writes)
    assert await count(store) == 101
    # At worst one transaction for the writes it had already taken, one for all the others.
    assert 1 <= transactions(path) - before <= 2


async def test_the_loop_goes_on_while_a_write_waits_for_the_lock(store, other_process):
    other_process.execute("BEGIN IMMEDIATE")
    write = asyncio.create_task(store.write([envelope(1)]))
    assert await store.history("news.breaking", limit=1) == []
    await store.check()
    assert not write.done()
    other_process.execute("ROLLBACK")
    await write
    assert await count(store) == 1


async def test_a_lock_that_stays_makes_the_store_unavailable_until_it_goes(
    impatient, other_process
):
    other_process.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        await impatient.write([envelope(1)])
    other_process.execute("ROLLBACK")
    await impatient.write([envelope(1)])
    assert await count(impatient) == 1


async def test_beyond_its_bound_a_write_is_refused_at_once(impatient, other_process):
    other_process.execute("BEGIN IMMEDIATE")
    waiting = [asyncio.create_task(impatient.write([envelope(n)])) for n in range(10)]
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match="10 envelopes wait"):
        await impatient.write([envelope(99)])
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(result) for result in results} == {StoreUnavailable}
    other_process.execute("ROLLBACK")
    await impatient.write([envelope(99)])
    assert await count(impatient) == 1


async def test_beyond_its_bound_a_read_is_refused_at_once(path):
    store = SqliteStore(path, TOPICS, max_reads=2, now_ms=Clock())
    reads = [asyncio.create_task(store.check()) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match="2 reads are waiting"):
        await store.check()
    await asyncio.gather(*reads)
    await store.check()
    await store.close()


async def test_one_that_cannot_be_written_fails_alone(store, other_process):
    await store.write([envelope(0)])
    other_process.execute("BEGIN IMMEDIATE")
    # SQLite's integers end at 2**63.
    batches = [[envelope(1, at=1)], [envelope(2, at=2, seq=2**63)], [envelope(3, at=3)]]
    writes = [asyncio.create_task(store.write(batch)) for batch in batches]
    await asyncio.sleep(0)
    other_process.execute("ROLLBACK")
    good, bad, also_good = await asyncio.gather(*writes, return_exceptions=True)
    assert (good, type(bad), also_good) == (None, StoreError, None)
    assert await count(store) == 3


MAKE_AND_WRITE = """
    import asyncio, sys
    from pathlib import Path
    from envelopes import envelope
    from newsfabric.store.sqlite import SqliteStore
    from newsfabric.topics import TopicPolicy, TopicTable

    async def main(path, router, most):
        store = SqliteStore(Path(path), TopicTable([TopicPolicy(pattern="#", ttl=10**9)]))
        for n in range(int(most)):
            await store.write([envelope(n, at=n, router=router, key="k", version=n)])
            print(n, flush=True)
        await store.close()

    asyncio.run(main(*sys.argv[1:]))
"""


def start_writer(path: Path, router: str, most: int) -> subprocess.Popen[str]:
    program = f"import sys; sys.path.insert(0, {str(SUPPORT)!r})\n" + textwrap.dedent(
        MAKE_AND_WRITE
    )
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path), router, str(most)],
        stdout=subprocess.PIPE,
        text=True,
    )


async def test_processes_may_make_the_file_and_write_at_the_same_time(store, path):
    writers = [start_writer(path, f"router-{n}", 50) for n in range(4)]
    outputs = [await asyncio.to_thread(writer.communicate, timeout=60) for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 4
    assert all(output == "".join(f"{n}\n" for n in range(50)) for output, _ in outputs)
    assert await count(store) == 200
    assert len(await store.latest("news.breaking", limit=10)) == 1


async def test_what_a_killed_process_had_written_is_there_and_the_file_is_sound(store, path):
    writer = start_writer(path, "router-1", 1_000_000)
    assert writer.stdout is not None
    output = [await asyncio.to_thread(writer.stdout.readline) for _ in range(200)]
    writer.send_signal(signal.SIGKILL)
    # Not communicate(), which drops the lines that readline() has buffered.
    rest = await asyncio.to_thread(writer.stdout.readlines)
    writer.stdout.close()
    finished = [line for line in (*output, *rest) if line.endswith("\n")]
    assert await asyncio.to_thread(writer.wait, timeout=60) == -signal.SIGKILL

    kept = {e.seq for e in await store.since("news.breaking", from_ms=0, limit=1_000_000)}
    assert {int(line) for line in finished} <= kept
    # The batch that was being written may be stored whole, or not at all.
    assert kept <= set(range(len(finished) + 1))
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    await store.write([envelope(1, at=5, router="router-2")])


# A damaged file


async def test_a_missing_folder_may_come_back(tmp_path):
    store = SqliteStore(tmp_path / "later" / "store.db", TOPICS, now_ms=Clock())
    with pytest.raises(StoreUnavailable, match="unable to open"):
        await store.check()
    with pytest.raises(StoreUnavailable, match="unable to open"):
        await store.write([envelope(1)])
    (tmp_path / "later").mkdir()
    await store.write([envelope(1)])
    assert await count(store) == 1
    await store.close()


async def test_a_file_that_is_no_database_is_an_error_that_names_it(path):
    path.write_bytes(b"not a database at all" * 1000)
    store = SqliteStore(path, TOPICS)
    for call in (store.check(), store.write([envelope(1)])):
        with pytest.raises(StoreError, match=r"store\.db: file is not a database") as caught:
            await call
        assert not isinstance(caught.value, StoreUnavailable)
    await store.close()


@pytest.mark.parametrize("rest", ["", "[", "{}", "[]", "[1, 2]"])
async def test_half_of_a_number_is_what_no_router_wrote_and_others_say_so(path, rest):
    batch = [envelope(n, at=n) for n in range(1, 9)]
    store = SqliteStore(path, TOPICS, now_ms=Clock())
    await store.write(batch)
    _damage(path, "UPDATE messages SET rest = ? WHERE id = ?", rest.encode(), batch[3].id)
    expected = [Number(e.seq, NumberState.MESSAGE, e) for e in batch]
    expected[3] = Number(4, NumberState.HALF)
    log = Log("oregon", "oregon-router-1", START_MS)
    before = value(UNREADABLE)
    assert await store.numbers(log, first=1, last=8, limit=100) == expected
    # An empty value isn't unreadable: it means that the message isn't there.
    assert value(UNREADABLE) == before + (1 if rest else 0)
    for limit in (3, 4, 7):
        assert await store.numbers(log, first=1, last=8, limit=limit) == expected[:limit]
    for found in (
        await store.history("news.breaking", limit=10),
        await store.since("news.breaking", from_ms=0, limit=10),
    ):
        # The message keeps its place, without a body.
        assert [e.id for e in found] == [e.id for e in batch]
        assert [e.body for e in found] == [b"" if e == batch[3] else e.body for e in batch]
    assert [e.id for e in await store.history("news.breaking", limit=5)] == [
        e.id for e in batch[3:]
    ]
    # The other region's copy can be read.
    copy = dataclasses.replace(batch[3], router="dublin-router-1", origin="dublin")
    await store.write([copy])
    assert await store.history("news.breaking", limit=10) == [*batch[:3], copy, *batch[4:]]
    await store.close()


async def test_a_row_that_says_no_place_in_a_log_has_no_body_and_hides_no_other(path):
    store = SqliteStore(path, TOPICS, now_ms=Clock())
    await store.write([envelope(1), envelope(2, at=1)])
    _damage(path, "UPDATE messages SET rest = '[]', seq = -5 WHERE seq = 1")
    found = await store.history("news.breaking", limit=10)
    assert [(one.id, one.body) for one in found] == [
        (envelope(1).id, b""),
        (envelope(2, at=1).id, envelope(2).body),
    ]
    await store.close()


async def test_what_a_later_release_adds_to_a_row_is_left_out(path):
    store = SqliteStore(path, TOPICS, now_ms=Clock())
    await store.write([envelope(1)])
    longer = "UPDATE messages SET rest = CAST(json_insert(CAST(rest AS TEXT), '$[#]', ?) AS BLOB)"
    _damage(path, longer, "fine")
    assert await store.history("news.breaking", limit=10) == [envelope(1)]
    await store.close()


def _damage(path: Path, sql: str, *values: object) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(sql, values)
    connection.close()


async def test_a_file_of_another_version_is_left_alone(path):
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    store = SqliteStore(path, TOPICS)
    with pytest.raises(StoreError, match="store version 99, this is 3"):
        await store.write([envelope(1)])
    await store.close()


async def test_a_file_of_the_version_before_mailboxes_is_brought_up_to_date(path):
    store = SqliteStore(path, TOPICS, now_ms=Clock())
    await store.write([envelope(1)])
    await store.close()
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "DROP TABLE inbox; DROP TABLE inbox_marks; DROP TABLE log; DROP TABLE logs;"
            "PRAGMA user_version = 1"
        )
    connection.close()
    store = SqliteStore(path, TOPICS, now_ms=Clock())
    await store.write([envelope(2, at=1)])
    assert await store.history("news.breaking", limit=10) == [envelope(1), envelope(2, at=1)]
    assert await store.mailboxes(["user.42"], limit=10) == [[]]
    await store.close()


async def test_a_closed_store_says_so(path):
    store = SqliteStore(path, TOPICS)
    await store.close()
    for call in (store.check(), store.write([envelope(1)])):
        with pytest.raises(StoreError, match="closed"):
            await call


async def test_closing_finishes_what_was_begun(store, path, other_process):
    other_process.execute("BEGIN IMMEDIATE")
    writes = [asyncio.create_task(store.write([envelope(n, at=n)])) for n in range(5)]
    await asyncio.sleep(0)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    other_process.execute("ROLLBACK")
    await asyncio.gather(*writes, closing)
    assert other_process.execute("SELECT count(*) FROM messages").fetchone() == (5,)


# Housekeeping and speed


def write_now(connection: sqlite3.Connection, *envelopes) -> None:
    file.insert(connection, [file.rows_of(envelopes, TOPICS)])


def test_a_purge_deletes_what_has_ended_a_little_at_a_time(path):
    connection = file.connect(path, busy_s=1.0)
    write_now(connection, *(envelope(n, at=n, key=f"story-{n}") for n in range(5)))
    ended = START_MS + 3_600_000
    remaining = []
    for most in (2, 2, 2):
        more = file.purge(connection, now_ms=ended + 3, most=most)
        rows = connection.execute("SELECT count(*) FROM messages").fetchone()[0]
        keys = connection.execute("SELECT count(*) FROM latest_by_key").fetchone()[0]
        remaining.append((rows, keys, more))
    assert remaining == [(3, 3, True), (1, 1, True), (1, 1, False)]
    connection.close()


async def test_who_writes_also_purges_in_turns(path):
    clock = Clock()
    store = SqliteStore(path, TOPICS, now_ms=clock, purge_every_s=0.01)
    await store.write([envelope(n, at=n) for n in range(1_200)])
    clock.ms = START_MS + 3_600_000 + 1_100
    connection = file.connect(path, busy_s=1.0)
    async with asyncio.timeout(60):
        while connection.execute("SELECT count(*) FROM messages").fetchone()[0] != 99:
            await store.write([envelope(1_199, at=1_199)])
    connection.close()
    await store.close()


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (reads.HISTORY, "messages_by_topic (topic=? AND id>? AND id<?)"),
        (logs._NUMBERS, "messages_by_id (id=? AND router=? AND epoch=? AND seq=?)"),
        (reads.LATEST, "sqlite_autoindex_latest_by_key_1 (topic=?)"),
        (file.PURGE[0], "messages_by_end (kept_until<?)"),
        (file.PURGE[1], "latest_by_end (kept_until<?)"),
    ],
)
def test_no_query_scans_a_table(path, query, index):
    connection = file.connect(path, busy_s=1.0)
    parameters = ("x",) * query.count("?")
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", parameters)]
    connection.close()
    assert any(index in step for step in plan)
    assert [step for step in plan if step in ("SCAN messages", "SCAN latest_by_key")] == []
