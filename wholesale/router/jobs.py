"""What moves through the router: claims, jobs, and what is owed in the end. Plain values.

A *claim* is one delivery that waits for its ack (and perhaps a receipt). A *job* is one message
on its way to the store and the exchanges, with every claim to it: copies and repeats that arrive
meanwhile join it and share its outcome. A *pending ack* waits until the broker has confirmed its
publishes (receipts, rejections; outgoing.py).
"""

from __future__ import annotations

import dataclasses
from typing import Final, Protocol

from newsfabric.amqp.message import Delivery
from newsfabric.fixed import fixed
from newsfabric.messages.envelope import Envelope, Submission
from newsfabric.topics import TopicClass
from wholesale.common.outgoing import PendingPublish
from wholesale.router.stream import Stream

# So long after its arrival a message may still go out: as long as it may wait in the queue before.
# With all that a copy can wait elsewhere that is less than the time for which gateways remember
# identities (S4). One that is routed later could be one that its readers have had.
HOLD_SECONDS: Final = 150.0


class Source(Protocol):
    """Where deliveries come from; owes the broker an ack for each."""

    def ack(self, delivery: Delivery) -> None:
        """Acknowledge; an ack for a channel that is gone is dropped."""

    def give_back(self, delivery: Delivery) -> None:
        """Have the broker deliver it again, to whomever."""

    def is_stale(self, delivery: Delivery) -> bool:
        """Whether the broker has taken ``delivery`` back, because its channel is gone."""


@fixed(frozen=True, slots=True)
class Claim:
    """One delivery, and where its receipt goes (``reply_to`` None: none wanted)."""

    delivery: Delivery
    source: Source
    reply_to: str | None
    correlation_id: str | None

    @property
    def is_stale(self) -> bool:
        """Whether the broker delivers it anew, so that nothing is owed for it here."""
        return self.source.is_stale(self.delivery)

    def ack(self) -> None:
        """Acknowledge the delivery: the broker forgets the message."""
        self.source.ack(self.delivery)

    def give_back(self) -> None:
        """Have the broker deliver it again, to whomever."""
        self.source.give_back(self.delivery)


@dataclasses.dataclass(slots=True, eq=False)
class Job:
    """One new message; ``started`` is its arrival, monotonic.

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
        """From then on it isn't numbered or published any more; monotonic."""
        return self.started + HOLD_SECONDS

    def forget_stale_claims(self) -> None:
        """Drop the claims that the broker has taken back."""
        self.claims = [claim for claim in self.claims if not claim.is_stale]


@dataclasses.dataclass(slots=True)
class PendingAck:
    """Publishes to be confirmed, then claims to be acknowledged."""

    publishes: list[PendingPublish]
    claims: list[Claim]
