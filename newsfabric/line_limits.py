"""Rate limits of log lines that peers or failures can trigger. Owns no clock.

:class:`LineLimit` is for a line that any stranger can cause at any time: one per interval, whatever
its text. :class:`RepeatedFailures` is for an operation that is retried: the same failure is logged
once a minute, another one at once. A stranger who can choose the text gets each line logged, so it
isn't for lines that strangers cause.
"""

from __future__ import annotations

import dataclasses
from typing import Final

# Often enough to be seen in a tail of the log, and few lines while a broker is away for a night.
REPEAT_SECONDS: Final = 60.0


@dataclasses.dataclass(slots=True, kw_only=True)
class LineLimit:
    """A limit of one line per ``every`` seconds, which counts the lines left out."""

    every: float = 10.0
    _next: float = float("-inf")
    _unlogged: int = 0

    def may_log(self, now: float) -> int | None:
        """Return the number of lines left out since the last one; None: leave this one out, too."""
        if now < self._next:
            self._unlogged += 1
            return None
        unlogged, self._unlogged = self._unlogged, 0
        self._next = now + self.every
        return unlogged


class RepeatedFailures:
    """A filter of failures: one is logged if it differs from the last, or that is a minute old."""

    def __init__(self) -> None:
        self._last: str | None = None
        self._at = 0.0

    def should_log(self, text: str, now: float) -> bool:
        """Return whether to log ``text`` at ``now`` (seconds)."""
        if text == self._last and now - self._at < REPEAT_SECONDS:
            return False
        self._last, self._at = text, now
        return True

    def ended(self) -> None:
        """Note a success: the next failure is logged, whatever its text."""
        self._last = None
