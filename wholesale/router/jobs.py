"""What moves through the router: claims, jobs and answers. Plain values.

A *claim* is one delivery that waits for its ack (and perhaps a receipt). A *job* is one message
on its way to the store and the exchanges, with every claim to it: copies and repeats that arrive
meanwhile join it and share its outcome. An *answer* is what is to be said of the outcome.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable
from typing import Protocol

from newsfabric.amqp.message import Delivery, Message
from newsfabric.envelope import Envelope, Submission
from newsfabric.topics import TopicClass


class Source(Protocol):
    """Where deliveries come from; owes the broker an ack for each."""

    def ack(self, delivery: Delivery) -> None:
        """Acknowledge; an ack for a channel that is gone is dropped."""

    def is_stale(self, delivery: Delivery) -> bool:
        """Whether the broker has taken ``delivery`` back, because its channel is gone."""


@dataclasses.dataclass(frozen=True, slots=True)
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
        """Acknowledge the delivery."""
        self.source.ack(self.delivery)


@dataclasses.dataclass(slots=True, eq=False)
class Job:
    """One new message; ``started`` is monotonic.

    ``envelope`` is set when it gets its number, ``stored_ms`` when it is stored.
    """

    submission: Submission
    topic_class: TopicClass
    fingerprint: int
    claims: list[Claim]
    started: float
    envelope: Envelope | None = None
    stored_ms: int | None = None

    def forget_stale_claims(self) -> None:
        """Drop the claims that the broker has taken back."""
        self.claims = [claim for claim in self.claims if not claim.is_stale]


@dataclasses.dataclass(slots=True)
class Letter:
    """One message that the broker must confirm; ``confirm`` is set while it is on its way.

    ``plain`` says the same without anything of the publisher's making but the
    body; it is what is sent after the first failed.
    """

    exchange: str
    message: Message
    plain: Message | None = None
    confirm: Awaitable[None] | None = None

    def fall_back(self) -> None:
        """Say it plainly from now on, where that is possible."""
        self.message = self.plain or self.message


@dataclasses.dataclass(slots=True)
class Answer:
    """Letters to be confirmed, then claims to be acknowledged."""

    letters: list[Letter]
    claims: list[Claim]
