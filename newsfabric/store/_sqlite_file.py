"""The SQLite file behind :mod:`newsfabric.store.sqlite`: its schema, its SQL, its errors.

Plain blocking functions on a connection; threads and futures are the callers' business.

The unusual statements are measured: rows are inserted by a few statements of many rows, and read as
*one* row of JSON. Python's sqlite3 releases the GIL at every step, and beside a busy loop each step
waits for the GIL for up to a few switch intervals: 100 rows took 540 ms by ``executemany`` and 17
ms by one statement.

Ids are an index of time themselves: no column holds the router's clock.
"""

from __future__ import annotations

import dataclasses
import itertools
import sqlite3
import time
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from newsfabric.errors import StoreError, StoreUnavailable
from newsfabric.messages.envelope import Envelope, identity_of_id
from newsfabric.messages.mailbox import UserMark, is_individual
from newsfabric.store import rules
from newsfabric.store._sqlite_numbers import message_row
from newsfabric.topics import TopicTable

# `rest`, one JSON text, has the fields that no query needs: 3.2 µs a row to write, 4.4 as columns.
# Its last element is a checksum of the row: SQLite's pages have none, and a disk may return other
# bits. `latest_by_key` holds no body: it names the message. No statement names an index: in older
# files one index has another name.
_MESSAGES: Final = (
    """CREATE TABLE messages (
        topic TEXT NOT NULL, id TEXT NOT NULL,
        router TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL,
        readable_until INTEGER NOT NULL, kept_until INTEGER NOT NULL,
        body BLOB NOT NULL, rest BLOB NOT NULL)""",
    "CREATE UNIQUE INDEX messages_by_id ON messages (id, router, epoch, seq)",
    "CREATE INDEX messages_by_topic ON messages (topic, id)",
    "CREATE INDEX messages_by_end ON messages (kept_until)",
    """CREATE TABLE latest_by_key (
        topic TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, id TEXT NOT NULL,
        readable_until INTEGER NOT NULL, kept_until INTEGER NOT NULL,
        PRIMARY KEY (topic, key))""",
    "CREATE INDEX latest_by_end ON latest_by_key (kept_until)",
)
# These tables hold no body either. `who` is the id without its time, the same for all copies of a
# message; `id` is the id of the newest copy.
_INBOX: Final = (
    """CREATE TABLE inbox (
        topic TEXT NOT NULL, who TEXT NOT NULL, id TEXT NOT NULL,
        readable_until INTEGER NOT NULL, kept_until INTEGER NOT NULL,
        PRIMARY KEY (topic, who))""",
    "CREATE INDEX inbox_by_id ON inbox (topic, id)",
    "CREATE INDEX inbox_by_end ON inbox (kept_until)",
    """CREATE TABLE inbox_marks (
        topic TEXT NOT NULL, who TEXT NOT NULL, mark TEXT NOT NULL, at INTEGER NOT NULL,
        id TEXT NOT NULL, kept_until INTEGER NOT NULL,
        PRIMARY KEY (topic, who, mark))""",
    "CREATE INDEX inbox_marks_by_end ON inbox_marks (kept_until)",
)
# A void number has no topic, and a check (_sqlite_numbers.py) in the place of an id. `voids` of a
# row of the directory is JSON.
_LOGS: Final = (
    """CREATE TABLE log (
        router TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL,
        topic TEXT NOT NULL, id TEXT NOT NULL, kept_until INTEGER NOT NULL,
        PRIMARY KEY (router, epoch, seq)) WITHOUT ROWID""",
    "CREATE INDEX log_by_end ON log (kept_until)",
    """CREATE TABLE logs (
        region TEXT NOT NULL, day INTEGER NOT NULL, router TEXT NOT NULL, epoch INTEGER NOT NULL,
        version INTEGER NOT NULL, low INTEGER NOT NULL, ended INTEGER, voids TEXT NOT NULL,
        kept_until INTEGER NOT NULL,
        PRIMARY KEY (region, day, router, epoch)) WITHOUT ROWID""",
    "CREATE INDEX logs_by_end ON logs (kept_until)",
)
# Tables that each version of the schema has added to the one before.
_STEPS: Final = (_MESSAGES, _INBOX, _LOGS)
SCHEMA_VERSION: Final = len(_STEPS)

