"""Rereading hours of the journal bit by bit: what a region routed while it was cut off. Pure.

A gap is read in one go, because it is short. After a cut of minutes or hours millions of rows may
have to be looked at, while readers are served and other holes mended. So a sweep goes on by a page
at a time, and keeps its place when a read fails.

What is older than the window of identities can't be offered to the hub just so: a copy of it may
have come another way, and be forgotten. So each **slice** of the time is read up to three times.
First for what is missing in it (mostly nothing, and that was all); then, with as much before and
after as copies of one message may be apart, for copies of these that readers have been given; then
the rest is published. A slice ends after ten minutes, or when as much is missing in it as the
hub remembers identities.

The decision that one would question: a sweep is repeated until as much time as it covers has passed
since. A store that was cut off too gets its rows from the other region by and by, and nobody says
when it has all of them; until then nothing of that time is concluded from what isn't there.
"""

from __future__ import annotations

import enum
import math
from typing import Final, NamedTuple

# Of what was cut off, this much may be there already; and a store is behind by so much anyway.
LATE_MS: Final = 60_000
SLICE_MS: Final = 600_000
# Copies of one message are routed within 740 s (docs/guarantees.md, S4), by clocks that differ.
_APART_MS: Final = 900_000
_MISSING: Final = 500_000
_FIRST_SECONDS: Final = 1.0


class Span(NamedTuple):
    """Times in ms by routers' clocks: from the first on, before the last."""

    from_ms: int
    to_ms: int


class Phase(enum.Enum):
    """What a slice is read for."""

    MISSING = enum.auto()
    COPIES = enum.auto()
    PUBLISH = enum.auto()


class Sweep:
    """One sweep over ``span``, from ``now`` on (monotonic, in seconds), in several rounds.

    When it is :attr:`due`, read some of :meth:`part` of the journal. Note what is found in
    :attr:`missing` or :attr:`copies`, or publish it, as :attr:`phase` says; then call
    :meth:`reached`.
    """

    def __init__(self, span: Span, now: float) -> None:
        self.span = span
        self.due = now + _FIRST_SECONDS
        # Whether the last round is over.
        self.done = False
        self.phase = Phase.MISSING
        # Identities of the slice: those that are missing, and those of which another copy came.
        self.missing: set[int] = set()
        self.copies: set[int] = set()
        self._began = now
        self._last_due = now + (span.to_ms - span.from_ms + LATE_MS) / 1000
        self._slice = _first_slice(span)
        self._at_ms = span.from_ms

    def part(self) -> Span:
        """What to read now, or the beginning of it."""
        return Span(self._at_ms, self._end_ms())

    def overlaps(self, span: Span) -> bool:
        """Whether what was routed in ``span`` may be found yet."""
        return span.from_ms < self.span.to_ms and self.span.from_ms <= span.to_ms

    def holds(self, span: Span) -> bool:
        """Whether ``span`` is within this one."""
        return self.span.from_ms <= span.from_ms and span.to_ms <= self.span.to_ms

    def reached(self, at_ms: int, now: float) -> None:
        """Everything before ``at_ms`` was read."""
        from_ms, to_ms = self._slice
        self._at_ms = max(self._at_ms, at_ms)
        if self.phase is Phase.MISSING and len(self.missing) >= _MISSING and from_ms < at_ms:
            self._slice = Span(from_ms, min(to_ms, at_ms))
        if self._at_ms < self._end_ms():
            return
        if self.phase is Phase.MISSING and self.missing:
            self.phase, self._at_ms = Phase.COPIES, max(0, from_ms - _APART_MS)
        elif self.phase is Phase.COPIES:
            self.phase, self._at_ms = Phase.PUBLISH, from_ms
        else:
            self._end_slice(now)

    def _end_ms(self) -> int:
        return self._slice.to_ms + (_APART_MS if self.phase is Phase.COPIES else 0)

    def _end_slice(self, now: float) -> None:
        self.phase, self._at_ms = Phase.MISSING, self._slice.to_ms
        self.missing.clear()
        self.copies.clear()
        self._slice = _first_slice(Span(self._at_ms, self.span.to_ms))
        if self._at_ms < self.span.to_ms:
            return
        self._slice = _first_slice(self.span)
        self._at_ms = self.span.from_ms
        self.done = self.due >= self._last_due
        # Half of what comes by and by has come when as much time again has passed.
        passed = max(LATE_MS / 1000, now - self._began)
        next_ = min(now + passed, max(now, self._last_due))
        self.due = math.inf if self.done else next_


def _first_slice(span: Span) -> Span:
    return Span(span.from_ms, min(span.to_ms, span.from_ms + SLICE_MS))
