"""Logs and their directory in the SQLite file: plain blocking functions on a connection.

Writers of one file take turns, so a condition that is part of the statement is a transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, Final

import orjson

from newsfabric.store._sqlite_file import Row, read_envelope
from newsfabric.store._unreadable import left_out, read_directory_row, readable, readable_rows
from newsfabric.store.logs import DirectoryRow, Log, Number, State

_NUMBERS: Final = """SELECT json_group_array(json_array(seq, topic, id, hex(body), hex(rest))) FROM
    (SELECT l.seq, l.topic, l.id, m.body, m.rest FROM log AS l
        LEFT JOIN messages AS m ON (m.id, m.router, m.epoch, m.seq)
            = (l.id, l.router, l.epoch, l.seq)
        WHERE l.router = ? AND l.epoch = ? AND l.seq BETWEEN ? AND ?
        ORDER BY l.seq LIMIT ?)"""
# At most this many bodies are in one JSON text, as in _sqlite_file.
_PAGE_ROWS: Final = 256
_LARGEST: Final = 2**63 - 1
_LIST: Final = "INSERT OR IGNORE INTO logs VALUES (?, ?, ?, ?, 1, 0, NULL, '[]', ?)"
_CHANGE: Final = """UPDATE logs SET version = ?, low = ?, ended = ?, voids = ?, kept_until = ?
    WHERE region = ? AND day = ? AND router = ? AND epoch = ? AND ended IS NULL AND version < ?"""
_DIRECTORY: Final = "SELECT router, epoch, version, low, ended, voids FROM logs WHERE region = ?"


def void_rows(log: Log, numbers: Iterable[int], ends_ms: int) -> list[Row]:
    """Rows of table ``log`` for numbers that are void."""
    return [(log.router, log.epoch, number, "", "", ends_ms) for number in numbers]


def numbers(
    connection: sqlite3.Connection,
    log: Log,
    *,
    first: int,
    last: int,
    limit: int,
    gone: Callable[[str, str], bool],
) -> list[Number]:
    """As :meth:`newsfabric.store.Store.numbers`; ``gone(id, topic)`` says whose time is over."""
    found: list[Number] = []
    last = min(last, _LARGEST)
    while first <= last and len(found) < limit:
        size = min(limit - len(found), _PAGE_ROWS)
        asked = (log.router, log.epoch, first, last, size)
        page = orjson.loads(connection.execute(_NUMBERS, asked).fetchone()[0])
        # The aggregate promises no order.
        page.sort()
        found += [_number(log, fields, gone) for fields in page]
        if len(page) < size:
            break
        first = page[-1][0] + 1
    return found


def _number(log: Log, fields: list[Any], gone: Callable[[str, str], bool]) -> Number:
    seq, topic, id_text, body, rest = fields
    if not topic:
        return Number(seq, State.VOID)
    try:
        if gone(id_text, topic):
            return Number(seq, State.GONE)
    except ValueError as exc:
        # It names no message.
        left_out(fields, exc)
        return Number(seq, State.HALF)
    row = [topic, id_text, log.router, log.epoch, seq, body, rest]
    # hex() makes an empty text of what isn't there, and `rest` is never empty.
    envelope = next(readable([row], read_envelope), None) if rest else None
    return Number(seq, State.HALF if envelope is None else State.MESSAGE, envelope)


def list_log(connection: sqlite3.Connection, log: Log, ends_ms: int) -> bool:
    """As :meth:`newsfabric.store.Store.list_log`."""
    row = (log.region, log.day, log.router, log.epoch, ends_ms)
    return connection.execute(_LIST, row).rowcount == 1


def change_log(connection: sqlite3.Connection, row: DirectoryRow, ends_ms: int) -> bool:
    """As :meth:`newsfabric.store.Store.change_log`."""
    voids = orjson.dumps(row.voids).decode()
    name = (row.log.region, row.log.day, row.log.router, row.log.epoch)
    values = (row.version, row.low, row.ended, voids, ends_ms, *name, row.version)
    if connection.execute(_CHANGE, values).rowcount == 1:
        return True
    there = connection.execute(f"{_DIRECTORY} AND day = ? AND router = ? AND epoch = ?", name)
    return any(read_directory_row(row.log.region, fields) == row for fields in there)


def log_days(connection: sqlite3.Connection) -> list[tuple[str, int]]:
    """As :meth:`newsfabric.store.Store.log_days`."""
    return connection.execute("SELECT DISTINCT region, day FROM logs ORDER BY 1, 2").fetchall()


def directory(connection: sqlite3.Connection, region: str, day: int) -> list[DirectoryRow]:
    """As :meth:`newsfabric.store.Store.directory`."""
    found = connection.execute(f"{_DIRECTORY} AND day = ? ORDER BY router, epoch", (region, day))
    return list(readable_rows(region, found))
