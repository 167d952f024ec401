"""What a topic's memory lacks, as a version vector of its own. Pure and bounded.

A memory can answer a reader who resumes if everything it has forgotten, or never had, is
covered by the reader's position. That is known by numbers: of each stream the highest one that
isn't remembered (:class:`Forgotten`). Saying that more was forgotten than was is always safe.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.position import Copy, Position

# Streams known by number; of those forgotten longest ago only a time is left.
_STREAMS: Final = 64


class Forgotten:
    """Of each stream the highest number forgotten, and the latest time of what has no number."""

    __slots__ = ("_until_ms", "_worst")

    def __init__(self, tops: Iterable[Copy] = (), until_ms: int = 0) -> None:
        self._worst = {top.stream: top for top in tops}
        self._until_ms = until_ms

    def add(self, copy: Copy) -> None:
        """One more message isn't remembered; ``copy`` is the first of its copies."""
        known = self._worst.get(copy.stream)
        if known is None:
            self._worst[copy.stream] = copy
            if len(self._worst) > _STREAMS:
                self._fold()
        else:
            seq, ms = max(known.seq, copy.seq), max(known.routed_ms, copy.routed_ms)
            self._worst[copy.stream] = Copy(copy.stream, seq, ms)

    def is_covered_by(self, position: Position) -> bool:
        """Whether a reader at ``position`` has all that isn't remembered."""
        if self._until_ms and self._until_ms >= min(position.time_ms, position.since_ms):
            return False
        return all(position.covers((worst,)) for worst in self._worst.values())

    def _fold(self) -> None:
        oldest = min(self._worst.values(), key=lambda worst: worst.routed_ms)
        del self._worst[oldest.stream]
        self._until_ms = max(self._until_ms, oldest.routed_ms)
