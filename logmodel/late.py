"""Late messages: a gateway may have forgotten that it gave a copy of them.

Pure. A gateway remembers for IDENTITY_WINDOW the messages it gave to readers. Copies of one message
are numbered up to APART from each other. So when a copy arrives that is older than the difference,
another copy may have been given so long ago that it is forgotten. Therefore other copies are
looked up in every region before this one is offered.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.logs.logs import Logs
from gateway.past.late import is_ahead, span_of
from logmodel.rows import Copy
from newsfabric.topology.times import TIMES


class LateMessages:
    """The rules for looking up other copies, and for using the result."""

    #: Two minutes: 900 - 750 - 30.
    after = TIMES.late_ms / 1000

    def is_late(self, routed_at: float, now: float) -> bool:
        """Return whether a message is so old that it must be looked up before it is offered."""
        return now - routed_at > self.after

    def is_ahead(self, routed_at: float, reached: float) -> bool:
        """Return whether a message's age can't be known yet: the project's own rule."""
        return is_ahead(int(routed_at * 1000), int(reached * 1000))

    def span(self, routed_at: float, spread_ms: int) -> tuple[int, int]:
        """Return the first and last time, in ms, that its copies can have: the project's rule."""
        return span_of([int(routed_at * 1000)], spread_ms)

    def was_given(self, copy: Copy, others: Iterable[Copy], logs: Logs) -> bool:
        """Return whether one of ``others`` was given to readers here, or was past at the start."""
        return any(other != copy and logs.was_given(*other) for other in others)
