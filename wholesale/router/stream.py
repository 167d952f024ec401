"""A router's stream of envelopes: each gets a number of its log, and ticks say which was the last.

A number is given out once, before the message is stored, because the store keeps it too.
"""

from __future__ import annotations

from newsfabric.messages import envelope
from newsfabric.messages.control import Tick
from newsfabric.messages.envelope import Envelope, Submission
from newsfabric.store.logs import Log
from wholesale.router.numbering import Numbering


class Stream:
    """What one router routes in one life, as ``log``."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.numbering = Numbering()
        # Numbers that the store couldn't hold as messages: they are to be void rows.
        self.to_void: set[int] = set()

    def number(self, submission: Submission, *, now_ms: int) -> Envelope:
        """``submission`` with the next number, which must be settled
        (:mod:`wholesale.router.numbering`)."""
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
        """The store can't hold the message that has number ``seq``: it is settled as void, as soon
        as that is written.

        Of a message that failed so nothing was written, or as good as nothing: a row that is there
        all the same is found by who looks for its topic, though its publisher was told otherwise.
        """
        self.to_void.add(seq)

    def tick(self, *, now_ms: int) -> Tick:
        """The sign of life at ``now_ms``."""
        return Tick(
            origin=self.log.region,
            router=self.log.router,
            epoch=self.log.epoch,
            seq=self.seq,
            sent_ms=now_ms,
            low=self.numbering.low,
        )
