"""A router's log: its numbers, how far they are settled, and its lease. Pure.

A number is **settled** when its rows are stored *and* both exchanges confirmed it, when it is void,
or when it is stored and too old to be published. Stored alone isn't enough: a gateway that begins
at ``low`` takes all numbers up to it as past, and would never receive one that is published later.

The **lease** keeps a router that was frozen from continuing a log that others have closed
meanwhile. Others close a log whose row in the directory hasn't moved for 60 s of their own
watching. A router gives out numbers and publishes for 15 s from the *start* of its last successful
write of that row. A broker that receives nothing from it for 30 s takes its deliveries back.

Example. At 12:00:00 the router begins to write its row, and at 12:00:03 the write succeeds: its
lease ends at 12:00:15. It freezes at 12:00:14. At 12:00:45 the broker closes its connection. At
12:01:02 another router has watched the row for 60 s and closes the log. At 12:01:10 the first
router wakes: it has no lease, its next write is refused, and it begins a new log.
"""

from __future__ import annotations

import math
from typing import Final

from newsfabric.store.rules import MAX_SPAN

# Seconds from the start of a write of the directory.
LEASE: Final = 15.0
# Most numbers above ``low`` that are under way; a router that closes a log searches so far ahead.
WINDOW: Final = MAX_SPAN


class Numbering:
    """The numbers of one log (1, 2, 3 … without gaps) and its lease.

    ``now`` is in seconds, of a clock that continues while the machine sleeps.
    """

    def __init__(self, *, window: int = WINDOW) -> None:
        self.window = window
        #: The last number given out.
        self.last = 0
        #: All numbers up to it are settled.
        self.low = 0
        #: Whether the log's row is in the directory; it is written before the first number.
        self.is_listed = False
        #: Whether other routers have closed the log.
        self.is_closed = False
        self._lease_until = -math.inf
        # Settled numbers above low.
        self._settled: set[int] = set()

    def renewed(self, asked_at: float) -> None:
        """Note that a write of the directory's row, begun at ``asked_at``, succeeded."""
        self.is_listed = True
        self._lease_until = max(self._lease_until, asked_at + LEASE)

    def has_lease(self, now: float) -> bool:
        """Return whether numbers may be given out, while there is :attr:`room`, and published.

        Before the log :attr:`is_listed` there is no lease.
        """
        return now < self._lease_until and not self.is_closed

    @property
    def room(self) -> int:
        """The number of further numbers that may be under way."""
        return self.window - (self.last - self.low)

    def give(self) -> int:
        """Return the next number. It must end as a message's rows or as a void row."""
        self.last += 1
        return self.last

    def settle(self, number: int) -> None:
        """Note that ``number`` is settled, as defined above."""
        if number != self.low + 1:
            self._settled.add(number)
            return
        self.low = number
        while self._settled and self.low + 1 in self._settled:
            self.low += 1
            self._settled.discard(self.low)
