"""A router's log: which numbers it may give out, which are settled, and for how long it may go on.

Pure: the router tells it what happened and when. It knows neither messages nor stores.

A number is settled when its row is stored *and* both exchanges confirmed it, when it is void, or
when it is stored and too old to be published. Stored alone isn't enough: a gateway that starts at
``low`` takes everything up to it for past, and would never hear of a number that is published
afterwards.
"""

from __future__ import annotations

import math

from .rows import LogId
from .settings import HOLD, LEASE, WINDOW


class Numbering:
    """The numbers of one log and its lease. They run 1, 2, 3 … without gaps."""

    def __init__(self, log: LogId, *, window: int = WINDOW) -> None:
        self.log = log
        self.window = window
        #: The last number given out.
        self.last = 0
        #: All numbers up to it are settled.
        self.low = 0
        #: Whether its directory row was written, which comes before its first number.
        self.is_listed = False
        self._lease_until = -math.inf
        self._settled: set[int] = set()

    def renewed(self, asked_at: float) -> None:
        """A write of the directory row succeeded that began at ``asked_at``."""
        self.is_listed = True
        self._lease_until = max(self._lease_until, asked_at + LEASE)

    def has_lease(self, now: float) -> bool:
        """Whether it may give out numbers and publish.

        Counted from the *start* of the write: what a closer watches moved no earlier than that.
        """
        return now < self._lease_until

    def may_give(self, now: float) -> bool:
        """Whether it may give out one more number."""
        return self.is_listed and self.last - self.low < self.window and self.has_lease(now)

    def give(self) -> int:
        """The next number. It must end as a message's row or a void row."""
        self.last += 1
        return self.last

    @staticmethod
    def ends_void(held: float, *, tried: bool) -> bool:
        """Whether a number ends void whose message was ``held`` for so many seconds.

        Never if its row was ``tried``: a late row would be a message with a void number.
        """
        return held > HOLD and not tried

    @staticmethod
    def is_too_old(held: float) -> bool:
        """Whether its message mustn't be published any more: a copy of it may be routed anew."""
        return held > HOLD

    def stored(self, number: int) -> None:
        """Its rows are confirmed. Nothing is settled by that."""

    def confirmed(self, number: int) -> None:
        """Stored, and both exchanges confirmed it."""
        self._settle(number)

    def voided(self, number: int) -> None:
        """Its void row is confirmed."""
        self._settle(number)

    def expired(self, number: int) -> None:
        """Stored, and too old to be published."""
        self._settle(number)

    def _settle(self, number: int) -> None:
        self._settled.add(number)
        while self.low + 1 in self._settled:
            self.low += 1
            self._settled.discard(self.low)
