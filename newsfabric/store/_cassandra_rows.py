"""The Cassandra store's requests as values: CQL, partitions, timestamps, TTLs. Pure.

Every write carries a timestamp that follows from the id alone. So a repeated write, from anywhere
and in any order, is the same write: hints, speculative copies and retries can't undo anything. TTLs
only free room; readers go by :func:`newsfabric.store.rules.lifetime`.

The decision that a reader may question: all rows of one partition in one call are *one* request (an
unlogged batch of a single partition is one mutation). A router's batch of 256 messages costs a
dozen requests, not 800.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import uuid
from collections.abc import Sequence
from typing import Any, Final

import orjson

from newsfabric.messages.envelope import (
    IDENTITY_BITS,
    MAX_MS,
    Envelope,
    id_of,
    identity_of_id,
    ms_of_id,
)
from newsfabric.messages.mailbox import UserMark, is_individual
from newsfabric.store import rules
from newsfabric.store._unreadable import read_or_blank, read_row
from newsfabric.topics import TopicTable, owner_of

DAY_MS: Final = 86_400_000
# Numbers of a log in one partition: 400 KB.
LOG_BLOCK: Final = 4_096
# A router's clock that was set back is behind its ids by at most this, and their rows expire that
# much later. It only bounds a TTL. A starting router believes rows of the directory that are a day
# ahead (wholesale/router/clock_watch.py), and its clock may be set back after that: so it is more.
AHEAD_MS: Final = 7 * DAY_MS
# Clocks of routers and store nodes may differ by this, and a row must not expire too early.
_SLACK_S: Final = 60
# Cassandra can't hold an expiry after 2038 unless configured; no news is kept for longer.
_MAX_TTL_S: Final = 5 * 365 * 86_400
# Bounds of one mutation; Cassandra's limit is half a commit log segment (16 MiB by default).
_BATCH_ROWS: Final = 128
_BATCH_BYTES: Final = 512 * 1024
# Bytes of a row beside its body and its JSON: names, numbers, their lengths.
_KEY_BYTES: Final = 256

INSERT_MESSAGE: Final = (
    "INSERT INTO messages_by_topic (topic, day, id, router, epoch, seq, body, rest)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?"
)
INSERT_LATEST: Final = (
    "INSERT INTO latest_by_key (topic, key, version, envelope)"
    " VALUES (?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?"
)
INSERT_SLOT: Final = "INSERT INTO slots (scope, slot) VALUES (?, ?) USING TTL ?"
SLOTS: Final = "SELECT slot FROM slots WHERE scope = ? AND slot >= ? AND slot <= ? LIMIT ?"
HISTORY: Final = (
    "SELECT id, router, epoch, seq, body, rest FROM messages_by_topic"
    " WHERE topic = ? AND day = ? AND (id, router, epoch, seq) < (?, ?, ?, ?)"
    " AND (id, router, epoch, seq) >= (?, ?, ?, ?) LIMIT ?"
)
# The first row of each key is its highest version.
LATEST: Final = (
    "SELECT key, envelope FROM latest_by_key WHERE topic = ? AND key > ?"
    " GROUP BY topic, key LIMIT ?"
)
INSERT_INBOX: Final = (
    "INSERT INTO inbox (user, topic, id, envelope) VALUES (?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?"
)
INSERT_MARK: Final = (
    "INSERT INTO inbox_marks (user, topic, id, mark, at)"
    " VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?"
)
INBOX: Final = (
    "SELECT id, envelope FROM inbox WHERE user = ? AND topic = ? AND id < ? AND id >= ? LIMIT ?"
)
MARKS: Final = (
    "SELECT id, mark, at FROM inbox_marks WHERE user = ? AND topic = ?"
    " AND (id, mark) > (?, ?) AND (id) <= (?) LIMIT ?"
)
# Statements for many users at once, of all topics.
INBOXES: Final = "SELECT user, topic, id, envelope FROM inbox WHERE user IN ? PER PARTITION LIMIT ?"
MARKS_OF_MANY: Final = (
    "SELECT user, topic, id, mark, at FROM inbox_marks WHERE user IN ? PER PARTITION LIMIT ?"
)
# Statements of logs and of the directory (_cassandra_logs.py).
INSERT_LOG: Final = (
    "INSERT INTO log (router, epoch, block, seq, topic, id)"
    " VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?"
)
NUMBERS: Final = (
    "SELECT seq, topic, id FROM log"
    " WHERE router = ? AND epoch = ? AND block = ? AND seq >= ? AND seq <= ? LIMIT ?"
)
MESSAGES: Final = (
    "SELECT id, router, epoch, seq, body, rest FROM messages_by_topic"
    " WHERE topic = ? AND day = ? AND (id, router, epoch, seq) IN ?"
)
INSERT_LOG_DAY: Final = (
    "INSERT INTO log_days (directory, region, day) VALUES ('logs', ?, ?) USING TTL ?"
)
INSERT_LOG_NAME: Final = (
    "INSERT INTO log_names (region, day, router, epoch) VALUES (?, ?, ?, ?) USING TTL ?"
)
# The clock of the node that answers, in ms. Each node has this row.
CLOCK: Final = "SELECT host_id, toUnixTimestamp(now()) FROM system.local"
LOG_DAYS: Final = "SELECT region, day FROM log_days WHERE directory = 'logs' LIMIT ?"
LOG_NAMES: Final = (
    "SELECT router, epoch FROM log_names"
    " WHERE region = ? AND day = ? AND (router, epoch) > (?, ?) LIMIT ?"
)
LIST_LOG: Final = (
    "INSERT INTO logs (region, router, epoch, version, low, voids)"
    " VALUES (?, ?, ?, 1, 0, '[]') IF NOT EXISTS USING TTL ?"
)
# The condition is newsfabric.store.logs.DirectoryRow.may_replace. All columns are written anew each
# time, so that they expire together.
CHANGE_LOG: Final = (
    "UPDATE logs USING TTL ? SET version = ?, low = ?, voids = ?"
    " WHERE region = ? AND router = ? AND epoch = ? IF ended = null AND version < ?"
)
END_LOG: Final = (
    "UPDATE logs USING TTL ? SET version = ?, low = ?, voids = ?, ended = ?"
    " WHERE region = ? AND router = ? AND epoch = ? IF ended = null AND version < ?"
)
LOGS: Final = (
    "SELECT router, epoch, version, low, ended, voids FROM logs"
    " WHERE region = ? AND router = ? AND epoch IN ?"
)
STATEMENTS: Final = (
    CLOCK,
    INSERT_MESSAGE,
    INSERT_LOG,
    NUMBERS,
    MESSAGES,
    INSERT_LOG_DAY,
    INSERT_LOG_NAME,
    LOG_DAYS,
    LOG_NAMES,
    LIST_LOG,
    CHANGE_LOG,
    END_LOG,
    LOGS,
    INSERT_LATEST,
    INSERT_SLOT,
    INSERT_INBOX,
    INSERT_MARK,
    SLOTS,
    HISTORY,
    LATEST,
    INBOX,
    MARKS,
    INBOXES,
    MARKS_OF_MANY,
)

# Marks made later than this many ms (49 days) after their message have the same timestamp.
_LONGEST_WAIT: Final = 2**32

Values = tuple[Any, ...]
# A row key with the id as Cassandra sorts it: our ids sort alike as texts and as uuids.
Place = tuple[uuid.UUID, str, int, int]
Slot = tuple[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one partition of one table, written by one request."""

    statement: str
    rows: list[Values]


