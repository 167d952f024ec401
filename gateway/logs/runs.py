"""Whole numbers as runs: 1 to 1,000,000 with one hole are two pairs. Pure."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator

# First and last number.
Run = tuple[int, int]


class Runs:
    """A set of whole numbers. Adding numbers in order costs only one comparison."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        # In order, with at least one number between two runs.
        self._starts: list[int] = []
        self._ends: list[int] = []
        for first, last in runs:
            self.add(first, last)

    def __contains__(self, number: int) -> bool:
        at = bisect.bisect_right(self._starts, number)
        return at > 0 and number <= self._ends[at - 1]

    def __iter__(self) -> Iterator[Run]:
        return zip(self._starts, self._ends, strict=True)

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._starts)

    @property
    def unbroken(self) -> int:
        """The last number up to which all from 1 on are here; 0 if 1 isn't."""
        return self._ends[0] if self._starts and self._starts[0] <= 1 else 0

    @property
    def top(self) -> int:
        """The highest number; 0 if there is none."""
        return self._ends[-1] if self._ends else 0

    @property
    def numbers(self) -> int:
        """The count of numbers."""
        return sum(last - first + 1 for first, last in self)

    def add(self, first: int, last: int) -> None:
        """Add the numbers from ``first`` to ``last``; some may be here already."""
        starts, ends = self._starts, self._ends
        if ends and first == ends[-1] + 1:
            ends[-1] = last
            return
        # All runs from `low` to before `high` touch the new one.
        low = bisect.bisect_left(ends, first - 1)
        high = bisect.bisect_right(starts, last + 1)
        if low < high:
            first, last = min(first, starts[low]), max(last, ends[high - 1])
        starts[low:high] = [first]
        ends[low:high] = [last]

    def within(self, first: int, last: int) -> Iterator[Run]:
        """Yield the parts of the runs that lie in ``first`` to ``last``."""
        for at in range(bisect.bisect_left(self._ends, first), len(self._starts)):
            start, end = self._starts[at], self._ends[at]
            if start > last:
                break
            yield max(start, first), min(end, last)

    def holes(self, first: int, last: int) -> Iterator[Run]:
        """Yield the runs of numbers from ``first`` to ``last`` that aren't here."""
        for start, end in self.within(first, last):
            if start > first:
                yield first, start - 1
            first = end + 1
        if first <= last:
            yield first, last
