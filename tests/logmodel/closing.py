"""Closing a log whose router is gone, by the project's own rules (:mod:`wholesale.router.closing`).

The faults override what these rules ask.
"""

from __future__ import annotations

from collections.abc import Callable

from newsfabric.store.logs import Log, Number, State
from tests.logmodel.directory import DirectoryRow, Ending, as_in_store
from tests.logmodel.rows import VOID, Row
from tests.logmodel.settings import WINDOW
from wholesale.router.closing import CLOSE_AFTER, EndSearch, Watch

#: A number's index row and its message, each None if it has none: ``read(number)``.
Reading = Callable[[int], tuple[Row | None, Row | None]]


class Closing:
    """The logs of others as one router watches them."""

    #: For how long a row must not have moved, by our own clock.
    close_after = CLOSE_AFTER

    def __init__(self, region: str, router: str, *, window: int = WINDOW) -> None:
        self.region = region
        self.router = router
        self.window = window
        self._watched: dict[Log, Watch] = {}

    @property
    def end_of_search(self) -> int:
        """So many numbers in a row without any row end it: no more are ever under way."""
        return self.window

    def is_ours(self, log: Log) -> bool:
        """Whether anything may be concluded here about this log."""
        return log.region == self.region

    def may_close(self, log: Log, row: DirectoryRow, now: float) -> bool:
        """Whether a row that is still so has been so for long enough. Call it at each look."""
        stored = as_in_store(row)
        watch = self._watched.setdefault(log, Watch(stored.log.region))
        watch.close_after = self.close_after
        return self.is_ours(log) and watch.may_close(stored, now)

    def end_of(self, row: DirectoryRow, read: Reading) -> tuple[Ending, list[Row]]:
        """Where the log ends, and the messages found beyond ``low``."""
        search = EndSearch(as_in_store(row), window=self.end_of_search)
        found: dict[int, Row] = {}

        def look(first: int, last: int) -> list[Number]:
            numbers = []
            for seq in range(first, last + 1):
                index, message = read(seq)
                if self.is_message(index, message):
                    found[seq] = message or index or VOID
                    numbers.append(Number(seq, State.MESSAGE))
                elif self.is_given_out(index):
                    numbers.append(Number(seq, State.VOID))
            return numbers

        while not search.found(look(*search.next)):
            pass
        ending = search.ending
        assert ending.ended is not None
        voids = frozenset(n for first, last in ending.voids for n in range(first, last + 1))
        return Ending(ending.ended, voids), list(found.values())

    @staticmethod
    def is_message(index: Row | None, message: Row | None) -> bool:
        """Whether a number is a message: it has both rows."""
        return index is not None and index is not VOID and message is not None

    @staticmethod
    def is_given_out(index: Row | None) -> bool:
        """Whether this row shows that its number was given out. Void rows do, too."""
        return index is not None
