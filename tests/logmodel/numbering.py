"""A router's log: the project's own numbers and lease, and what becomes of what it held too long,
which the project's stages do by themselves.
"""

from __future__ import annotations

from newsfabric.store.logs import Log
from tests.logmodel.settings import HOLD, WINDOW
from wholesale.router import numbering


class Numbering(numbering.Numbering):
    """The numbers of ``log``, and what each outcome does to them."""

    def __init__(self, log: Log, *, window: int = WINDOW) -> None:
        super().__init__(window=window)
        self.log = log

    def may_give(self, now: float) -> bool:
        """Whether it may give out one more number."""
        return self.is_listed and self.room > 0 and self.has_lease(now)

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
        self.settle(number)

    def voided(self, number: int) -> None:
        """Its void row is confirmed."""
        self.settle(number)

    def expired(self, number: int) -> None:
        """Stored, and too old to be published."""
        self.settle(number)