_INSERT_MESSAGE: Final = ("INSERT OR IGNORE INTO messages VALUES ", 9, "")
_INSERT_LATEST: Final = (
    "INSERT INTO latest_by_key VALUES ",
    6,
    """ ON CONFLICT (topic, key) DO UPDATE SET version = excluded.version, id = excluded.id,
        readable_until = excluded.readable_until, kept_until = excluded.kept_until
        WHERE (excluded.version, excluded.id) > (version, id)""",
)
_INSERT_INBOX: Final = (
    "INSERT INTO inbox VALUES ",
    5,
    """ ON CONFLICT (topic, who) DO UPDATE SET id = excluded.id,
        readable_until = excluded.readable_until, kept_until = excluded.kept_until
        WHERE excluded.id > id""",
)
_INSERT_MARKS: Final = (
    "INSERT INTO inbox_marks VALUES ",
    6,
    """ ON CONFLICT (topic, who, mark) DO UPDATE SET at = excluded.at, id = excluded.id
        WHERE (excluded.at, excluded.id) < (at, id)""",
)
# A void number never changes, and may replace a message that is lost.
_INSERT_LOG: Final = (
    "INSERT INTO log VALUES ",
    6,
    """ ON CONFLICT (router, epoch, seq) DO UPDATE SET topic = '', id = excluded.id
        WHERE excluded.topic = ''""",
)
# Elements of `rest`, without the checksum.
_REST_FIELDS: Final = 10
# Powers of two, so that a handful of prepared statements serve batches of any size.
_ROWS_PER_STATEMENT: Final = (128, 64, 32, 16, 8, 4, 2, 1)

# At most this many bodies are in one JSON text: 256 of 64 KiB, in hex, are 32 MiB.
PAGE_ROWS: Final = 256
PURGE: Final = tuple(
    f"DELETE FROM {table} WHERE {key} IN "  # noqa: S608
    f"(SELECT {key[1:-1]} FROM {table} WHERE kept_until <= ? LIMIT ?)"
    for table, key in (
        ("messages", "(rowid)"),
        ("latest_by_key", "(rowid)"),
        ("inbox", "(rowid)"),
        ("inbox_marks", "(rowid)"),
        ("log", "(router, epoch, seq)"),
        ("logs", "(region, day, router, epoch)"),
    )
)

# Errors that may pass by themselves; all others (not a database, malformed) need a person.
_PASSING: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)
_BUSY_POLL_S: Final = 0.01
# The characters of an id that are its time, with its hyphen.
_TIME_DIGITS: Final = 14

Row = tuple[Any, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """The rows that one :meth:`write` adds to each of the tables."""

    messages: list[Row] = dataclasses.field(default_factory=list)
    latest: list[Row] = dataclasses.field(default_factory=list)
    inbox: list[Row] = dataclasses.field(default_factory=list)
    marks: list[Row] = dataclasses.field(default_factory=list)
    log: list[Row] = dataclasses.field(default_factory=list)

    def __len__(self) -> int:
        return max(len(self.messages), len(self.log)) + len(self.marks)

    def __iadd__(self, other: Rows) -> Rows:
        for rows, more in zip(self._tables, other._tables, strict=True):
            rows.extend(more)
        return self

    @property
    def _tables(self) -> tuple[list[Row], ...]:
        return self.messages, self.latest, self.inbox, self.marks, self.log


def wrapped(path: Path, exc: sqlite3.Error) -> StoreError:
    """Return ``exc`` as our error, StoreUnavailable if a retry can help. Raise it ``from exc``."""
    # Absent on errors that the Python module raises itself (misuse, not the file).
    code = getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_MISUSE)
    kind = StoreUnavailable if code & 0xFF in _PASSING else StoreError
    return kind(f"{path}: {exc}")


