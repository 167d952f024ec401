"""Closing a log whose router is gone: when it may be done, and where the log ends.

Pure: it is told which directory row was seen when, and reads numbers through a function.

A log is closed in its own region only, since only there a quorum read tells what is in the store.
"""

from __future__ import annotations

from collections.abc import Callable

from .directory import DirectoryRow, Ending
from .rows import VOID, LogId, Row
from .settings import CLOSE_AFTER, WINDOW

#: A number's index row and its message, each None if it has none: ``read(number)``.
Reading = Callable[[int], tuple[Row | None, Row | None]]


class Closing:
    """The logs of others as one router watches them."""

    #: For how long a row must not have moved, by our own clock.
    patience = CLOSE_AFTER

    def __init__(self, region: str, router: str, *, window: int = WINDOW) -> None:
        self.region = region
        self.router = router
        self.window = window
        self._unmoved: dict[LogId, tuple[int, float]] = {}

    @property
    def end_of_search(self) -> int:
        """So many numbers in a row without any row end it: no more are ever under way."""
        return self.window

    def is_ours(self, log: LogId) -> bool:
        """Whether anything may be concluded here about this log."""
        return log.region == self.region

    def may_close(self, log: LogId, row: DirectoryRow, now: float) -> bool:
        """Whether a row that is still so has been so for long enough. Call it at each look."""
        if row.ended is not None or not self.is_ours(log):
            return False
        version, since = self._unmoved.get(log, (0, now))
        if version != row.version:
            self._unmoved[log] = (row.version, now)
            since = now
        return now - since >= self.patience

    def end_of(self, row: DirectoryRow, read: Reading) -> tuple[Ending, list[Row]]:
        """Where the log ends, and the messages found beyond ``low``.

        ``low`` in the directory may be old, so the search goes on until nothing can follow.
        """
        number = ended = row.low
        found: dict[int, Row] = {}
        rowless = 0
        while rowless < self.end_of_search:
            number += 1
            index, message = read(number)
            if self.is_message(index, message):
                ended = number
                found[number] = message or index or VOID
            rowless = 0 if self.is_given_out(index) else rowless + 1
        voids = frozenset(n for n in range(row.low + 1, ended + 1) if n not in found)
        return Ending(ended, voids), list(found.values())

    @staticmethod
    def is_message(index: Row | None, message: Row | None) -> bool:
        """Whether a number is a message: it has both rows."""
        return index is not None and index is not VOID and message is not None

    @staticmethod
    def is_given_out(index: Row | None) -> bool:
        """Whether this row shows that its number was given out. Void rows do, too."""
        return index is not None
