"""The time that a router gives its logs and messages: a hybrid logical clock. Pure.

It follows the wall clock, and never goes back: neither behind what it has said before, nor behind
what the directory's rows say when its router starts. So of one log later numbers have later times,
and a new log begins later than every time that a row had told by then. Readers' positions rest on
both (docs/design/0028).

A wall clock that is set back is waited for: meanwhile time goes on at nine tenths of its speed, by
the monotonic clock. It doesn't stand still, since gateways take the age of a message from it.

A wall clock that jumps, either way, isn't followed until it was compared with the store's clock.
While they are more than 30 s apart, the router routes nothing new.

Example. At 12:00:00 the machine's clock is set back by an hour. It reads 11:00:00, this one reads
12:00:00, and the router pauses. Five seconds later the store's clock says 12:00:05: 3,600 s apart,
so the router stays paused, and its time goes on as before, by the monotonic clock. If the store
says 11:00:05 instead, the router goes on. This clock reads 12:09:00 when the wall clock reads
11:10:00; ten hours after the step both read the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Final

from newsfabric.topology.times import TIMES

# So far the wall clock may be from the store's, and step without being compared again.
APART_MS: Final = TIMES.clock_ms


class LogClock:
    """``wall_ms`` is in ms since the epoch, ``now`` in seconds of a clock that only goes on."""

    #: Of the speed of ``now``, while the wall clock is waited for.
    waiting_speed: ClassVar[float] = TIMES.waiting_speed

    def __init__(self) -> None:
        #: By how many ms the wall clock is ahead of the store's, when they were last compared; None
        #: before, and if the store tells no time.
        self.ahead_ms: int | None = None
        #: Whether the wall clock can be followed: it was compared, and hasn't jumped since.
        self.is_right = False
        # In fractions too: it is asked more than once in a ms.
        self._ms = 0.0
        self._wall_ms = 0
        self._now = -math.inf

    def now_ms(self, wall_ms: int, now: float) -> int:
        """The time, in ms: never less than it was. Of no use before the clocks were compared."""
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
        """A row of the directory tells the time ``ms``: from now on this one is later."""
        self._ms = max(self._ms, ms + 1)

    def compare(self, wall_ms: int, now: float, store_ms: Sequence[int]) -> None:
        """The clocks of so many nodes of the store read ``store_ms``. Their median counts; nothing
        is known of a store that tells none."""
        self.now_ms(wall_ms, now)
        self.ahead_ms = wall_ms - sorted(store_ms)[len(store_ms) // 2] if store_ms else None
        self.is_right = abs(self.ahead_ms or 0) <= APART_MS
        # Lest it jumps before it was followed once.
        self.now_ms(wall_ms, now)
