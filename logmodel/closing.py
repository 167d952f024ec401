"""Closing a log whose router is gone, by the project's own rules (:mod:`wholesale.router.closing`).

Faults override the methods that these rules call.
"""

from __future__ import annotations

from collections.abc import Callable

from logmodel.directory import DirectoryRow, ModelEnding, as_in_store
from logmodel.rows import VOID, ModelRow
from logmodel.settings import WINDOW
from newsfabric.store.logs import Log, Number, NumberState
from wholesale.router.closing import CLOSE_AFTER, EndSearch, LogWatch

#: Returns a number's index row and its message row, each None if missing: ``read(number)``.
Reading = Callable[[int], tuple[ModelRow | None, ModelRow | None]]


class Closing:
    """The logs of other routers, as one router watches them."""

    #: Seconds for which a row must not have moved, by this router's own clock.
    close_after = CLOSE_AFTER

    def __init__(self, region: str, router: str, *, window: int = WINDOW) -> None:
        self.region = region
        self.router = router
        self.window = window
        self._watched: dict[Log, LogWatch] = {}

    @property
    def end_of_search(self) -> int:
        """The run of numbers without a row that ends the search: no more can be under way."""
        return self.window

    def is_ours(self, log: Log) -> bool:
        """Return whether this router may conclude anything about the log."""
        return log.region == self.region

    def may_close(self, log: Log, row: DirectoryRow, now: float) -> bool:
        """Return whether the row has stayed unchanged for long enough. Call it at each look."""
        stored = as_in_store(row)
        watch = self._watched.setdefault(log, LogWatch(stored.log.region))
        watch.close_after = self.close_after
        return self.is_ours(log) and watch.may_close(stored, now)

    def end_of(self, row: DirectoryRow, read: Reading) -> tuple[ModelEnding, list[ModelRow]]:
        """Return the log's end, and the messages found beyond ``low``."""
        search = EndSearch(as_in_store(row), window=self.end_of_search)
        found: dict[int, ModelRow] = {}

        def numbers_of(first: int, last: int) -> list[Number]:
            numbers = []
            for seq in range(first, last + 1):
                index, message = read(seq)
                if self.is_message(index, message):
                    found[seq] = message or index or VOID
                    numbers.append(Number(seq, NumberState.MESSAGE))
                elif self.is_given_out(index):
                    numbers.append(Number(seq, NumberState.VOID))
            return numbers

        while not search.found(numbers_of(*search.next)):
            pass
        ending = search.ending
        assert ending.ended is not None
        voids = frozenset(n for first, last in ending.voids for n in range(first, last + 1))
        return ModelEnding(ending.ended, voids), list(found.values())

    @staticmethod
    def is_message(index: ModelRow | None, message: ModelRow | None) -> bool:
        """Return whether a number is a message: it has both rows."""
        return index is not None and index is not VOID and message is not None

    @staticmethod
    def is_given_out(index: ModelRow | None) -> bool:
        """Return whether this row, which may be void, shows that its number was given out."""
        return index is not None