def connect(path: Path, *, busy_s: float) -> sqlite3.Connection:
    """Return a connection to the store at ``path``, which is made if it doesn't exist.

    The connection waits up to ``busy_s`` for other processes' locks. StoreError if the file is of
    another version; sqlite3.Error otherwise. Any number of processes may connect at once.
    """
    # One thread at a time uses a connection, not always the same one.
    connection = sqlite3.connect(
        path, timeout=busy_s, isolation_level=None, check_same_thread=False
    )
    # A text with flipped bits must not hide its page's other rows. The row's checksum finds it.
    connection.text_factory = lambda raw: raw.decode(errors="replace")
    try:
        _use_wal(connection, time.monotonic() + busy_s)
        # A receipt must survive a crash of the machine: with NORMAL a power cut took back all that
        # was committed since the last checkpoint (tests/store/test_power_cuts.py).
        connection.execute("PRAGMA synchronous = FULL")
        if _version(connection) != SCHEMA_VERSION:
            _create(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection, deadline: float) -> None:
    # Changing the mode asks for an exclusive lock without calling the busy handler.
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(_BUSY_POLL_S)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _create(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read again under the lock: another process may have just created the tables.
        version = _version(connection)
        if not 0 <= version <= SCHEMA_VERSION:
            raise StoreError(
                f"{path} is of store version {version}, this is {SCHEMA_VERSION}: "
                "use the release that wrote it, or remove the file"
            )
        if version < SCHEMA_VERSION:
            for statement in itertools.chain.from_iterable(_STEPS[version:]):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def rows_of(envelopes: Sequence[Envelope], topics: TopicTable) -> Rows:
    """Return ``envelopes`` as rows. ValueError or TypeError for values that no router makes."""
    rows = Rows()
    for e in envelopes:
        life = rules.lifetime(e, topics)
        ends = (life.readable_until, life.kept_until)
        rows.messages.append((e.topic, *rules.row_key(e), *ends, e.body, _rest(e)))
        rows.log.append(message_row(e.router, e.epoch, e.seq, e.topic, e.id, life.kept_until))
        if e.key is not None:
            rows.latest.append((e.topic, e.key, *rules.rank(e), *ends))
        if is_individual(e, topics.find(e.topic)):
            rows.inbox.append((e.topic, who_of(e.id), e.id, *ends))
    return rows


def rows_of_marks(marks: Sequence[UserMark], topics: TopicTable) -> Rows:
    """Return ``marks`` as rows."""
    return Rows(
        marks=[
            (m.topic, who_of(m.id), m.kind, m.at_ms, m.id, rules.mark_ends(m, topics))
            for m in marks
        ]
    )


def who_of(id_text: str) -> str:
    """Return the part of an id that is the same for all copies of a message."""
    return id_text[_TIME_DIGITS:]


def _rest(e: Envelope) -> bytes:
    rest = (
        e.published_ms,
        e.origin,
        e.path,
        e.key,
        e.version,
        e.message_id,
        e.app_id,
        e.type,
        e.expires_ms,
        e.traceparent,
    )
    return orjson.dumps((*rest, _checksum((e.topic, *rules.row_key(e)), rest, e.body)))


def _checksum(place: Sequence[Any], rest: Sequence[Any], body: bytes) -> int:
    """Return the CRC-32 of a message: of (topic, id, router, epoch, seq), of :data:`_REST_FIELDS`
    values and of its body."""
    return zlib.crc32(body, zlib.crc32(orjson.dumps((place, rest))))


def read_envelope(fields: list[Any]) -> Envelope:
    """Return the envelope of (topic, id, router, epoch, seq, body and rest in hex).

    ValueError or TypeError if :func:`rows_of` didn't write these.
    """
    *place, body_text, rest_text = fields
    topic, id_text, router, epoch, seq = place
    body = bytes.fromhex(body_text)
    # A later release appends its fields.
    rest, checksum = _split(orjson.loads(bytes.fromhex(rest_text)))
    if checksum is not None and checksum != _checksum(place, rest, body):
        raise ValueError("its checksum is of something else")
    published_ms, origin, path, key, version, message_id, app_id, type_, expires_ms, trace = rest
    return Envelope(
        id=id_text,
        identity=identity_of_id(id_text),
        topic=topic,
        body=body,
        published_ms=published_ms,
        origin=origin,
        router=router,
        epoch=epoch,
        seq=seq,
        path=tuple(path),
        key=key,
        version=version,
        message_id=message_id,
        app_id=app_id,
        type=type_,
        expires_ms=expires_ms,
        traceparent=trace,
    )


def _split(rest: list[Any]) -> tuple[list[Any], int | None]:
    """Return the values of ``rest``, and its checksum; None if an older release wrote it."""
    return rest[:_REST_FIELDS], rest[_REST_FIELDS] if len(rest) > _REST_FIELDS else None


def insert(connection: sqlite3.Connection, batch: Iterable[Rows]) -> None:
    """Write all of ``batch`` in one transaction, or nothing of it."""
    rows = Rows()
    for each in batch:
        rows += each
    connection.execute("BEGIN IMMEDIATE")
    try:
        _insert_rows(connection, _INSERT_MESSAGE, rows.messages)
        _insert_rows(connection, _INSERT_LATEST, rows.latest)
        _insert_rows(connection, _INSERT_INBOX, rows.inbox)
        _insert_rows(connection, _INSERT_MARKS, rows.marks)
        _insert_rows(connection, _INSERT_LOG, rows.log)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _insert_rows(
    connection: sqlite3.Connection, statement: tuple[str, int, str], rows: list[Row]
) -> None:
    head, columns, tail = statement
    values = f"({','.join('?' * columns)})"
    start = 0
    for size in _ROWS_PER_STATEMENT:
        sql = head + ",".join([values] * size) + tail
        while len(rows) - start >= size:
            chunk = rows[start : start + size]
            connection.execute(sql, list(itertools.chain.from_iterable(chunk)))
            start += size


def check(connection: sqlite3.Connection) -> None:
    """Read a page of the file; sqlite3.Error if that fails."""
    connection.execute("SELECT 1 FROM messages LIMIT 1").fetchall()


def damage(connection: sqlite3.Connection) -> list[str]:
    """Return the file's defects, at most 100; takes seconds for a large file."""
    found = [str(line) for (line,) in connection.execute("PRAGMA integrity_check")]
    return [] if found == ["ok"] else found


def purge(connection: sqlite3.Connection, *, now_ms: int, most: int) -> bool:
    """Delete at most ``most`` expired rows of each table; True if there may be more."""
    counts = [connection.execute(sql, (now_ms, most)).rowcount for sql in PURGE]
    return most in counts