@dataclasses.dataclass(frozen=True, slots=True)
class WritePlan:
    """Requests of one write: ``slots`` (with their TTL) first, then ``batches`` in any order."""

    slots: dict[Slot, int]
    batches: list[Batch]


def plan(envelopes: Sequence[Envelope], topics: TopicTable, *, now_ms: int) -> WritePlan:
    """Return the plan to write ``envelopes``. ValueError or TypeError for values of no router."""
    slots: dict[Slot, int] = {}
    batches = Batches()
    add = batches.add
    noted: set[tuple[str, int]] = set()
    for e in envelopes:
        topic, ms = e.topic, ms_of_id(e.id)
        day = ms // DAY_MS
        kept_ms = rules.lifetime(e, topics).kept_until - ms
        ttl = ttl_s(min(ms - now_ms, AHEAD_MS) + kept_ms)
        stamp = timestamp(e)
        rest = _rest(e)
        size = len(e.body) + len(rest) + _KEY_BYTES
        key = (uuid.UUID(e.id), e.router, e.epoch, e.seq)
        row = (*key, e.body, rest)
        add(INSERT_MESSAGE, (topic, day), (topic, day, *row, stamp, ttl), size)
        block = e.seq // LOG_BLOCK
        log_ttl = ttl_s(rules.index_ends(min(ms - now_ms, AHEAD_MS) + kept_ms))
        log_row = (e.router, e.epoch, block, e.seq, topic, key[0], stamp, log_ttl)
        add(INSERT_LOG, (e.router, e.epoch, block), log_row, _KEY_BYTES)
        if e.key is not None:
            # Twice as long: the replaced row, routed at most a ttl later, must not come back.
            stays = min(ttl + ttl_s(kept_ms), _MAX_TTL_S)
            version = -1 if e.version is None else e.version
            latest = (topic, e.key, version, row, stamp, stays)
            add(INSERT_LATEST, topic, latest, size)
        if is_individual(e, topics.find(topic)):
            user = owner_of(topic)
            cell = (e.router, e.epoch, e.seq, e.body, rest)
            add(INSERT_INBOX, user, (user, topic, key[0], cell, stamp, ttl), size)
        if (topic, day) not in noted:
            noted.add((topic, day))
            slots[topic_scope(topic), day] = _slot_ttl(kept_ms)
    return WritePlan(slots, batches.all)


