"""The values that move through the router: claims, jobs and pending acks.

A *claim* is one delivery that waits for its acknowledgement (and perhaps a receipt). A *job* is one
message on its way to the store and the exchanges, with all its claims: copies and repeats that
arrive meanwhile join it and share its outcome. A *pending ack* waits until the broker has confirmed
its publishes (receipts, rejections; outgoing.py).
"""

from __future__ import annotations

import dataclasses
from typing import Final, Protocol

from newsfabric.amqp.message import Delivery
from newsfabric.fixed import fixed
from newsfabric.messages.envelope import Envelope, Submission
from newsfabric.topics import TopicClass
from newsfabric.topology.times import TIMES
from wholesale.common.outgoing import PendingPublish
from wholesale.router.stream import Stream

# Seconds after its arrival in which a message may still be sent. A later one could be a repeat of
# one that readers have, whose identity is forgotten (S4).
HOLD_SECONDS: Final = TIMES.hold_ms / 1000


class Source(Protocol):
    """The source of deliveries; it owes the broker an acknowledgement for each."""

    def ack(self, delivery: Delivery) -> None:
        """Acknowledge ``delivery``; does nothing if its channel is closed."""

    def requeue(self, delivery: Delivery) -> None:
        """Have the broker deliver it again, to any consumer of the queue."""

    def is_stale(self, delivery: Delivery) -> bool:
        """Return whether ``delivery`` is stale: its channel is closed, so the broker repeats it."""


@fixed(frozen=True, slots=True)
class Claim:
    """A delivery, and the queue for its receipt (``reply_to`` None: none wanted)."""

    delivery: Delivery
    source: Source
    reply_to: str | None
    correlation_id: str | None

    @property
    def is_stale(self) -> bool:
        """True if the broker delivers it again, so that this claim needs no acknowledgement."""
        return self.source.is_stale(self.delivery)

    def ack(self) -> None:
        """Acknowledge the delivery: the broker forgets the message."""
        self.source.ack(self.delivery)

    def requeue(self) -> None:
        """Have the broker deliver it again, to any consumer of the queue."""
        self.source.requeue(self.delivery)


@dataclasses.dataclass(slots=True, eq=False)
class RoutingJob:
    """A new message; ``started`` is its arrival, monotonic.

    ``stream`` and ``envelope`` are set when it gets its number, ``stored_ms`` when it is stored.
    """

    submission: Submission
    topic_class: TopicClass
    fingerprint: int
    claims: list[Claim]
    started: float
    stream: Stream | None = None
    envelope: Envelope | None = None
    stored_ms: int | None = None

    @property
    def until(self) -> float:
        """The time (monotonic) from which on the message isn't numbered or published any more."""
        return self.started + HOLD_SECONDS

    def forget_stale_claims(self) -> None:
        """Drop the claims whose deliveries are stale."""
        self.claims = [claim for claim in self.claims if not claim.is_stale]


@dataclasses.dataclass(slots=True)
class PendingAck:
    """Publishes to be confirmed, then claims to be acknowledged."""

    publishes: list[PendingPublish]
    claims: list[Claim]
