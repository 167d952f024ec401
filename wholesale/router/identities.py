"""The classification of deliveries by identity: new, under way, or routed before. Pure.

A repeat that arrives while the first is under way joins it and shares its outcome: a receipt must
not be sent before the first is stored.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from newsfabric.messages.envelope import Submission
from newsfabric.topics import TopicClass
from wholesale.router.jobs import Claim, RoutingJob
from wholesale.router.window import FINGERPRINT, IdentityWindow, Routed


class DeliveryKind(enum.Enum):
    """The kinds of a delivery."""

    NEW = "new"
    UNDER_WAY = "under_way"
    ROUTED = "routed"


class Identified(NamedTuple):
    """The result of :meth:`KnownIdentities.identify`.

    ``job`` is set unless ``found`` is ROUTED; only then ``routed_ms`` is set, the time in the first
    id. ``differs``: a repeat whose topic or body isn't that of the first.
    """

    found: DeliveryKind
    job: RoutingJob | None = None
    routed_ms: int = 0
    differs: bool = False


class KnownIdentities:
    """Jobs under way by identity, and the window of identities that were routed."""

    def __init__(self, window: IdentityWindow) -> None:
        self._window = window
        self._under_way: dict[int, RoutingJob] = {}

    def __len__(self) -> int:
        """Return the number of jobs under way."""
        return len(self._under_way)

    @property
    def evicted_early(self) -> int:
        """The number of routed identities that were forgotten early, for lack of room."""
        return self._window.evicted_early

    def identify(
        self,
        submission: Submission,
        claim: Claim,
        *,
        topic_class: TopicClass,
        now: float,
    ) -> Identified:
        """Classify ``submission`` at ``now`` (seconds, monotonic).

        A new message is under way from now on, and repeats join its job. End each new job with
        :meth:`routed` or :meth:`given_up`.
        """
        identity = submission.identity
        # Valid in this process only; bytes objects cache their hash. Only a metric depends on it.
        fingerprint = hash((submission.topic, submission.body)) & FINGERPRINT
        job = self._under_way.get(identity)
        if job is not None:
            job.claims.append(claim)
            return Identified(DeliveryKind.UNDER_WAY, job, differs=job.fingerprint != fingerprint)
        seen = self._window.find(identity, now=now)
        if seen is not None:
            return Identified(
                DeliveryKind.ROUTED,
                routed_ms=seen.router_ms,
                differs=seen.fingerprint != fingerprint,
            )
        job = self._under_way[identity] = RoutingJob(
            submission, topic_class, fingerprint, [claim], now
        )
        return Identified(DeliveryKind.NEW, job)

    def routed(self, job: RoutingJob, *, router_ms: int, now: float) -> None:
        """Note that ``job`` is stored and routed; its repeats are recognised from ``now`` on."""
        del self._under_way[job.submission.identity]
        routed = Routed(router_ms, job.fingerprint)
        self._window.add(job.submission.identity, routed, now=now)

    def given_up(self, job: RoutingJob) -> None:
        """Note that ``job`` was given up: the next delivery of its message is new."""
        del self._under_way[job.submission.identity]

    def forget_stale_claims(self) -> None:
        """Drop every claim whose delivery is stale; otherwise each reconnection would add some."""
        for job in self._under_way.values():
            job.forget_stale_claims()
