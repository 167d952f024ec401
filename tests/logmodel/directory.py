"""The directory: one row for each log, and the conditions under which it may be changed.

Pure: it gets a row and returns the row that replaces it, or None if the transaction is refused. The
condition is the project's own.
Every change is a lightweight transaction of the log's own region, so of two that don't know of each
other one is refused.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from newsfabric.store import logs
from newsfabric.store.logs import Log

_SOME_LOG: Final = Log("oregon", "oregon-router-1", 0)


class DirectoryRow(NamedTuple):
    """A log as the directory has it."""

    #: Grows with each change. It stands for ``at`` of the design: a row that moved is another row.
    version: int
    low: int
    #: The last number of a log that has ended.
    ended: int | None = None
    #: What was found void at closing.
    voids: frozenset[int] = frozenset()


class Ending(NamedTuple):
    """How a log ends: its last number, and which numbers below are void."""

    ended: int
    voids: frozenset[int]


def replaced(row: DirectoryRow, by: DirectoryRow) -> DirectoryRow | None:
    """The row after a transaction that asks for ``by``; None if that is refused."""
    return by if as_in_store(by).may_replace(as_in_store(row)) else None


def as_in_store(row: DirectoryRow, log: Log = _SOME_LOG) -> logs.DirectoryRow:
    """The project's row of ``log``; where it doesn't matter, of any."""
    voids = tuple((number, number) for number in sorted(row.voids)) if row.voids else ()
    return logs.DirectoryRow(log, row.version, row.low, row.ended, voids)


class Directory:
    """What may be written over which row."""

    def first(self, row: DirectoryRow | None) -> DirectoryRow | None:
        """The row that a router writes before its first number; None if its epoch is taken."""
        return DirectoryRow(version=1, low=0) if row is None else None

    def moved(self, row: DirectoryRow, *, low: int, at_ms: int = 0) -> DirectoryRow | None:
        """The row with its router's ``low`` and time; None if the log was closed: it begins a new
        one."""
        version = logs.next_version(row.version, at_ms)
        return replaced(row, row._replace(version=version, low=max(row.low, low)))

    def closed(
        self, watched: DirectoryRow, row: DirectoryRow, ending: Ending
    ) -> DirectoryRow | None:
        """The row with its end; None unless ``row`` is as it was ``watched``."""
        return replaced(row, self.with_end(watched, ending))

    def finished(self, row: DirectoryRow, last: int) -> DirectoryRow | None:
        """The row with the end that its router gives it, when all up to ``last`` is settled."""
        return replaced(row, self.with_end(row, Ending(last, frozenset())))

    @staticmethod
    def with_end(row: DirectoryRow, ending: Ending) -> DirectoryRow:
        return row._replace(version=row.version + 1, ended=ending.ended, voids=ending.voids)
