"""Closing a log whose router is gone: when it may be done, and where the log ends. Pure.

A log is closed in its own region only, by any router there: only there does a read at quorum tell
what is in the store. Its row in the directory must have stood still for 60 s, by the watcher's own
clock, since it first saw the row as it is now: longer than a lease (15 s) and the time after which
a broker has taken back what a frozen router had (30 s), together. For all of that time it must have
been looked at: while the store is away nobody can move a row. (Example: away for 90 s. Who counted
them would close all logs of the region in the second in which it is back, before their routers
have said that they live.)

Where it ends: ``low`` in the directory may be seconds old, so the search goes on beyond it until
there are so many numbers in a row without any row that none can follow. The log ends with the
highest number that has both rows, and every other one between is void. Half of a number isn't one:
gateways would wait for the other half for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from newsfabric.store.logs import DirectoryRow, Log, Number, State
from wholesale.router.numbering import WINDOW

# Seconds for which a row must not have moved.
CLOSE_AFTER: Final = 60.0
# A row that wasn't looked at for so long is watched anew. Looks are five seconds apart.
UNWATCHED_AFTER: Final = 30.0
# What a number is as which a log may end with it.
_MESSAGES: Final = (State.MESSAGE, State.GONE)


class Watch:
    """The rows of others' logs in one region, as one router sees them.

    ``now`` is in seconds, of the router's own monotonic clock.
    """

    #: For how long a row must not have moved.
    close_after = CLOSE_AFTER

    def __init__(self, region: str) -> None:
        self.region = region
        # The version, since when, and when it was looked at last.
        self._unmoved: dict[Log, tuple[int, float, float]] = {}

    def may_close(self, row: DirectoryRow, now: float) -> bool:
        """Whether a row that is still so has been so for long enough. Call it at each look."""
        if row.ended is not None or row.log.region != self.region:
            self._unmoved.pop(row.log, None)
            return False
        version, since, looked_at = self._unmoved.get(row.log, (row.version, now, now))
        if version != row.version or now - looked_at > UNWATCHED_AFTER:
            since = now
        self._unmoved[row.log] = row.version, since, now
        return now - since >= self.close_after


class EndSearch:
    """Looks for the end of a log, beyond ``row.low``: give it numbers in order until it is done."""

    def __init__(self, row: DirectoryRow, *, window: int = WINDOW) -> None:
        self._row = row
        self._window = window
        # The last number that has any row: it was given out.
        self._given_out = row.low
        self._ended = row.low
        self._messages: list[int] = []

    @property
    def next(self) -> tuple[int, int]:
        """The numbers to look at next, first and last: as many as can be under way."""
        return self._given_out + 1, self._given_out + self._window

    def found(self, numbers: Iterable[Number]) -> bool:
        """``numbers`` are all that have rows among :attr:`next`; whether that is the end."""
        was = self._given_out
        for number in numbers:
            self._given_out = number.seq
            if number.state in _MESSAGES:
                self._ended = number.seq
                self._messages.append(number.seq)
        return self._given_out == was

    @property
    def ending(self) -> DirectoryRow:
        """The row that closes the log, to take the place of the one that was watched."""
        voids: list[tuple[int, int]] = []
        before = self._row.low
        for seq in self._messages:
            if seq > before + 1:
                voids.append((before + 1, seq - 1))
            before = seq
        return DirectoryRow(
            self._row.log, self._row.version + 1, self._row.low, self._ended, tuple(voids)
        )
