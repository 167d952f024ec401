"""The recent rate of messages of each topic. Pure, and bounded.

Old messages count less and less, half as much after twenty seconds. Without room for another topic,
the topic isn't counted until a rare one has been forgotten.
"""

from __future__ import annotations

import math
from typing import Final

_MOST: Final = 1_000
_TAU: Final = 20.0 / math.log(2)
_SWEEP_EVERY: Final = 5.0
_RARE: Final = 0.05


class Rates:
    """Rates of topics, counted from ``began`` (seconds) on."""

    def __init__(self, began: float, *, most: int = _MOST) -> None:
        self._began = began
        self._most = most
        # The decayed count of its messages, and the time of that value.
        self._left: dict[str, tuple[float, float]] = {}
        self._swept = began

    def note(self, topic: str, now: float) -> None:
        """Count one message of ``topic`` at ``now`` (seconds). A new topic needs room."""
        known = self._left.get(topic)
        if known is None and len(self._left) >= self._most and not self._sweep(now):
            return
        left, at = (0.0, now) if known is None else known
        self._left[topic] = (left * _decay(now - at) + 1.0, now)

    def per_second(self, now: float) -> dict[str, float]:
        """Return the messages a second by topic; a message of 20 s ago counts half."""
        # The decayed count of a steady rate of one a second.
        seconds = _TAU * (1.0 - _decay(max(1.0, now - self._began)))
        return {
            topic: left * _decay(now - at) / seconds for topic, (left, at) in self._left.items()
        }

    def _sweep(self, now: float) -> bool:
        """Forget rare topics, unless that was just done; return whether there is room."""
        if now - self._swept >= _SWEEP_EVERY:
            self._swept = now
            kept = {t: v for t, v in self._left.items() if v[0] * _decay(now - v[1]) > _RARE}
            self._left = kept
        return len(self._left) < self._most


def _decay(seconds: float) -> float:
    return math.exp(-max(0.0, seconds) / _TAU)
