"""Messages that come so late that a gateway may have forgotten that it gave a copy of them.

Pure. A gateway knows for IDENTITY_WINDOW which messages it gave to readers. Copies of one message
are numbered up to APART from each other. So when a copy older than the difference comes, another
one may have been given so long ago that nobody here remembers. Before it is offered, other copies
are looked up in every region.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gateway.known_log import KnownLog
from newsfabric.store.logs import Log

from .rows import Copy
from .settings import APART, CLOCKS, IDENTITY_WINDOW


class LateMessages:
    """When other copies are looked up, and what follows from them."""

    #: Two minutes: 900 - 750 - 30.
    after = IDENTITY_WINDOW - APART - CLOCKS

    def is_late(self, routed_at: float, now: float) -> bool:
        """Whether it must be looked up before it is offered."""
        return now - routed_at > self.after

    def was_given(self, copy: Copy, others: Iterable[Copy], logs: Mapping[Log, KnownLog]) -> bool:
        """Whether one of the ``others`` was given to readers here or was past at the start."""
        for other in others:
            if other != copy:
                known = logs.get(other[0])
                if known is not None and known.gave(other[1]):
                    return True
        return False
