"""Reads of a topic's messages from the SQLite file: plain blocking functions on a connection.

A page is read as one row of JSON (:mod:`newsfabric.store._sqlite_file` has the reason). If one row
of it is damaged in its head, or in its topic or id, the whole page can't be read. Then its rows are
read one by one, by an index that has their ids. The damaged row is returned without a body, under
the id that the index has, so the caller is informed of the missing message.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, Final

import orjson

from newsfabric.errors import StoreError
from newsfabric.messages.envelope import MAX_MS, Envelope
from newsfabric.store import rules
from newsfabric.store._sqlite_file import PAGE_ROWS, Row, read_envelope
from newsfabric.store._unreadable import blank, left_out, read_or_blank

# hex(): a body may be any bytes, and JSON text can't hold all of them.
_AS_JSON: Final = """SELECT json_group_array(json_array(
    topic, id, router, epoch, seq, hex(body), hex(rest))) FROM """
HISTORY: Final = f"""{_AS_JSON} (SELECT * FROM messages
    WHERE topic = ? AND id >= ? AND (id, router, epoch, seq) < (?, ?, ?, ?)
        AND readable_until > ?
    ORDER BY id DESC, router DESC, epoch DESC, seq DESC LIMIT ?)"""  # noqa: S608
# The keys are sorted before the bodies are fetched: a topic may have thousands.
LATEST: Final = f"""{_AS_JSON} (SELECT m.* FROM
    (SELECT id, topic FROM latest_by_key WHERE topic = ? AND readable_until > ?
        ORDER BY id DESC LIMIT ?) AS l
    JOIN messages AS m ON m.rowid =
        (SELECT rowid FROM messages WHERE id = l.id AND topic = l.topic LIMIT 1))"""  # noqa: S608
_PLACES: Final = """SELECT id, rowid FROM messages WHERE topic = ? AND id >= ? AND id <= ?
    ORDER BY id DESC"""
_LATEST_PLACES: Final = """SELECT id, (SELECT rowid FROM messages
        WHERE id = l.id AND topic = l.topic LIMIT 1)
    FROM latest_by_key AS l WHERE topic = ? AND readable_until > ? ORDER BY id DESC LIMIT ?"""
# Errors of SQLite for a row that it can't read, or that has values that JSON can't hold.
_OF_ROWS: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR)
_ROW: Final = f"{_AS_JSON} messages WHERE rowid = ? AND readable_until > ?"


def history(
    connection: sqlite3.Connection,
    topic: str,
    *,
    limit: int,
    since_ms: int,
    before: str | None,
    now_ms: int,
) -> list[Envelope]:
    """See :meth:`newsfabric.store.Store.history`."""
    end = rules.first_id(MAX_MS + 1) if before is None else rules.checked_id(before)
    # Twice as many as wanted: a gold message has a copy of each region here.
    newest_first = _newest_first(connection, topic, since_ms, end, now_ms, 2 * limit)
    return rules.oldest_of_each(newest_first, limit)[::-1]


def since(
    connection: sqlite3.Connection,
    topic: str,
    *,
    from_ms: int,
    to_ms: int,
    limit: int,
    now_ms: int,
) -> list[Envelope]:
    """See :meth:`newsfabric.store.Store.since`."""
    if limit <= 0:
        return []
    end = rules.first_id(to_ms)
    newest_first = _newest_first(connection, topic, from_ms, end, now_ms, limit)
    return list(itertools.islice(newest_first, limit))[::-1]


def _newest_first(
    connection: sqlite3.Connection, topic: str, since_ms: int, end: str, now_ms: int, wanted: int
) -> Iterator[Envelope]:
    """Yield the copies in [since_ms, ``end``), read in pages of ``wanted`` rows, at most 256."""
    page_end: rules.RowKey = (end, "", 0, 0)
    size = min(wanted, PAGE_ROWS)
    while True:
        asked = (topic, rules.first_id(since_ms), *page_end, now_ms, size)
        page = _page(connection, asked)
        yield from page
        if len(page) < size:
            return
        page_end = rules.row_key(page[-1])


def _page(connection: sqlite3.Connection, asked: tuple[Any, ...]) -> list[Envelope]:
    """Return the envelopes that HISTORY finds, newest first."""
    try:
        return _read(connection, HISTORY, asked)[::-1]
    except (StoreError, sqlite3.DatabaseError) as exc:
        _check_damaged(exc)
    topic, first, end, router, epoch, seq, now_ms, size = asked
    # Only the index is read for these.
    places = connection.execute(_PLACES, (topic, first, end))
    rows = _one_by_one(connection, topic, places, now_ms)
    before = (end, router, epoch, seq)
    return list(itertools.islice((one for one in rows if rules.row_key(one) < before), size))


def latest(
    connection: sqlite3.Connection, topic: str, *, limit: int, now_ms: int
) -> list[Envelope]:
    """See :meth:`newsfabric.store.Store.latest`."""
    asked = (topic, now_ms, rules.latest_limit(limit))
    try:
        return _read(connection, LATEST, asked)
    except (StoreError, sqlite3.DatabaseError) as exc:
        _check_damaged(exc)
    places = connection.execute(_LATEST_PLACES, asked)
    return list(_one_by_one(connection, topic, places, now_ms))[::-1]


def _read(connection: sqlite3.Connection, sql: str, parameters: Row) -> list[Envelope]:
    """Return the envelopes that ``sql`` finds, sorted by their keys."""
    found = orjson.loads(connection.execute(sql, parameters).fetchone()[0])
    # The aggregate guarantees no order.
    found.sort(key=lambda fields: fields[1:5])
    return [read_or_blank(fields[0], fields[1:5], fields, read_envelope) for fields in found]


def _check_damaged(exc: StoreError | sqlite3.Error) -> None:
    """Raise ``exc`` unless the cause is a row that can't be read."""
    if isinstance(exc, sqlite3.Error) and exc.sqlite_errorcode & 0xFF not in _OF_ROWS:
        raise exc


def _one_by_one(
    connection: sqlite3.Connection, topic: str, places: Iterable[tuple[str, int]], now_ms: int
) -> Iterator[Envelope]:
    """Yield the messages of ``topic`` at these (id, rowid) that haven't expired, in this order."""
    for id_text, rowid in places:
        try:
            found = orjson.loads(connection.execute(_ROW, (rowid, now_ms)).fetchone()[0])
            named = [fields for fields in found if fields[1] == id_text]
            yield from (read_or_blank(topic, one[1:5], one, read_envelope) for one in named)
            if named or not found:
                continue
            why: Exception = ValueError("its index names another message")
        except (StoreError, sqlite3.DatabaseError) as exc:
            _check_damaged(exc)
            why = exc
        left_out([topic, id_text], why)
        with contextlib.suppress(ValueError):
            yield blank(topic, (id_text, "", 0, 0))
