"""Which topics and which publishers are the busiest, for operators. Pure."""

from __future__ import annotations

from typing import Any

from newsfabric.messages.envelope import Submission
from wholesale.router.busiest import Busiest


class Traffic:
    """Counts what is routed, in bounded memory; times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._topics = Busiest()
        self._publishers = Busiest()

    def routed(self, submission: Submission, now: float) -> None:
        """One more message. One without an ``app_id`` is nobody's."""
        self._topics.add(submission.topic, now)
        if submission.app_id:
            self._publishers.add(submission.app_id, now)

    def top(self, now: float) -> dict[str, Any]:
        """The busiest of the last ten seconds, as a report has them."""
        return {"topics": self._topics.top(now), "publishers": self._publishers.top(now)}
