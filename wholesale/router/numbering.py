"""A router's log: which numbers it may give out, how far they are settled, and for how long it may
go on. Pure: it is told what happened and when.

A number is **settled** when its rows are stored *and* both exchanges confirmed it, when it is void,
or when it is stored and too old to be published. Stored alone isn't enough: a gateway that begins
at ``low`` takes everything up to it for past, and would never hear of what is published afterwards.

The **lease** is what keeps a router that was frozen from going on with a log that others have
closed meanwhile. Others close a log whose row in the directory hasn't moved for 60 s by their own
watching. A router gives out numbers and publishes for 15 s from the *start* of its last successful
write of that row; and a broker that doesn't hear of it for 30 s takes back what it has.

Example. 12:00:00 the router asks to write its row, 12:00:03 it is told that this was done: its
lease ends at 12:00:15. It freezes at 12:00:14. 12:00:45 the broker closes its connection. 12:01:02
another router has watched the row for 60 s and closes the log. 12:01:10 it wakes: it has no lease,
its next write is refused, and it begins a new log.
"""

from __future__ import annotations

import math
from typing import Final

from newsfabric.store.rules import MAX_SPAN

# Seconds from the start of a write of the directory.
LEASE: Final = 15.0
# So many numbers above ``low`` are under way at most: who closes a log looks so far for the next.
WINDOW: Final = MAX_SPAN


class Numbering:
    """The numbers of one log and its lease. They run 1, 2, 3 … without gaps.

    ``now`` is in seconds, of a clock that goes on while the machine sleeps.
    """

    def __init__(self, *, window: int = WINDOW) -> None:
        self.window = window
        #: The last number given out.
        self.last = 0
        #: All numbers up to it are settled.
        self.low = 0
        #: Whether its row is in the directory, which comes before its first number.
        self.is_listed = False
        #: Whether others have ended it.
        self.is_closed = False
        self._lease_until = -math.inf
        # Those above low.
        self._settled: set[int] = set()

    def renewed(self, asked_at: float) -> None:
        """A write of the directory's row succeeded that began at ``asked_at``."""
        self.is_listed = True
        self._lease_until = max(self._lease_until, asked_at + LEASE)

    def has_lease(self, now: float) -> bool:
        """Whether it may give out numbers, while there is :attr:`room`, and publish.

        There is none before it :attr:`is_listed`.
        """
        return now < self._lease_until and not self.is_closed

    @property
    def room(self) -> int:
        """How many more numbers may be under way."""
        return self.window - (self.last - self.low)

    def give(self) -> int:
        """The next number. It must end as a message's rows or as a void row."""
        self.last += 1
        return self.last

    def settle(self, number: int) -> None:
        """``number`` is settled: see above for what that takes."""
        if number != self.low + 1:
            self._settled.add(number)
            return
        self.low = number
        while self._settled and self.low + 1 in self._settled:
            self.low += 1
            self._settled.discard(self.low)
