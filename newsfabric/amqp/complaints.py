"""Saying the same thing about the same trouble once in a while instead of at each try."""

from __future__ import annotations

from typing import Final

# Often enough to be seen in a tail of the log, seldom enough for a broker's long night.
REPEAT_SECONDS: Final = 60.0


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
