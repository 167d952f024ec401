"""Detection of shovels that move nothing, and the times of their restarts. Pure.

A shovel can report "running" and move nothing, so that report isn't trusted: the shovel's owner
sends a canary through it each second and times its arrival. One :class:`Watched` is one shovel.

The decision that a reader may question: a shovel is distrusted when *no* canary arrived for
:data:`SILENT_AFTER`, not when canaries are old. A shovel that works off the backlog of an outage
brings old canaries for a while, and a restart would only send its backlog once more.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Final

from newsfabric.backoff import Backoff

# Seconds without any canary before "running" isn't trusted. A canary is due each second.
SILENT_AFTER: Final = 10.0
# The steps of the first and of the last wait after a restart. The waits have full jitter.
RESTART_BASE: Final = 10.0
RESTART_CAP: Final = 300.0


@dataclasses.dataclass(slots=True)
class Watched:
    """A shovel. All times are seconds of one monotonic clock, the sender's."""

    restarts: int = 0
    """How often it was restarted since anything arrived."""
    _newest: float | None = None
    _quiet_since: float | None = None
    _not_before: float = 0.0
    _backoff: Backoff = dataclasses.field(
        default_factory=lambda: Backoff(base=RESTART_BASE, cap=RESTART_CAP)
    )

    def sent(self, at: float) -> None:
        """Note that the source has taken a canary at ``at``; an arrival is expected from now on."""
        if self._quiet_since is None:
            self._quiet_since = at

    def arrived(self, sent_at: float, now: float) -> None:
        """Note that the canary sent at ``sent_at`` has arrived."""
        if self._newest is None or sent_at > self._newest:
            self._newest = sent_at
        self._quiet_since = None
        self.restarts = 0
        self._backoff.succeeded(now)

    def age(self, now: float) -> float | None:
        """Return the age of the newest canary that arrived, in seconds; None before the first."""
        return None if self._newest is None else max(0.0, now - self._newest)

    def fresh(self, now: float) -> bool:
        """Return whether a canary arrived that was sent less than :data:`SILENT_AFTER` ago."""
        age = self.age(now)
        return age is not None and age <= SILENT_AFTER

    def silent(self, now: float) -> bool:
        """Return whether canaries were sent and none has arrived for :data:`SILENT_AFTER`."""
        return self._quiet_since is not None and now - self._quiet_since > SILENT_AFTER

    def distrust(self, now: float, rng: random.Random) -> bool:
        """Return whether to restart now a shovel that reports "running". Each restart counts."""
        if not self.silent(now) or now < self._not_before:
            return False
        self.restarts += 1
        self._not_before = now + SILENT_AFTER + self._backoff.failed(now, rng)
        return True

    def renewed(self) -> None:
        """Note that the shovel was replaced or has just begun: it gets its full time."""
        self._quiet_since = None
