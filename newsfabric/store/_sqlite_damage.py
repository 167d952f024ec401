"""Whether the SQLite file is damaged: asked now and then, in a thread of its own.

A message says itself that it has changed (its checksum), an index can't: a bit that was flipped
there hides a message from those who ask by topic. SQLite compares indexes with tables when it is
asked to, which takes about a second for each 100 MB. Nobody waits for it meanwhile.
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
    """Looks for damage about every ``every_s`` seconds, and says what it finds."""

    def __init__(self, path: Path, *, busy_s: float, every_s: float) -> None:
        self._path = path
        self._busy_s = busy_s
        self._every_s = every_s
        self._ending = threading.Event()
        self._connection: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._run, name="store-damage", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, in the midst of a look, too. Blocks for that."""
        self._ending.set()
        connection = self._connection
        if connection is not None:
            # It may be closed by now.
            with contextlib.suppress(sqlite3.ProgrammingError):
                connection.interrupt()
        self._thread.join()

    def _run(self) -> None:
        # Processes that were started together needn't look together.
        while not self._ending.wait(random.uniform(0.5, 1.0) * self._every_s):  # noqa: S311
            self._look()

    def _look(self) -> None:
        try:
            self._connection = file.connect(self._path, busy_s=self._busy_s)
            try:
                damage = file.damage(self._connection)
            finally:
                self._connection.close()
                self._connection = None
        except (sqlite3.Error, StoreError) as exc:
            # Whoever reads or writes meets it, too, and says so.
            logger.warning("can't look whether %s is damaged: %s", self._path, exc)
            return
        if damage:
            UNREADABLE.inc(len(damage))
            logger.error("%s is damaged, some messages are hidden: %s", self._path, damage[0])