class Batches:
    """Rows gathered by partition, within the bounds of one mutation."""

    def __init__(self) -> None:
        self.all: list[Batch] = []
        # The last batch of each partition, and its bytes.
        self._open: dict[tuple[str, Any], tuple[Batch, int]] = {}

    def add(self, statement: str, partition: Any, row: Values, size: int) -> None:
        """Add a row of about ``size`` bytes."""
        key = (statement, partition)
        batch, before = self._open.get(key, (None, 0))
        if batch is None or len(batch.rows) == _BATCH_ROWS or before + size > _BATCH_BYTES:
            batch, before = Batch(statement, []), 0
            self.all.append(batch)
        batch.rows.append(row)
        self._open[key] = batch, before + size


def mark_batches(marks: Sequence[UserMark], topics: TopicTable, *, now_ms: int) -> list[Batch]:
    """Return the batches that write ``marks``."""
    batches = []
    for mark in marks:
        ttl = ttl_s(rules.mark_ends(mark, topics) - now_ms)
        row = (
            *(mark.user, mark.topic, uuid.UUID(mark.id), mark.kind, mark.at_ms),
            *(mark_timestamp(mark), ttl),
        )
        batches.append(Batch(INSERT_MARK, [row]))
    return batches


def mark_timestamp(mark: UserMark) -> int:
    """Return a timestamp that is higher for an earlier mark, so that of two the first one stands.

    The timestamp is at most little more than an hour after the time of the marked message: not the
    distant future even for a mark made at once.
    """
    routed_ms = ms_of_id(mark.id)
    return routed_ms * 1000 + _LONGEST_WAIT - min(max(mark.at_ms - routed_ms, 0), _LONGEST_WAIT)


def topic_scope(topic: str) -> str:
    """Return the scope of the days of ``topic``."""
    return f"topic:{topic}"


def timestamp(e: Envelope) -> int:
    """Return when ``e`` was routed, in µs: later for later ids, down to the ms and beyond."""
    return ms_of_id(e.id) * 1000 + (e.identity * 1000 >> IDENTITY_BITS)


def ttl_s(ms: int) -> int:
    """Return a TTL that keeps a row for ``ms``, and a little longer."""
    return min(max(math.ceil(ms / 1000), 0) + _SLACK_S, _MAX_TTL_S)


def _slot_ttl(kept_ms: int) -> int:
    # Each process writes it once, for rows that arrive until the end of its day.
    return min(ttl_s(kept_ms) + 2 * DAY_MS // 1000, _MAX_TTL_S)


def first_place(ms: int) -> Place:
    """Return the place before all rows routed at ``ms`` or later, after all earlier ones."""
    if ms > MAX_MS:
        return (uuid.UUID("ffffffff-ffff-7fff-bfff-ffffffffffff"), "~", 0, 0)
    return (uuid.UUID(id_of(max(ms, 0), 0)), "", 0, 0)


def place_before(id_text: str) -> Place:
    """Return the place before every copy of the message ``id_text``; ValueError if it is no id."""
    return (uuid.UUID(rules.checked_id(id_text)), "", 0, 0)


_REST: Final = (
    "published_ms",
    "origin",
    "key",
    "version",
    "message_id",
    "app_id",
    "type",
    "expires_ms",
    "traceparent",
)


def _rest(e: Envelope) -> str:
    rest = {name: value for name in _REST if (value := getattr(e, name)) is not None}
    return orjson.dumps(rest | {"path": e.path}).decode()


def envelope(topic: str, row: Sequence[Any]) -> Envelope:
    """Return the envelope of (id, router, epoch, seq, body, rest) in ``topic``.

    ValueError, KeyError or TypeError if :func:`plan` didn't write the row. Fields that a later
    release adds to ``rest`` are ignored.
    """
    id_, router, epoch, seq, body, rest = row
    fields = orjson.loads(rest)
    if not isinstance(fields, dict):
        raise TypeError(f"expected an object, got {rest[:40]!r}")
    text = str(id_)
    return Envelope(
        id=text,
        identity=identity_of_id(text),
        topic=topic,
        body=bytes(body),
        router=router,
        epoch=epoch,
        seq=seq,
        path=tuple(fields["path"]),
        **{name: fields[name] for name in _REST if name in fields},
    )


def read_envelope(topic: str, row: Sequence[Any]) -> Envelope:
    """See :func:`envelope`; StoreError for a row that :func:`plan` didn't write."""
    return read_row(row, functools.partial(envelope, topic))


def envelope_or_blank(topic: str, row: Sequence[Any]) -> Envelope:
    """See :func:`envelope`; without a body for a row that :func:`plan` didn't write."""
    return read_or_blank(topic, row[:4], row, functools.partial(envelope, topic))


def place(row: Sequence[Any]) -> Place:
    """Return the place of ``row`` of HISTORY."""
    return (row[0], row[1], row[2], row[3])
