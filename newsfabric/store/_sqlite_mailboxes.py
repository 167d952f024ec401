"""Mailboxes in the SQLite file: individual messages, as their users ask for them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import orjson

from newsfabric.messages.envelope import MAX_MS
from newsfabric.messages.mailbox import KeptMessage, UserMark, first_of_each
from newsfabric.store import rules
from newsfabric.store._sqlite_file import PAGE_ROWS, read_envelope, who_of
from newsfabric.store._unreadable import read_row

# Several mailboxes: of each its newest messages, and their marks.
_KEPT: Final = """json_array(m.topic, m.id, m.router, m.epoch, m.seq, hex(m.body), hex(m.rest),
    (SELECT json_group_array(json_array(k.id, k.mark, k.at)) FROM inbox_marks AS k
        WHERE k.topic = i.topic AND k.who = i.who)) AS one
    FROM inbox AS i JOIN messages AS m ON m.rowid =
        (SELECT rowid FROM messages WHERE id = i.id AND topic = i.topic LIMIT 1)"""
MAILBOXES: Final = f"""SELECT json_group_array(json((
    SELECT json_group_array(json(one)) FROM (SELECT {_KEPT}
        WHERE i.topic = t.value AND i.id < ?1 AND i.readable_until > ?2
            AND NOT EXISTS (SELECT 1 FROM inbox_marks AS d
                WHERE d.topic = i.topic AND d.who = i.who AND d.mark = 'dismiss')
        ORDER BY i.id DESC LIMIT ?3)))) FROM json_each(?4) AS t"""  # noqa: S608
KEPT: Final = f"SELECT {_KEPT} WHERE i.topic = ? AND i.who = ? AND i.readable_until > ?"
# Mailboxes in one statement, and messages of each; a mailbox with more is read again alone.
_MAILBOXES: Final = 16
_USUAL_MAILBOX: Final = PAGE_ROWS // _MAILBOXES


def mailboxes(
    connection: sqlite3.Connection, topics: Sequence[str], *, limit: int, now_ms: int
) -> list[list[KeptMessage]]:
    """See :meth:`newsfabric.store.Store.mailboxes`."""
    most = rules.mailbox_limit(limit)
    end = rules.first_id(MAX_MS + 1)
    found: list[list[KeptMessage]] = []
    for start in range(0, len(topics), _MAILBOXES):
        some = topics[start : start + _MAILBOXES]
        found += _mailboxes(connection, some, end, now_ms, min(most, _USUAL_MAILBOX))
    for topic, newest_first in zip(topics, found, strict=True):
        size = _USUAL_MAILBOX
        while size <= len(newest_first) < most:
            before, wanted = newest_first[-1].envelope.id, min(most - size, PAGE_ROWS)
            newest_first.extend(_mailboxes(connection, [topic], before, now_ms, wanted)[0])
            size += wanted
    return [newest_first[::-1] for newest_first in found]


def _mailboxes(
    connection: sqlite3.Connection, topics: Sequence[str], end: str, now_ms: int, limit: int
) -> list[list[KeptMessage]]:
    """Return the newest ``limit`` messages of each topic with ids before ``end``, newest first."""
    asked = (end, now_ms, limit, orjson.dumps(topics).decode())
    text = connection.execute(MAILBOXES, asked).fetchone()[0]
    found = [[_kept(fields) for fields in each] for each in orjson.loads(text)]
    for each in found:
        # The aggregate guarantees no order.
        each.sort(key=lambda kept: kept.envelope.id, reverse=True)
    return found


def kept(
    connection: sqlite3.Connection, topic: str, id_text: str, *, now_ms: int
) -> KeptMessage | None:
    """See :meth:`newsfabric.store.Store.kept`."""
    who = who_of(rules.checked_id(id_text))
    row = connection.execute(KEPT, (topic, who, now_ms)).fetchone()
    return None if row is None else _kept(orjson.loads(row[0]))


def _kept(fields: list[Any]) -> KeptMessage:
    return read_row(fields, _read_kept)


def _read_kept(fields: list[Any]) -> KeptMessage:
    *message, marks = fields
    e = read_envelope(message)
    marked = (UserMark(topic=e.topic, id=id_, kind=kind, at_ms=at) for id_, kind, at in marks)
    return KeptMessage(e, first_of_each(list(marked)))
