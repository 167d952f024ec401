"""The store in one SQLite file: the default on one machine, shared by all its processes.

Not for several machines: SQLite's locks and shared memory need one kernel (WAL mode).

The event loop never waits for the file: writes are done by one thread
(:mod:`newsfabric.store._sqlite_writer`), reads by a few others, each with its own connection.

A finished write can be read by every process on this machine. Neither the death of any process nor
a power cut undoes it.

The cost is measured in docs/design/0004. A limit of threads: beside a loop that never pauses they
get their turn after tens of ms, now and then seconds.
"""

from __future__ import annotations

import asyncio
import functools
import queue
import sqlite3
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from newsfabric.errors import StoreError, StoreUnavailable
from newsfabric.messages.envelope import MAX_MS, Envelope
from newsfabric.messages.mailbox import KeptMessage, UserMark
from newsfabric.store import _sqlite_file as file
from newsfabric.store import _sqlite_logs as logs
from newsfabric.store import _sqlite_mailboxes as mailboxes
from newsfabric.store import _sqlite_reads as reads
from newsfabric.store import rules
from newsfabric.store._sqlite_damage import DamageWatch
from newsfabric.store._sqlite_writer import Writer
from newsfabric.store.logs import DirectoryRow, Log, Number
from newsfabric.topics import TopicTable

# Seconds to wait for another process's transaction; a transaction takes milliseconds.
DEFAULT_BUSY_S: Final = 5.0
# Envelopes and marks that are not committed yet; with the largest bodies 256 MiB.
DEFAULT_MAX_WAITING: Final = 4_096
DEFAULT_MAX_READS: Final = 256
# Each process that writes deletes expired rows, about this often.
DEFAULT_PURGE_EVERY_S: Final = 60.0
# A process that writes also checks whether the file is damaged.
DEFAULT_LOOK_EVERY_S: Final = 3600.0
# Enough readers that one long read doesn't delay the short ones.
_READERS: Final = 2

T = TypeVar("T")


