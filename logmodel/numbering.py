"""A router's log: the project's own numbers and lease, and the fate of messages held too long,
which the project's stages decide themselves.
"""

from __future__ import annotations

from logmodel.settings import HOLD, WINDOW
from newsfabric.store.logs import Log
from wholesale.router import numbering


class Numbering(numbering.Numbering):
    """The numbers of ``log``, and the effect of each outcome on them."""

    def __init__(self, log: Log, *, window: int = WINDOW) -> None:
        super().__init__(window=window)
        self.log = log

    def may_give(self, now: float) -> bool:
        """Return whether the router may give out one more number."""
        return self.is_listed and self.room > 0 and self.has_lease(now)

    @staticmethod
    def ends_void(held: float, *, tried: bool) -> bool:
        """Return whether a number ends void, if its message was ``held`` for so many seconds.

        Never if its row was ``tried``: a late row would be a message with a void number.
        """
        return held > HOLD and not tried

    @staticmethod
    def is_too_old(held: float) -> bool:
        """Return whether a message is too old to be published: a copy may be routed anew."""
        return held > HOLD

    def stored(self, number: int) -> None:
        """Note that its rows are confirmed, which settles nothing yet."""

    def confirmed(self, number: int) -> None:
        """Settle a number that is stored and that both exchanges confirmed."""
        self.settle(number)

    def voided(self, number: int) -> None:
        """Settle a number whose void row is confirmed."""
        self.settle(number)

    def expired(self, number: int) -> None:
        """Settle a number that is stored, and too old to be published."""
        self.settle(number)
