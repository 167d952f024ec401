"""A periodic check of the SQLite file for damage, in a thread of its own.

A message has a checksum, an index has none: a flipped bit in an index hides a message from readers
by topic. SQLite compares indexes with tables only when asked to, which takes about a second for
each 100 MB. Nothing waits for it meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import random
import sqlite3
import threading
from pathlib import Path

from newsfabric.errors import StoreError
from newsfabric.store import _sqlite_file as file
from newsfabric.store._unreadable import UNREADABLE

logger = logging.getLogger(__name__)


class DamageWatch:
    """A check for damage about every ``every_s`` seconds; damage is counted and logged."""

    def __init__(self, path: Path, *, busy_s: float, every_s: float) -> None:
        self._path = path
        self._busy_s = busy_s
        self._every_s = every_s
        self._ending = threading.Event()
        self._connection: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._run, name="store-damage", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, also in the middle of a check. Blocks until it has ended."""
        self._ending.set()
        connection = self._connection
        if connection is not None:
            # The connection may be closed by now.
            with contextlib.suppress(sqlite3.ProgrammingError):
                connection.interrupt()
        self._thread.join()

    def _run(self) -> None:
        # Processes that were started together should not check together.
        while not self._ending.wait(random.uniform(0.5, 1.0) * self._every_s):  # noqa: S311
            self._check()

    def _check(self) -> None:
        try:
            self._connection = file.connect(self._path, busy_s=self._busy_s)
            try:
                damage = file.damage(self._connection)
            finally:
                self._connection.close()
                self._connection = None
        except (sqlite3.Error, StoreError) as exc:
            # Readers and writers meet the same error, and report it.
            logger.warning("can't check %s for damage: %s", self._path, exc)
            return
        if damage:
            UNREADABLE.inc(len(damage))
            logger.error("%s is damaged, some messages are hidden: %s", self._path, damage[0])
