"""A router's stream: the numbers it gives out, and those that came to nothing.

A number is given out once, before the message is stored, because the store keeps it too.
One whose message is then given up is declared void in the ticks, so that
no gateway looks for it in the journal for ever.
"""

from __future__ import annotations

import collections
from typing import Final

from newsfabric import envelope
from newsfabric.control import Tick
from newsfabric.envelope import Envelope, Submission

# More than can be numbered and unsettled at once (routing.py: seven batches of 256), so that even a
# router that stops with everything stuck can name each number in its last tick.
KEPT_VOIDS: Final = 2048


class Stream:
    """Numbers 1, 2, 3 … of one router since ``epoch`` (ms; when it started)."""

    def __init__(self, *, origin: str, router: str, epoch: int) -> None:
        self.origin = origin
        self.router = router
        self.epoch = epoch
        self.seq = 0
        self._void: collections.deque[int] = collections.deque(maxlen=KEPT_VOIDS)

    def number(self, submission: Submission, *, now_ms: int) -> Envelope:
        """``submission`` with the next number. It must be routed or declared :meth:`void`."""
        self.seq += 1
        return envelope.routed(
            submission,
            now_ms=now_ms,
            origin=self.origin,
            router=self.router,
            epoch=self.epoch,
            seq=self.seq,
        )

    def void(self, seq: int) -> None:
        """Nothing will come as number ``seq``; ValueError if it was never given out."""
        if not 1 <= seq <= self.seq:
            raise ValueError(f"{seq} was never given out (last: {self.seq})")
        if seq not in self._void:
            self._void.append(seq)

    def tick(self, *, now_ms: int) -> Tick:
        """The sign of life at ``now_ms``."""
        return Tick(
            origin=self.origin,
            router=self.router,
            epoch=self.epoch,
            seq=self.seq,
            sent_ms=now_ms,
            void=tuple(self._void),
        )
