"""The busiest topics and publishers, for operators. Pure."""

from __future__ import annotations

from typing import Any

from newsfabric.messages.envelope import Submission
from wholesale.router.busiest import Busiest


class Traffic:
    """Counts routed messages, in bounded memory; times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._topics = Busiest()
        self._publishers = Busiest()

    def routed(self, submission: Submission, now: float) -> None:
        """Count a routed message. Without an ``app_id`` it counts for no publisher."""
        self._topics.add(submission.topic, now)
        if submission.app_id:
            self._publishers.add(submission.app_id, now)

    def top(self, now: float) -> dict[str, Any]:
        """Return the busiest of the last ten seconds, in the shape of a report."""
        return {"topics": self._topics.top(now), "publishers": self._publishers.top(now)}
