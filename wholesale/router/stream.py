"""A router's stream of envelopes: each gets a number of its log, and ticks say which was the last.

A number is given out once, before the message is stored, because the store keeps it too. One whose
message is then given up is declared void in the ticks, so that no gateway looks for it in the
journal for ever.
"""

from __future__ import annotations

import collections
from typing import Final

from newsfabric import envelope
from newsfabric.control import Tick
from newsfabric.envelope import Envelope, Submission
from newsfabric.store.logs import Log
from wholesale.router.numbering import Numbering

# More than can be numbered and unsettled at once (routing.py: seven batches of 256), so that even a
# router that stops with everything stuck can name each number in its last tick.
KEPT_VOIDS: Final = 2048


class Stream:
    """What one router routes in one life, as ``log``."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.numbering = Numbering()
        # Numbers that the store couldn't hold as messages: they are to be void rows.
        self.to_void: set[int] = set()
        self._void: collections.deque[int] = collections.deque(maxlen=KEPT_VOIDS)

    def number(self, submission: Submission, *, now_ms: int) -> Envelope:
        """``submission`` with the next number. It must be routed or declared :meth:`void`."""
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

    def void(self, seq: int) -> None:
        """Nothing will come as number ``seq``; ValueError if it was never given out."""
        if not 1 <= seq <= self.seq:
            raise ValueError(f"{seq} was never given out (last: {self.seq})")
        if seq not in self._void:
            self._void.append(seq)

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
            void=tuple(self._void),
        )