class SqliteStore:
    """A :class:`~newsfabric.store.Store` in the SQLite file ``path``.

    The folder must exist; the file is made when first used. Beyond ``max_waiting``
    envelopes and marks, or ``max_reads`` reads at once, calls fail with StoreUnavailable at once.
    """

    def __init__(
        self,
        path: Path,
        topics: TopicTable,
        *,
        busy_s: float = DEFAULT_BUSY_S,
        max_waiting: int = DEFAULT_MAX_WAITING,
        max_reads: int = DEFAULT_MAX_READS,
        purge_every_s: float = DEFAULT_PURGE_EVERY_S,
        look_every_s: float = DEFAULT_LOOK_EVERY_S,
        now_ms: Callable[[], int] = rules.clock_ms,
    ) -> None:
        self._path = path
        self._topics = topics
        self._busy_s = busy_s
        self._max_reads = max_reads
        self._now_ms = now_ms
        self._make_writer = functools.partial(
            Writer,
            path,
            busy_s=busy_s,
            max_waiting=max_waiting,
            purge_every_s=purge_every_s,
            now_ms=now_ms,
        )
        self._make_watch = functools.partial(DamageWatch, path, busy_s=busy_s, every_s=look_every_s)
        self._writer: Writer | None = None
        self._watch: DamageWatch | None = None
        self._closed = False
        self._reads = 0
        self._executor = ThreadPoolExecutor(_READERS, thread_name_prefix="store-reader")
        self._idle: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()

    async def write(self, envelopes: Sequence[Envelope]) -> None:
        """See :meth:`newsfabric.store.Store.write`: committed to the file on return."""
        await self._write(file.rows_of(envelopes, self._topics))

    async def mark(self, marks: Sequence[UserMark]) -> None:
        """See :meth:`newsfabric.store.Store.mark`: committed to the file on return."""
        await self._write(file.rows_of_marks(marks, self._topics))

    async def history(
        self, topic: str, *, limit: int, since_ms: int = 0, before: str | None = None
    ) -> list[Envelope]:
        """See :meth:`newsfabric.store.Store.history`."""
        return await self._read(
            lambda connection: reads.history(
                connection,
                topic,
                limit=limit,
                since_ms=since_ms,
                before=before,
                now_ms=self._now_ms(),
            )
        )

    async def since(
        self,
        topic: str,
        *,
        from_ms: int,
        to_ms: int = MAX_MS + 1,
        limit: int,
        region: str | None = None,
    ) -> list[Envelope]:
        """See :meth:`newsfabric.store.Store.since`. ``region`` makes no difference here."""
        return await self._read(
            lambda connection: reads.since(
                connection,
                topic,
                from_ms=from_ms,
                to_ms=to_ms,
                limit=limit,
                now_ms=self._now_ms(),
            )
        )

    async def latest(self, topic: str, *, limit: int) -> list[Envelope]:
        """See :meth:`newsfabric.store.Store.latest`."""
        return await self._read(
            lambda connection: reads.latest(connection, topic, limit=limit, now_ms=self._now_ms())
        )

    async def numbers(
        self, log: Log, *, first: int, last: int, limit: int, at_home: bool = False
    ) -> list[Number]:
        """See :meth:`newsfabric.store.Store.numbers`."""
        rules.check_span(first, last)
        return await self._read(
            lambda connection: logs.numbers(
                connection,
                log,
                first=first,
                last=last,
                limit=limit,
                now_ms=self._now_ms(),
                kept_until=functools.partial(rules.kept_until, topics=self._topics),
            )
        )

    async def void(self, log: Log, numbers: Sequence[int]) -> None:
        """See :meth:`newsfabric.store.Store.void`, of any region's log."""
        ends = rules.directory_ends(self._now_ms(), self._topics)
        await self._write(file.Rows(log=logs.void_rows(log, numbers, ends)))

    async def list_log(self, log: Log) -> bool:
        """See :meth:`newsfabric.store.Store.list_log`."""
        ends = rules.directory_ends(self._now_ms(), self._topics)
        return await self._read(lambda connection: logs.list_log(connection, log, ends))

    async def change_log(self, row: DirectoryRow) -> bool:
        """See :meth:`newsfabric.store.Store.change_log`, of any region's log."""
        ends = rules.directory_ends(self._now_ms(), self._topics)
        return await self._read(lambda connection: logs.change_log(connection, row, ends))

    async def log_days(self, *, at_home: bool = False) -> list[tuple[str, int]]:
        """See :meth:`newsfabric.store.Store.log_days`."""
        return await self._read(logs.log_days)

    async def directory(
        self, region: str, day: int, *, but: Collection[Log] = (), at_home: bool = False
    ) -> list[DirectoryRow]:
        """See :meth:`newsfabric.store.Store.directory`."""
        found = await self._read(lambda connection: logs.directory(connection, region, day))
        return [row for row in found if row.log not in but]

    async def mailboxes(self, topics: Sequence[str], *, limit: int) -> list[list[KeptMessage]]:
        """See :meth:`newsfabric.store.Store.mailboxes`."""
        return await self._read(
            lambda connection: mailboxes.mailboxes(
                connection, topics, limit=limit, now_ms=self._now_ms()
            )
        )

    async def kept(self, topic: str, id: str) -> KeptMessage | None:
        """See :meth:`newsfabric.store.Store.kept`."""
        return await self._read(
            lambda connection: mailboxes.kept(connection, topic, id, now_ms=self._now_ms())
        )

    async def clocks_ms(self) -> list[int]:
        """See :meth:`newsfabric.store.Store.clocks_ms`: this store has no clock of its own."""
        return []

    async def check(self) -> None:
        """See :meth:`newsfabric.store.Store.check`."""
        await self._read(file.check)

    async def close(self) -> None:
        """See :meth:`newsfabric.store.Store.close`; waiting writes are committed first."""
        self._closed = True
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()
        watch, self._watch = self._watch, None
        if watch is not None:
            await asyncio.to_thread(watch.close)
        await asyncio.to_thread(self._executor.shutdown)
        while not self._idle.empty():
            self._idle.get_nowait().close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self._path}: the store is closed")

    async def _write(self, rows: file.Rows) -> None:
        self._check_open()
        if not len(rows):
            return
        if self._writer is None:
            # Made by the first write: a process that only reads needs no writer thread.
            self._writer = self._make_writer()
            self._watch = self._make_watch()
        await self._writer.submit(rows)

    async def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        self._check_open()
        if self._reads >= self._max_reads:
            raise StoreUnavailable(f"{self._path}: {self._reads} reads are waiting")
        self._reads += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._executor, self._in_thread, read)
        finally:
            self._reads -= 1

    def _in_thread(self, read: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._take_connection()
            try:
                result = read(connection)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as exc:
            raise file.wrapped(self._path, exc) from exc
        except UnicodeDecodeError as exc:
            # SQLite's own error, with a name from a damaged file in it.
            raise StoreError(f"{self._path}: {exc.object[:200]!r}") from exc
        self._idle.put(connection)
        return result

    def _take_connection(self) -> sqlite3.Connection:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return file.connect(self._path, busy_s=self._busy_s)
