"""Rate-limits a log line that peers can trigger. Owns no clock."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(slots=True, kw_only=True)
class Seldom:
    """Allows one line per ``every`` seconds and counts those left unsaid."""

    every: float
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
