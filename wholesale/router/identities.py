"""Which messages are new, which are under way, and which were routed before. Pure.

A repeat that arrives while the first is under way joins it and shares its outcome: a receipt
before the first is stored would be a lie.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from newsfabric.messages.envelope import Submission
from newsfabric.topics import TopicClass
from wholesale.router.jobs import Claim, Job
from wholesale.router.window import FINGERPRINT, Routed, Window


class Found(enum.Enum):
    """What a delivery turned out to be."""

    NEW = "new"
    UNDER_WAY = "under_way"
    ROUTED = "routed"


class Identified(NamedTuple):
    """``job`` is set unless ``found`` is ROUTED; only then ``routed_ms``, the time in the first id.

    ``differs``: a repeat whose topic or body isn't that of the first.
    """

    found: Found
    job: Job | None = None
    routed_ms: int = 0
    differs: bool = False


class Identities:
    """Jobs under way by identity, and the window of those done."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._under_way: dict[int, Job] = {}

    def __len__(self) -> int:
        """How many jobs are under way."""
        return len(self._under_way)

    @property
    def evicted_early(self) -> int:
        """How many of those done were forgotten before their time, because they were too many."""
        return self._window.evicted_early

    def identify(
        self,
        submission: Submission,
        claim: Claim,
        *,
        topic_class: TopicClass,
        now: float,
    ) -> Identified:
        """Say what ``submission`` is at ``now`` (seconds, monotonic); a new one is under way from
        now on, a repeat of it joins it.

        End each new job with :meth:`routed` or :meth:`given_up`.
        """
        identity = submission.identity
        # In-process and cached by the bytes object; nothing but a metric hangs on it.
        fingerprint = hash((submission.topic, submission.body)) & FINGERPRINT
        job = self._under_way.get(identity)
        if job is not None:
            job.claims.append(claim)
            return Identified(Found.UNDER_WAY, job, differs=job.fingerprint != fingerprint)
        seen = self._window.find(identity, now=now)
        if seen is not None:
            return Identified(
                Found.ROUTED, routed_ms=seen.router_ms, differs=seen.fingerprint != fingerprint
            )
        job = self._under_way[identity] = Job(submission, topic_class, fingerprint, [claim], now)
        return Identified(Found.NEW, job)

    def routed(self, job: Job, *, router_ms: int, now: float) -> None:
        """``job`` is stored and routed; repeats of it are known from ``now`` on."""
        del self._under_way[job.submission.identity]
        routed = Routed(router_ms, job.fingerprint)
        self._window.add(job.submission.identity, routed, now=now)

    def given_up(self, job: Job) -> None:
        """``job`` came to nothing: the next delivery of it is new."""
        del self._under_way[job.submission.identity]

    def forget_stale_claims(self) -> None:
        """Drop every claim that the broker has taken back, lest each reconnect adds to them."""
        for job in self._under_way.values():
            job.forget_stale_claims()
