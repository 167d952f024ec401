"""Logs and their directory in the SQLite file: plain blocking functions on a connection.

Writers of one file take turns, so a condition that is part of the statement is a transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, Final

import orjson

from newsfabric.numbers import is_whole
from newsfabric.store._sqlite_file import Row, read_envelope
from newsfabric.store._sqlite_numbers import is_over, is_void_row, void_row
from newsfabric.store._unreadable import left_out, read_directory_row, readable, readable_rows
from newsfabric.store.logs import DirectoryRow, Log, Number, NumberState

# CAST, since a flipped bit makes a blob of a text, and JSON can't hold a blob.
_NUMBERS: Final = """SELECT json_group_array(json_array(
        seq, CAST(topic AS TEXT), CAST(id AS TEXT), CAST(kept_until AS INTEGER),
        hex(body), hex(rest))) FROM
    (SELECT l.seq, l.topic, l.id, l.kept_until, m.body, m.rest FROM log AS l
        LEFT JOIN messages AS m ON (m.id, m.router, m.epoch, m.seq)
            = (l.id, l.router, l.epoch, l.seq)
        WHERE l.router = ? AND l.epoch = ? AND l.seq BETWEEN ? AND ?
        ORDER BY l.seq LIMIT ?)"""
# At most this many bodies are in one JSON text, as in _sqlite_file.
_PAGE_ROWS: Final = 256
# Statements of one page that may fail: a few for each damaged row.
_MOST_FAILED: Final = 64
_LARGEST: Final = 2**63 - 1
_LIST: Final = "INSERT OR IGNORE INTO logs VALUES (?, ?, ?, ?, 1, 0, NULL, '[]', ?)"
_CHANGE: Final = """UPDATE logs SET version = ?, low = ?, ended = ?, voids = ?, kept_until = ?
    WHERE region = ? AND day = ? AND router = ? AND epoch = ? AND ended IS NULL AND version < ?"""
_DIRECTORY: Final = "SELECT router, epoch, version, low, ended, voids FROM logs WHERE region = ?"


def void_rows(log: Log, numbers: Iterable[int], ends_ms: int) -> list[Row]:
    """Return rows of table ``log`` for numbers that are void."""
    return [void_row(log.router, log.epoch, number, ends_ms) for number in numbers]


def numbers(
    connection: sqlite3.Connection,
    log: Log,
    *,
    first: int,
    last: int,
    limit: int,
    now_ms: int,
    kept_until: Callable[[str, str], int],
) -> list[Number]:
    """See :meth:`newsfabric.store.Store.numbers`; ``kept_until(id, topic)`` returns when the
    message's time is over, ValueError if there is no such message."""
    found: dict[int, Number] = {}
    last = min(last, _LARGEST)
    while first <= last and len(found) < limit:
        size = min(limit - len(found), _PAGE_ROWS)
        asked = log.router, log.epoch, first, last, size
        page = _page(connection, asked, [_MOST_FAILED])
        # Near a row whose number has changed SQLite returns other rows, too, and some twice.
        asked_for = [fields for fields in page if is_whole(fields[0], first, last)]
        for fields in asked_for:
            number = _number(log, fields, now_ms, kept_until)
            if _counts(number, found.get(number.seq)):
                found[number.seq] = number
        if len(page) < size or not asked_for:
            break
        first = max(fields[0] for fields in asked_for) + 1
    # The aggregate guarantees no order.
    return sorted(found.values())


def _page(
    connection: sqlite3.Connection, asked: tuple[str, int, int, int, int], tries: list[int]
) -> list[list[Any]]:
    """Return the rows of (router, epoch, first, last, at most so many), in any order.

    SQLite returns no row if the head of one is damaged. Then the range is halved until the damaged
    row is alone, which is returned empty. After more than ``tries`` failed reads the error is
    raised: the whole file may be damaged.
    """
    try:
        rows: list[list[Any]] = orjson.loads(connection.execute(_NUMBERS, asked).fetchone()[0])
    except sqlite3.DatabaseError as exc:
        router, epoch, first, last, size = asked
        tries[0] -= 1
        if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT or tries[0] < 0:
            raise
        if first == last:
            return [[first, None, None, None, "", ""]]
        middle = (first + last) // 2
        rows = _page(connection, (router, epoch, first, middle, size), tries)
        if len(rows) < size:
            rows += _page(connection, (router, epoch, middle + 1, last, size - len(rows)), tries)
    return rows


def _counts(number: Number, other: Number | None) -> bool:
    """Return whether ``number`` is the one to trust of two rows of one number."""
    return other is None or other.state is NumberState.HALF or number.state is NumberState.MESSAGE


def _number(
    log: Log, fields: list[Any], now_ms: int, kept_until: Callable[[str, str], int]
) -> Number:
    seq, topic, id_text, ends, body, rest = fields
    row = (log.router, log.epoch, seq, topic, id_text, ends)
    if not topic:
        return (
            Number(seq, NumberState.VOID) if is_void_row(row) else _damaged(seq, fields, "not void")
        )
    try:
        end = kept_until(id_text, topic)
    except ValueError as exc:
        return _damaged(seq, fields, str(exc))
    over = now_ms >= end
    if over and is_over(row, end):
        return Number(seq, NumberState.GONE)
    # hex() returns an empty text for a missing message, and `rest` is never empty.
    message = [topic, id_text, log.router, log.epoch, seq, body, rest]
    envelope = next(readable([message], read_envelope), None) if rest else None
    if envelope is not None:
        return Number(seq, NumberState.GONE) if over else Number(seq, NumberState.MESSAGE, envelope)
    return _damaged(seq, fields, "not what it was") if over else Number(seq, NumberState.HALF)


def _damaged(seq: int, fields: list[Any], why: str) -> Number:
    """Report a row that names no message, or not the one written: the message is missing."""
    left_out(fields, ValueError(why))
    return Number(seq, NumberState.HALF)


def list_log(connection: sqlite3.Connection, log: Log, ends_ms: int) -> bool:
    """See :meth:`newsfabric.store.Store.list_log`."""
    row = (log.region, log.day, log.router, log.epoch, ends_ms)
    return connection.execute(_LIST, row).rowcount == 1


def change_log(connection: sqlite3.Connection, row: DirectoryRow, ends_ms: int) -> bool:
    """See :meth:`newsfabric.store.Store.change_log`."""
    voids = orjson.dumps(row.voids).decode()
    name = (row.log.region, row.log.day, row.log.router, row.log.epoch)
    values = (row.version, row.low, row.ended, voids, ends_ms, *name, row.version)
    if connection.execute(_CHANGE, values).rowcount == 1:
        return True
    there = connection.execute(f"{_DIRECTORY} AND day = ? AND router = ? AND epoch = ?", name)
    return any(read_directory_row(row.log.region, fields) == row for fields in there)


def log_days(connection: sqlite3.Connection) -> list[tuple[str, int]]:
    """See :meth:`newsfabric.store.Store.log_days`."""
    return connection.execute("SELECT DISTINCT region, day FROM logs ORDER BY 1, 2").fetchall()


def directory(connection: sqlite3.Connection, region: str, day: int) -> list[DirectoryRow]:
    """See :meth:`newsfabric.store.Store.directory`."""
    found = connection.execute(f"{_DIRECTORY} AND day = ? ORDER BY router, epoch", (region, day))
    return list(readable_rows(region, found))
