"""A flipped bit in a message's row of the SQLite file hides no other message of its topic."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from envelopes import START_MS, Clock, envelope
from stores import TOPICS
from unit_share import some

from newsfabric.messages.envelope import Envelope
from newsfabric.store import _sqlite_reads
from newsfabric.store.sqlite import SqliteStore

TOPIC = "news.world"
MESSAGES = [envelope(n, at=n, topic=TOPIC, key=f"story-{n}") for n in range(1, 21)]
FLIPPED = MESSAGES[8]
NOW_MS = START_MS + 99
# Bytes of a row's head before its first value: its length, and the types of nine values, the last
# of which has two bytes. The row's number precedes the head: it is the order of the table.
HEAD = 1 + 8 + 2

Read = Callable[[sqlite3.Connection], list[Envelope]]


def history(connection: sqlite3.Connection) -> list[Envelope]:
    return _sqlite_reads.history(
        connection, TOPIC, limit=100, since_ms=0, before=None, now_ms=NOW_MS
    )


def in_pages(connection: sqlite3.Connection) -> list[Envelope]:
    """Read pages of four messages."""
    found: list[Envelope] = []
    while True:
        before = found[0].id if found else None
        page = _sqlite_reads.history(
            connection, TOPIC, limit=4, since_ms=0, before=before, now_ms=NOW_MS
        )
        found = page + found
        if len(page) < 4:
            return found


def since(connection: sqlite3.Connection) -> list[Envelope]:
    return _sqlite_reads.since(connection, TOPIC, from_ms=0, to_ms=NOW_MS, limit=100, now_ms=NOW_MS)


def latest(connection: sqlite3.Connection) -> list[Envelope]:
    return _sqlite_reads.latest(connection, TOPIC, limit=100, now_ms=NOW_MS)


async def write(path: Path) -> None:
    store = SqliteStore(path, TOPICS, now_ms=Clock())
    try:
        await store.write(MESSAGES)
    finally:
        await store.close()


def row_of(content: bytes) -> range:
    """Return the range of bytes of FLIPPED's row, up to its body."""
    start = content.index(f"{TOPIC}{FLIPPED.id}{FLIPPED.router}".encode())
    return range(start - HEAD, content.index(FLIPPED.body, start))


@pytest.mark.promise("R7")
@pytest.mark.parametrize("read", [history, in_pages, since, latest])
async def test_a_damaged_row_hides_no_other_and_is_named(tmp_path: Path, read: Read) -> None:
    path = tmp_path / "store.db"
    await write(path)
    content = await asyncio.to_thread(path.read_bytes)
    others = [one for one in MESSAGES if one is not FLIPPED]
    places = row_of(content)
    for bit in some(range(places.start * 8, places.stop * 8)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        await asyncio.to_thread(path.write_bytes, damaged)
        with contextlib.closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as there:
            there.text_factory = lambda raw: raw.decode(errors="replace")
            found = read(there)
        assert [one for one in found if one.body] in (others, MESSAGES), f"bit {bit}"
        # The row is reported, unless its expiry has changed: that goes unnoticed
        # (docs/guarantees.md). The newest of each key are read without a report of missing ones.
        blank = [one.id for one in found if not one.body]
        assert read is latest or blank in ([], [FLIPPED.id]), f"bit {bit}"
