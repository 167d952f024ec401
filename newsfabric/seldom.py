"""Rate-limits log lines that peers or failures can trigger. Owns no clock.

:class:`Seldom` is for a line that anybody can cause at any time: one in a while, whatever it says.
:class:`Complaints` is for what is tried again and again: the same trouble is said once in a while,
another one at once. Who can choose its text is heard each time: not for strangers.
"""

from __future__ import annotations

import dataclasses
from typing import Final

# Often enough to be seen in a tail of the log, seldom enough for a broker's long night.
REPEAT_SECONDS: Final = 60.0


@dataclasses.dataclass(slots=True, kw_only=True)
class Seldom:
    """Allows one line per ``every`` seconds and counts those left unsaid."""

    every: float = 10.0
    _next: float = float("-inf")
    _unsaid: int = 0

    def may_say(self, now: float) -> int | None:
        """How many lines were left unsaid since the last one; None: don't say this one either."""
        if now < self._next:
            self._unsaid += 1
            return None
        unsaid, self._unsaid = self._unsaid, 0
        self._next = now + self.every
        return unsaid


class Complaints:
    """Whether a failure is news: it differs from the last one, or that is a minute old."""

    def __init__(self) -> None:
        self._last: str | None = None
        self._at = 0.0

    def is_news(self, text: str, now: float) -> bool:
        """Whether to log ``text`` at ``now`` (seconds)."""
        if text == self._last and now - self._at < REPEAT_SECONDS:
            return False
        self._last, self._at = text, now
        return True

    def over(self) -> None:
        """It works again: the next failure is news."""
        self._last = None
