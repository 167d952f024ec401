"""The topics, or publishers, with the most messages, in bounded memory. Pure.

Counts are of the last ten seconds, in five parts of two. Each part is the summary of Misra and
Gries: exact up to :data:`MOST` names, and else too low by at most a 257th of all counted messages.
Each message costs the same on average, however many names there are: a publisher that generates a
new name each time costs no more than any other.
"""

from __future__ import annotations

import collections
import heapq
from typing import Final

from newsfabric.messages.reports import MAX_BUSIEST, MAX_TEXT, Busy

PART_SECONDS: Final = 2.0
PARTS: Final = 5
# Names that each part counts.
MOST: Final = 256


class Busiest:
    """A counter of names; times are monotonic, in seconds."""

    def __init__(self, *, most: int = MOST) -> None:
        self._most = most
        # The start of each part and its counts, the oldest first; the last one is being filled.
        self._parts: collections.deque[tuple[float, dict[str, int]]] = collections.deque()

    def add(self, name: str, now: float) -> None:
        """Count one more of ``name`` at ``now`` (seconds, monotonic)."""
        counts = self._part(now)
        if name in counts:
            counts[name] += 1
        elif len(counts) < self._most:
            counts[name] = 1
        else:
            # Every known name loses one, and the new name isn't stored.
            for known in list(counts):
                counts[known] -= 1
                if not counts[known]:
                    del counts[known]

    def top(self, now: float, count: int = MAX_BUSIEST) -> tuple[Busy, ...]:
        """Return the ``count`` busiest names of the last ten seconds, the busiest first."""
        self._forget(now)
        sums: collections.Counter[str] = collections.Counter()
        for _, counts in self._parts:
            sums.update(counts)
        if not sums:
            return ()
        seconds = max(1.0, now - self._parts[0][0])
        best = heapq.nsmallest(count, sums.items(), key=lambda item: (-item[1], item[0]))
        return tuple(
            Busy(name=name[:MAX_TEXT], messages_per_second=round(n / seconds, 1))
            for name, n in best
        )

    def _part(self, now: float) -> dict[str, int]:
        if not self._parts or not 0 <= now - self._parts[-1][0] < PART_SECONDS:
            self._forget(now)
            self._parts.append((now, {}))
        return self._parts[-1][1]

    def _forget(self, now: float) -> None:
        while self._parts and now - self._parts[0][0] >= PART_SECONDS * PARTS:
            self._parts.popleft()
