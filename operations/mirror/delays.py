"""Percentiles of many delays in little memory. Pure.

Buckets grow by two per cent, so a percentile is exact to that; there are some thousand buckets, for
any values.
"""

from __future__ import annotations

import collections
import math
from typing import Final

_GROWTH: Final = math.log(1.02)
_LEAST: Final = 0.000_1
_MOST: Final = 86_400.0


class DelayHistogram:
    """Delays in seconds. Values below 0.1 ms, or negative because clocks differ, count as 0.1 ms;
    values above a day count as a day."""

    def __init__(self) -> None:
        self.count = 0
        self._buckets: collections.Counter[int] = collections.Counter()

    def add(self, seconds: float) -> None:
        """Count one more delay, bounded to 0.1 ms to a day."""
        bounded = min(max(seconds, _LEAST), _MOST)
        self._buckets[math.ceil(math.log(bounded / _LEAST) / _GROWTH)] += 1
        self.count += 1

    def percentile(self, part: float) -> float | None:
        """Return the seconds within which ``part`` (0 to 1) of them were; None without any."""
        if not self.count:
            return None
        left = max(1, math.ceil(part * self.count))
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                break
        return float(_LEAST * math.exp(bucket * _GROWTH))

    def ms(self, part: float) -> float | None:
        """Return :meth:`percentile` in ms, rounded to a tenth."""
        found = self.percentile(part)
        return None if found is None else round(found * 1000, 1)
