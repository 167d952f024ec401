"""What a gateway knows of one log: which numbers there are, and which it has dealt with.

Pure: it is told what was seen and heard, and says what is missing. Numbers decide everything;
times only bound searches.

A number is *seen* when it was offered to the hub, or when it is void. ``start`` is where the log
begins for this gateway: what is before it is past.
"""

from __future__ import annotations

from .directory import DirectoryRow
from .rows import LogId
from .settings import SILENT_AFTER, WINDOW

# Times of numbers beyond the mark that are remembered. They only bound searches.
HEARD_NUMBERS = 50


class KnownLog:
    """One log as one gateway knows it."""

    __slots__ = (
        "_heard_numbers",
        "ended",
        "heard_at",
        "low",
        "mark",
        "passed",
        "seen",
        "start",
        "version",
        "voids",
        "whole_until",
        "window",
    )

    def __init__(self, log: LogId, *, start: int, now: float, window: int = WINDOW) -> None:
        self.start = start
        self.window = window
        #: All numbers up to it are seen, or before ``start``.
        self.mark = start
        #: Those beyond the mark that are seen.
        self.seen: set[int] = set()
        self.low = 0
        self.ended: int | None = None
        self.voids: frozenset[int] = frozenset()
        #: Numbers that were never given to anybody here, since they are void.
        self.passed: set[int] = set()
        #: Of the directory row that was read last.
        self.version = 0
        self.heard_at = now
        #: By the router's clock: whatever is beyond the mark was routed later.
        self.whole_until = log.epoch
        self._heard_numbers: list[tuple[int, float]] = []

    @staticmethod
    def start_for(row: DirectoryRow) -> int:
        """Where the log begins for a gateway that finds this row when it starts."""
        return row.low if row.ended is None else row.ended

    # What it is told.

    def saw(self, number: int) -> None:
        """This number was dealt with."""
        if number > self.mark:
            self.seen.add(number)
            self._advance()

    def skip(self, number: int) -> None:
        """This number is void."""
        if not self.has(number):
            self.passed.add(number)
            self.saw(number)

    def heard(self, number: int, low: int, *, given_out_at: float, now: float) -> None:
        """A message or a tick of its router came."""
        self.heard_at = now
        self.low = max(self.low, low)
        if number <= self.mark:
            self.whole_until = max(self.whole_until, given_out_at)
        else:
            self._heard_numbers.append((number, given_out_at))
            del self._heard_numbers[:-HEARD_NUMBERS]

    def learn(self, row: DirectoryRow) -> None:
        """This is what the directory says."""
        if self.version == row.version:
            return
        self.version = row.version
        self.low = max(self.low, row.low)
        if row.ended is not None and self.ended is None:
            self.ended, self.voids = row.ended, row.voids
            for number in sorted(row.voids):
                if number <= self.start:
                    self.passed.add(number)
                else:
                    self.skip(number)

    def not_found(self, number: int) -> None:
        """A read of it found nothing. That says only that these replicas are behind."""

    # What it says.

    def has(self, number: int) -> bool:
        """Whether nothing needs to be done about this number."""
        return number <= self.mark or number in self.seen

    def gave(self, number: int) -> bool:
        """Whether its message was given to readers here, or was past when this gateway began."""
        return self.has(number) and number not in self.passed

    def is_settled(self, number: int) -> bool:
        """Whether this number, if it is a message, stays one: nobody will close it away."""
        if number <= self.low:
            return True
        return self.ended is not None and number <= self.ended and number not in self.voids

    @property
    def highest(self) -> int:
        """The highest number seen."""
        return max(self.seen, default=self.mark)

    @property
    def is_whole(self) -> bool:
        """Whether it has ended and all of it was seen."""
        return self.ended is not None and self.mark >= self.ended and self.mark >= self.low

    def missing(self) -> list[int]:
        """The numbers that exist for certain and weren't seen: to be read until they are found."""
        upto = max(self.low, self.ended or 0)
        return [n for n in range(self.mark + 1, upto + 1) if n not in self.seen]

    def is_silent(self, now: float) -> bool:
        """Whether its router may be gone, so that nobody says what exists beyond ``low``."""
        return self.ended is None and now - self.heard_at > SILENT_AFTER

    def tail(self) -> list[int]:
        """What may exist beyond ``low`` of a silent log: to be read in its own region alone.

        Also below the highest number seen: if its whole region is dead nobody will close it.
        """
        first, last = max(self.low, self.mark) + 1, self.highest + self.window + 1
        return [n for n in range(first, last + 1) if n not in self.seen]

    def left_behind(self, log: LogId) -> KnownLog:
        """What a control plane leaves of it to its successor."""
        new = type(self)(log, start=self.start, now=self.heard_at, window=self.window)
        new.mark, new.seen = self.mark, set(self.seen)
        new.low, new.ended, new.voids = self.low, self.ended, self.voids
        new.passed = set(self.passed)
        new.whole_until = self.whole_until
        return new

    def _advance(self) -> None:
        mark, seen = self.mark, self.seen
        while mark + 1 in seen:
            mark += 1
            seen.discard(mark)
        if mark == self.mark:
            return
        self.mark = mark
        if self._heard_numbers:
            times = [at for number, at in self._heard_numbers if number <= mark]
            self.whole_until = max([self.whole_until, *times])
            self._heard_numbers = [(n, at) for n, at in self._heard_numbers if n > mark]
