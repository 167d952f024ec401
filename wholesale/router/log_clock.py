"""The time that a router gives its logs and messages: a hybrid logical clock. Pure.

This clock follows the wall clock and never goes back: neither behind its own earlier times, nor
behind the times in the directory when its router starts. So later numbers of a log have later
times, and a new log begins later than every time that a row had stated by then. Readers' positions
depend on both (docs/design/0028).

When the wall clock is set back, this clock waits for it: it continues at nine tenths of the speed,
by the monotonic clock. It doesn't stand still, since gateways derive the age of a message from it.

When the wall clock jumps, either way, it isn't followed until it has been compared with the store's
clock. While the two are more than 30 s apart, the router routes nothing new.

Example. At 12:00:00 the machine's clock is set back by an hour. It reads 11:00:00, this clock reads
12:00:00, and the router pauses. Five seconds later the store's clock reads 12:00:05: 3,600 s apart.
So the router stays paused, and its time continues as before, by the monotonic clock. If the store's
clock reads 11:00:05 instead, the router continues. This clock reads 12:09:00 when the wall clock
reads 11:10:00; ten hours after the step both read the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Final

from newsfabric.topology.times import TIMES

# The wall clock may differ from the store's by so much, and step by so much without a comparison.
APART_MS: Final = TIMES.clock_ms


class LogClock:
    """The state of the clock. ``wall_ms``: ms since the epoch; ``now``: seconds, monotonic."""

    #: Share of the speed of ``now``, while the clock waits for the wall clock.
    waiting_speed: ClassVar[float] = TIMES.waiting_speed

    def __init__(self) -> None:
        #: Milliseconds by which the wall clock was ahead of the store's at the last comparison;
        #: None before the first one, and if the store returns no time.
        self.ahead_ms: int | None = None
        #: Whether the wall clock can be followed: it was compared, and hasn't jumped since.
        self.is_right = False
        # A fraction of a ms counts: the clock is read more than once in a ms.
        self._ms = 0.0
        self._wall_ms = 0
        self._now = -math.inf

    def now_ms(self, wall_ms: int, now: float) -> int:
        """Return the time, in ms, never less than before. Unusable before the first comparison."""
        elapsed_ms = 0.0 if math.isinf(self._now) else max(0.0, now - self._now) * 1000
        if abs(wall_ms - self._wall_ms - elapsed_ms) > APART_MS:
            self.is_right = False
        if self.is_right:
            self._ms = max(wall_ms, self._ms + self.waiting_speed * elapsed_ms)
        else:
            self._ms += elapsed_ms
        self._wall_ms, self._now = wall_ms, now
        return int(self._ms)

    def at_least(self, ms: int) -> None:
        """Make this clock later than ``ms``, a time that a row of the directory states."""
        self._ms = max(self._ms, ms + 1)

    def compare(self, wall_ms: int, now: float, store_ms: Sequence[int]) -> None:
        """Compare the wall clock with ``store_ms``, the clocks of the store's nodes.

        Their median counts. Without any the wall clock is taken to be right.
        """
        self.now_ms(wall_ms, now)
        self.ahead_ms = wall_ms - sorted(store_ms)[len(store_ms) // 2] if store_ms else None
        self.is_right = abs(self.ahead_ms or 0) <= APART_MS
        # Otherwise the clock could jump before it was followed once.
        self.now_ms(wall_ms, now)
