"""Closing a log whose router is gone: when closing is allowed, and where the log ends. Pure.

Any router of the log's own region may close it, no other: only there does a read at quorum show all
that is in the store. The row in the directory must not have moved for 60 s, by the watcher's own
clock, since the watcher first saw its present version. That is longer than a lease (15 s) and the
time until a broker takes back a frozen router's deliveries (30 s) together. The row must have been
checked during all of that time, since nobody can move a row while the store is away. (Example: the
store is away for 90 s. A router that counted these 90 s would close all logs of the region as soon
as the store is back, before their routers have renewed their rows.)

The end: ``low`` in the directory may be seconds old. So the search continues beyond it, until so
many numbers in a row have no row at all that none can follow. The log ends with the highest number
that has both rows; every other number in between is void. Half a number doesn't count as a message:
gateways would wait for the other half for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from newsfabric.store.logs import DirectoryRow, Log, Number, NumberState
from wholesale.router.numbering import WINDOW

# Seconds for which a row must not have moved.
CLOSE_AFTER: Final = 60.0
# After so many seconds without a check a row is watched anew. Checks are five seconds apart.
UNWATCHED_AFTER: Final = 30.0
# States of a number with which a log may end.
_MESSAGES: Final = (NumberState.MESSAGE, NumberState.GONE)


class LogWatch:
    """The rows of other routers' logs in one region, as one router sees them.

    ``now`` is in seconds, of the router's own monotonic clock.
    """

    #: Seconds for which a row must not have moved.
    close_after = CLOSE_AFTER

    def __init__(self, region: str) -> None:
        self.region = region
        # Log → its version, the time since when it is unmoved, and the time of the last check.
        self._unmoved: dict[Log, tuple[int, float, float]] = {}

    def may_close(self, row: DirectoryRow, now: float) -> bool:
        """Return whether ``row`` has been unmoved for long enough. Call it at each check."""
        if row.ended is not None or row.log.region != self.region:
            self._unmoved.pop(row.log, None)
            return False
        version, since, looked_at = self._unmoved.get(row.log, (row.version, now, now))
        if version != row.version or now - looked_at > UNWATCHED_AFTER:
            since = now
        self._unmoved[row.log] = row.version, since, now
        return now - since >= self.close_after


class EndSearch:
    """A search for the end of a log, beyond ``row.low``: call :meth:`found` until it is True."""

    def __init__(self, row: DirectoryRow, *, window: int = WINDOW) -> None:
        self._row = row
        self._window = window
        # The last number that has any row, and so was given out.
        self._given_out = row.low
        self._ended = row.low
        self._messages: list[int] = []

    @property
    def next(self) -> tuple[int, int]:
        """The first and last of the numbers to read next: as many as can be under way."""
        return self._given_out + 1, self._given_out + self._window

    def found(self, numbers: Iterable[Number]) -> bool:
        """Add the ``numbers`` of :attr:`next` that have rows; return whether the end is found."""
        was = self._given_out
        for number in numbers:
            self._given_out = number.seq
            if number.state in _MESSAGES:
                self._ended = number.seq
                self._messages.append(number.seq)
        return self._given_out == was

    @property
    def ending(self) -> DirectoryRow:
        """The row that closes the log and replaces the watched row."""
        voids: list[tuple[int, int]] = []
        before = self._row.low
        for seq in self._messages:
            if seq > before + 1:
                voids.append((before + 1, seq - 1))
            before = seq
        return DirectoryRow(
            self._row.log, self._row.version + 1, self._row.low, self._ended, tuple(voids)
        )
