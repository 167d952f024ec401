"""How a box leaves that AWS ends: drained first, with a bound. Pure: owns no clock and no process.

Told once that it is to end, it ends: AWS takes that back from no instance. Silence tells nothing:
a box whose metadata don't answer goes on.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Final

#: In ``autoscaling/target-lifecycle-state`` when the hook ``…_TERMINATING`` waits for us.
TERMINATED: Final = "Terminated"


class Step(enum.Enum):
    """What is to be done now."""

    STAY = enum.auto()
    DRAIN = enum.auto()
    WAIT = enum.auto()
    #: Tell AWS that the drain goes on, and look again.
    BEAT = enum.auto()
    #: Tell AWS that it may go. Call :meth:`Leaving.told` when AWS has heard it.
    COMPLETE = enum.auto()
    #: AWS has heard it and ends the machine.
    GONE = enum.auto()


@dataclasses.dataclass(slots=True, kw_only=True)
class Leaving:
    """``limit``: seconds after which it says that it may go, drained or not."""

    limit: float
    beat_every: float = 30.0
    _since: float | None = None
    _beaten: float = 0.0
    _heard: bool = False

    def step(self, now: float, state: str | None, *, drained: bool) -> Step:
        """What to do at ``now``; ``state`` is what the metadata say, None: they don't.

        After :attr:`Step.DRAIN` the caller begins to drain; ``drained`` is whether that is over.
        """
        if self._since is None:
            if state != TERMINATED:
                return Step.STAY
            self._since = self._beaten = now
            return Step.DRAIN
        if self._heard:
            return Step.GONE
        if drained or self.overdue(now):
            return Step.COMPLETE
        if now - self._beaten >= self.beat_every:
            self._beaten = now
            return Step.BEAT
        return Step.WAIT

    def overdue(self, now: float) -> bool:
        """Whether the drain has had its time."""
        return self._since is not None and now - self._since >= self.limit

    def told(self) -> None:
        """AWS has heard that the box may go."""
        self._heard = True
