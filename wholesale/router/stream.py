"""A router's stream of envelopes, numbered in one log, and the log's ticks.

A number is given out once, before the message is stored, because the store keeps the number too.
"""

from __future__ import annotations

from newsfabric.messages import envelope
from newsfabric.messages.control import Tick
from newsfabric.messages.envelope import Envelope, Submission
from newsfabric.store.logs import Log
from wholesale.router.numbering import Numbering


class Stream:
    """The messages that one router routes in one life, as ``log``."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.numbering = Numbering()
        # Numbers whose messages the store couldn't hold: they are to become void rows.
        self.to_void: set[int] = set()

    def number(self, submission: Submission, *, now_ms: int) -> Envelope:
        """Return ``submission`` with the next number.

        That number must be settled later (:mod:`wholesale.router.numbering`).
        """
        return envelope.routed(
            submission,
            now_ms=now_ms,
            origin=self.log.region,
            router=self.log.router,
            epoch=self.log.epoch,
            seq=self.numbering.give(),
        )

    @property
    def seq(self) -> int:
        """The last number given out."""
        return self.numbering.last

    def make_void(self, seq: int) -> None:
        """Make ``seq``, whose message the store can't hold, void; it is settled once that is
        written.

        After such a failure normally no row was written. If there is a row all the same, a reader
        of its topic finds it, although its publisher got a rejection.
        """
        self.to_void.add(seq)

    def tick(self, *, now_ms: int) -> Tick:
        """Return the tick for ``now_ms``."""
        return Tick(
            origin=self.log.region,
            router=self.log.router,
            epoch=self.log.epoch,
            seq=self.seq,
            sent_ms=now_ms,
            low=self.numbering.low,
        )
