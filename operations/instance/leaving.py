"""Decides how a box leaves that AWS ends: drained first, in bounded time. Pure, without a clock.

After the first notice it leaves: AWS never takes that back. Metadata without an answer are no
notice: the box stays.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Final

#: The ``autoscaling/target-lifecycle-state`` while the hook ``…_TERMINATING`` waits for us.
TERMINATED: Final = "Terminated"


class LeavingStep(enum.Enum):
    """The action that is due."""

    STAY = enum.auto()
    DRAIN = enum.auto()
    WAIT = enum.auto()
    #: Report to AWS that the drain continues, and look again.
    BEAT = enum.auto()
    #: Report to AWS that the machine may go. After success call :meth:`Leaving.note_completed`.
    COMPLETE = enum.auto()
    #: AWS was notified and ends the machine.
    GONE = enum.auto()


@dataclasses.dataclass(slots=True, kw_only=True)
class Leaving:
    """``limit``: seconds after which AWS is notified that the box may go, drained or not."""

    limit: float
    beat_every: float = 30.0
    _since: float | None = None
    _beaten: float = 0.0
    _completed: bool = False

    def step(self, now: float, state: str | None, *, drained: bool) -> LeavingStep:
        """Return the action at ``now``; ``state`` is the metadata's answer, None without one.

        After :attr:`LeavingStep.DRAIN` the caller begins to drain; ``drained`` is True once that is
        over.
        """
        if self._since is None:
            if state != TERMINATED:
                return LeavingStep.STAY
            self._since = self._beaten = now
            return LeavingStep.DRAIN
        if self._completed:
            return LeavingStep.GONE
        if drained or self.overdue(now):
            return LeavingStep.COMPLETE
        if now - self._beaten >= self.beat_every:
            self._beaten = now
            return LeavingStep.BEAT
        return LeavingStep.WAIT

    def overdue(self, now: float) -> bool:
        """Return whether the drain has used up its time."""
        return self._since is not None and now - self._since >= self.limit

    def note_completed(self) -> None:
        """Note that AWS was notified that the box may go."""
        self._completed = True
