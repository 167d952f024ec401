"""Acknowledgements of one channel's deliveries, gathered into as few frames as there can be.

Pure bookkeeping. A broker numbers the deliveries of a channel 1, 2, 3, …; they are settled (acked
or rejected) in any order. ``basic.ack`` with ``multiple`` settles all deliveries up to a tag, so
all deliveries below that tag must be settled. Deliveries beyond it are acked singly. Each tag is
handled a bounded number of times: O(1) amortised.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Ack:
    """A ``basic.ack``: of ``tag`` alone, or of all outstanding deliveries up to it."""

    tag: int
    multiple: bool


class Acks:
    """The acks owed to the broker for the deliveries of one channel."""

    def __init__(self) -> None:
        self._last = 0
        # All deliveries below are settled; the delivery with this tag isn't, or hasn't arrived.
        self._floor = 1
        # Tags settled at or above the floor.
        self._settled: set[int] = set()
        # Tags acked, and not sent to the broker yet.
        self._unsent: list[int] = []

    @property
    def outstanding(self) -> int:
        """Deliveries that are neither acked nor rejected."""
        return self._last - self._floor + 1 - len(self._settled)

    def delivered(self, tag: int) -> None:
        """Note delivery ``tag``; ValueError if that isn't one more than the last."""
        if tag != self._last + 1:
            raise ValueError(f"delivery {tag} after {self._last}")
        self._last = tag

    def ack(self, tag: int) -> bool:
        """Note the ack of delivery ``tag``; False, and nothing to send, if it was settled."""
        if not self._settle(tag):
            return False
        self._unsent.append(tag)
        return True

    def reject(self, tag: int) -> bool:
        """Note the rejection of delivery ``tag``, which the caller sends to the broker, if True."""
        return self._settle(tag)

    def _settle(self, tag: int) -> bool:
        if not self._floor <= tag <= self._last or tag in self._settled:
            return False
        self._settled.add(tag)
        while self._floor in self._settled:
            self._settled.remove(self._floor)
            self._floor += 1
        return True

    def flush(self) -> list[Ack]:
        """Return the acks to send so that the broker has all acks so far."""
        unsent, self._unsent = self._unsent, []
        below = [tag for tag in unsent if tag < self._floor]
        above = [tag for tag in unsent if tag >= self._floor]
        # The tag of a multiple ack must itself be outstanding at the broker, as the highest unsent
        # one is; rejected ones below it are settled there already.
        first = [Ack(max(below), multiple=len(below) > 1)] if below else []
        return first + [Ack(tag, multiple=False) for tag in above]
