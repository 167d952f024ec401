"""Messages that come so late that a gateway may have forgotten that it gave a copy of them.

Pure. A gateway knows for IDENTITY_WINDOW which messages it gave to readers. Copies of one message
are numbered up to APART from each other. So when a copy older than the difference comes, another
one may have been given so long ago that nobody here remembers. Before it is offered, other copies
are looked up in every region.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.late import is_ahead, span_of
from gateway.logs import Logs
from newsfabric.topology.times import TIMES
from tests.logmodel.rows import Copy


class LateMessages:
    """When other copies are looked up, and what follows from them."""

    #: Two minutes: 900 - 750 - 30.
    after = TIMES.late_ms / 1000

    def is_late(self, routed_at: float, now: float) -> bool:
        """Whether it must be looked up before it is offered."""
        return now - routed_at > self.after

    def is_ahead(self, routed_at: float, reached: float) -> bool:
        """Whether nobody knows yet how old it is: the project's own."""
        return is_ahead(int(routed_at * 1000), int(reached * 1000))

    def span(self, routed_at: float, spread_ms: int) -> tuple[int, int]:
        """First and last time, in ms, that its copies can have: the project's own."""
        return span_of([int(routed_at * 1000)], spread_ms)

    def was_given(self, copy: Copy, others: Iterable[Copy], logs: Logs) -> bool:
        """Whether one of the ``others`` was given to readers here or was past at the start."""
        return any(other != copy and logs.gave(*other) for other in others)
