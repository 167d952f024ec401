"""Exponential backoff with a cap and full jitter.

Full jitter (a uniform draw between 0 and the step) is best to spread many clients that failed
together. The steps start over only after ``reset_after`` seconds of stability: so an operation that
fails right after each success still backs off.
"""

from __future__ import annotations

import dataclasses
import random


@dataclasses.dataclass(slots=True, kw_only=True)
class Backoff:
    """Delays between the tries of one operation. Seconds throughout."""

    base: float = 0.5
    cap: float = 30.0
    reset_after: float = 60.0
    _failures: int = 0
    _up_since: float | None = None

    def succeeded(self, now: float) -> None:
        """Note that the operation works since ``now``."""
        if self._up_since is None:
            self._up_since = now

    def failed(self, now: float, rng: random.Random | None = None) -> float:
        """Note a failure at ``now``; return the seconds to wait before the next try."""
        if self._up_since is not None and now - self._up_since >= self.reset_after:
            self._failures = 0
        self._up_since = None
        # The exponent is bounded: 2.0**1024 overflows after a long night of failures.
        step = min(self.cap, self.base * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return (rng or _SHARED).uniform(0.0, step)


_SHARED = random.Random()  # noqa: S311 - jitter, not a secret
