"""The one thread of a process that writes to its SQLite file: group commit, then housekeeping.

Writes submitted while a transaction runs wait, and are committed together by the next one: the more
writes at once, the less each costs. No write is delayed to wait for others.

The thread is a daemon: a process that ends without ``close`` must not hang, and a transaction that
dies with it never happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import queue
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from newsfabric.errors import StoreError, StoreUnavailable
from newsfabric.store import _sqlite_file as file

logger = logging.getLogger(__name__)

# Writes in one transaction: other processes wait for its lock (about 15 ms for 1,000 rows).
_MOST_WRITES: Final = 1_000
# Pause while there is more to delete: short turns, so that writes run in between.
_PURGE_AGAIN_S: Final = 0.05
_PURGE_ROWS: Final = 500

_Outcome = list[tuple["_Write", StoreError | None]]


@dataclasses.dataclass(frozen=True, slots=True)
class _Write:
    rows: file.Rows
    done: asyncio.Future[None]


class Writer:
    """A committer of the rows given to :meth:`submit`; belongs to the event loop that made it."""

    def __init__(
        self,
        path: Path,
        *,
        busy_s: float,
        max_waiting: int,
        purge_every_s: float,
        now_ms: Callable[[], int],
    ) -> None:
        self._path = path
        self._busy_s = busy_s
        self._max_waiting = max_waiting
        self._purge_every_s = purge_every_s
        self._now_ms = now_ms
        self._waiting = 0
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._connection: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    async def submit(self, rows: file.Rows) -> None:
        """Return when ``rows`` are committed. StoreUnavailable at once if too many writes wait.

        A cancelled call gives up the wait, not the write.
        """
        if self._waiting >= self._max_waiting:
            raise StoreUnavailable(f"{self._path}: {self._waiting} envelopes wait to be written")
        write = _Write(rows, self._loop.create_future())
        self._waiting += len(rows)
        self._queue.put(write)
        await write.done

    async def close(self) -> None:
        """Commit the waiting writes and end the thread. No call of :meth:`submit` may follow."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _settle(self, outcome: _Outcome) -> None:
        for write, error in outcome:
            self._waiting -= len(write.rows)
            if write.done.done():
                continue
            if error is None:
                write.done.set_result(None)
            else:
                write.done.set_exception(error)

    # From here on: methods that run in the thread.

    def _run(self) -> None:
        purge_at = time.monotonic() + self._until_purge()
        closing = False
        while not closing:
            batch, closing = self._next_batch(purge_at - time.monotonic())
            if batch:
                self._settle_on_loop(self._commit(batch))
            if time.monotonic() >= purge_at:
                purge_at = time.monotonic() + self._purge()
        self._disconnect()

    def _next_batch(self, timeout: float) -> tuple[list[_Write], bool]:
        """Return the waiting writes (none after ``timeout`` seconds), and whether to end then."""
        batch: list[_Write] = []
        with contextlib.suppress(queue.Empty):
            write = self._queue.get(timeout=max(timeout, 0.0))
            while write is not None:
                batch.append(write)
                if len(batch) == _MOST_WRITES:
                    return batch, False
                write = self._queue.get_nowait()
            return batch, True
        return batch, False

    def _settle_on_loop(self, outcome: _Outcome) -> None:
        # The loop may be gone, and all waiting tasks with it.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle, outcome)

    def _commit(self, batch: list[_Write]) -> _Outcome:
        error = self._insert(batch)
        if error is None or isinstance(error, StoreUnavailable) or len(batch) == 1:
            return [(write, error) for write in batch]
        # A write that fails must not make the other writes of its batch fail.
        return [(write, self._insert([write])) for write in batch]

    def _insert(self, batch: list[_Write]) -> StoreError | None:
        try:
            file.insert(self._connected(), [write.rows for write in batch])
        except sqlite3.Error as exc:
            self._disconnect()
            error = file.wrapped(self._path, exc)
            error.__cause__ = exc
            return error
        except StoreError as exc:
            return exc
        except Exception as exc:
            # A value that SQLite can't hold. The writer is sent the error; the thread continues.
            error = StoreError(f"{self._path}: can't write: {exc!r}")
            error.__cause__ = exc
            return error
        return None

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = file.connect(self._path, busy_s=self._busy_s)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _purge(self) -> float:
        """Delete some expired rows; return the seconds until the next turn."""
        try:
            more = file.purge(self._connected(), now_ms=self._now_ms(), most=_PURGE_ROWS)
        except (sqlite3.Error, StoreError) as exc:
            logger.warning("can't purge %s now: %s", self._path, exc)
            self._disconnect()
            more = False
        return _PURGE_AGAIN_S if more else self._until_purge()

    def _until_purge(self) -> float:
        # Processes that were started together should not purge together.
        return random.uniform(0.5, 1.0) * self._purge_every_s  # noqa: S311
