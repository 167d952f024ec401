"""A flipped bit in a row of table ``log`` makes no number gone, void or another message."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from envelopes import START_MS, Clock, envelope
from stores import SHORTEST_MS, TOPICS
from unit_share import some

from newsfabric.store import _sqlite_logs, rules
from newsfabric.store.logs import Log, Number, NumberState
from newsfabric.store.sqlite import SqliteStore

LOG = Log("oregon", "oregon-router-1", START_MS)
MANY = 40
FLIPPED = 9
SHORT = "markets.dax"
# Eight letters: one flipped bit in the row's head makes the topic empty.
EIGHT = "news.dax"
LAST = 3 * MANY
SPANS = ((1, LAST), (1, FLIPPED), (FLIPPED, FLIPPED), (FLIPPED + 1, LAST))
LATER = START_MS + SHORTEST_MS + 500
# Bytes before the first value of a row: its length, the length of its head, and six types.
HEAD = 8
KEPT_UNTIL = 6


async def write(path: Path, topic: str, *, void: bool = False) -> None:
    """Make the file of a log in which the number FLIPPED is of ``topic``."""
    clock = Clock()
    store = SqliteStore(path, TOPICS, now_ms=clock)
    try:
        await store.write(
            [
                envelope(n, at=n, topic=topic if n == FLIPPED else "news.breaking")
                for n in range(1, MANY + 1)
            ]
        )
        if void:
            await store.void(LOG, [FLIPPED])
    finally:
        await store.close()


def row_of(path: Path, content: bytes) -> range:
    """Return the range of bytes of FLIPPED's row in table ``log``."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        topic, id_text = connection.execute(
            "SELECT topic, id FROM log WHERE seq = ?", (FLIPPED,)
        ).fetchone()
    key = LOG.router.encode() + LOG.epoch.to_bytes(6) + FLIPPED.to_bytes(1)
    row = key + f"{topic}{id_text}".encode()
    start = content.index(row)
    assert content.find(row, start + 1) == -1
    return range(start - HEAD, start + len(row) + KEPT_UNTIL)


def numbers(path: Path, now_ms: int, *spans: tuple[int, int]) -> list[list[Number]]:
    """Read the numbers of each span from a damaged file; none if SQLite reports the damage."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        return [_numbers(connection, now_ms, *span) for span in spans]


def _numbers(connection: sqlite3.Connection, now_ms: int, first: int, last: int) -> list[Number]:
    try:
        return _sqlite_logs.numbers(
            connection,
            LOG,
            first=first,
            last=last,
            limit=LAST,
            now_ms=now_ms,
            kept_until=lambda id_text, topic: rules.kept_until(id_text, topic, TOPICS),
        )
    except sqlite3.DatabaseError:
        return []


def with_each_bit_flipped(path: Path, content: bytes, places: range) -> Iterator[int]:
    for bit in some(range(places.start * 8, places.stop * 8)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        yield bit


@pytest.mark.promise("R7")
@pytest.mark.parametrize(
    ("topic", "void", "now_ms", "is_now"),
    [
        ("news.breaking", False, START_MS + 500, NumberState.MESSAGE),
        (EIGHT, False, START_MS + 500, NumberState.MESSAGE),
        (SHORT, False, START_MS + 500, NumberState.MESSAGE),
        (SHORT, False, LATER, NumberState.GONE),
        (EIGHT, True, START_MS + 500, NumberState.VOID),
    ],
)
async def test_a_flipped_bit_of_a_row_makes_no_number_over_void_or_another(
    tmp_path, topic, void, now_ms, is_now
):
    path = tmp_path / "store.db"
    await write(path, topic, void=void)
    content = await asyncio.to_thread(path.read_bytes)
    (whole,) = numbers(path, now_ms, (1, LAST))
    assert [number.seq for number in whole] == list(range(1, MANY + 1))
    assert whole[FLIPPED - 1].state is is_now
    for bit in with_each_bit_flipped(path, content, row_of(path, content)):
        read = numbers(path, now_ms, *SPANS)
        # Other rows can still be read.
        assert [n for n in read[0] if n in whole], f"bit {bit}"
        for (first, last), found in zip(SPANS, read, strict=True):
            assert [n.seq for n in found] == sorted({n.seq for n in found}), f"bit {bit}"
            assert all(first <= n.seq <= last for n in found), f"bit {bit}"
            text = [n for n in found if n.state is not NumberState.HALF]
            assert [n for n in text if n not in whole] == [], f"bit {bit}"


async def test_a_row_whose_topic_has_changed_is_missing_and_not_over(tmp_path):
    path = tmp_path / "store.db"
    await write(path, SHORT)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        # As if its topic were one that is kept for ten minutes.
        connection.execute("UPDATE log SET topic = ? WHERE seq = 1", (SHORT,))
    (found,) = numbers(path, LATER, (1, FLIPPED))
    assert found[0] == Number(1, NumberState.HALF)
    assert found[-1] == Number(FLIPPED, NumberState.GONE)


async def test_rows_of_the_release_before_are_over_and_void_as_they_were(tmp_path):
    path = tmp_path / "store.db"
    await write(path, SHORT)
    ends = rules.index_ends(START_MS + FLIPPED + SHORTEST_MS)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE log SET kept_until = ? WHERE seq = ?", (ends, FLIPPED))
        connection.execute("UPDATE log SET topic = '', id = '' WHERE seq = 1")
    (found,) = numbers(path, LATER, (1, FLIPPED))
    assert found[0] == Number(1, NumberState.VOID)
    assert found[-1] == Number(FLIPPED, NumberState.GONE)
