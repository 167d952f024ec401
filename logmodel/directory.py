"""The directory: one row for each log, and the conditions under which it may be changed.

Pure: it gets a row and returns its replacement, or None if the transaction is refused. The
condition is the project's own. Every change is a lightweight transaction of the log's own region,
so of two changes made without knowledge of each other one is refused.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from newsfabric.store import logs
from newsfabric.store.logs import Log

_SOME_LOG: Final = Log("oregon", "oregon-router-1", 0)


class DirectoryRow(NamedTuple):
    """A log's row in the directory."""

    #: Grows with each change. It stands for ``at`` of the design: a moved row has another version.
    version: int
    low: int
    #: The last number of a log that has ended.
    ended: int | None = None
    #: The numbers found void at closing.
    voids: frozenset[int] = frozenset()


class ModelEnding(NamedTuple):
    """The end of a log: its last number, and the void numbers below it."""

    ended: int
    voids: frozenset[int]


def replaced(row: DirectoryRow, by: DirectoryRow) -> DirectoryRow | None:
    """Return the row after a transaction that asks for ``by``; None if it is refused."""
    return by if as_in_store(by).may_replace(as_in_store(row)) else None


def as_in_store(row: DirectoryRow, log: Log = _SOME_LOG) -> logs.DirectoryRow:
    """Convert to the project's row of ``log``; any log will do where it doesn't matter."""
    voids = tuple((number, number) for number in sorted(row.voids)) if row.voids else ()
    return logs.DirectoryRow(log, row.version, row.low, row.ended, voids)


class Directory:
    """The changes that may be made to a row."""

    def first(self, row: DirectoryRow | None) -> DirectoryRow | None:
        """Return the row that a router writes before its first number; None: its epoch is taken."""
        return DirectoryRow(version=1, low=0) if row is None else None

    def moved(self, row: DirectoryRow, *, low: int, at_ms: int = 0) -> DirectoryRow | None:
        """Return the row with its router's ``low`` and time; None if the log was closed, so that
        the router must begin a new one."""
        version = logs.next_version(row.version, at_ms)
        return replaced(row, row._replace(version=version, low=max(row.low, low)))

    def closed(
        self, watched: DirectoryRow, row: DirectoryRow, ending: ModelEnding
    ) -> DirectoryRow | None:
        """Return the row with its end; None unless ``row`` is still as ``watched``."""
        return replaced(row, self.with_end(watched, ending))

    def finished(self, row: DirectoryRow, last: int) -> DirectoryRow | None:
        """Return the row with the end that its router sets, when all up to ``last`` is settled."""
        return replaced(row, self.with_end(row, ModelEnding(last, frozenset())))

    @staticmethod
    def with_end(row: DirectoryRow, ending: ModelEnding) -> DirectoryRow:
        return row._replace(version=row.version + 1, ended=ending.ended, voids=ending.voids)
