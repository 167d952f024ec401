"""The true events of a history. Only the checks read it, never routers, gateways or readers."""

from __future__ import annotations

import collections

from logmodel.rows import Copy
from newsfabric.store.logs import Log


class InvariantBroken(Exception):
    """A history broke an invariant: ``invariant`` is L1 to L5, ``what`` the details."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant
        self.what = what


class Book:
    """Every number and message of a history, and counts of events."""

    def __init__(self) -> None:
        #: The time at which a message was first due to all connected readers, and its topic.
        self.routed: dict[int, tuple[float, str]] = {}
        self.identity_of: dict[Copy, int] = {}
        self.copies: dict[int, list[Copy]] = {}
        self.published: set[Copy] = set()
        #: The numbers that were confirmed to a publisher.
        self.receipts: dict[int, list[Copy]] = {}
        #: Copies already offered to a gateway that answered a reader ``recovered: true`` without
        #: them, and the reader's topic. If such a copy turns out to be a message, the reply was
        #: wrong.
        self.withheld: dict[tuple[Copy, str], None] = {}
        self.counts: collections.Counter[str] = collections.Counter()

    def numbered(self, identity: int, copy: Copy) -> None:
        self.identity_of[copy] = identity
        self.copies.setdefault(identity, []).append(copy)

    def is_routed(self, identity: int, topic: str, now: float) -> None:
        """Record that every connected reader must get the message from now on."""
        self.routed.setdefault(identity, (now, topic))

    def receipt(self, identity: int, copy: Copy) -> None:
        self.receipts.setdefault(identity, []).append(copy)

    def concluded(self, log: Log, by_region: str) -> None:
        """Record that a router of ``by_region`` ended this log; only its own region may (L5)."""
        self.counts["closed"] += 1
        if log.region != by_region:
            raise InvariantBroken("L5", f"{by_region} closed the log {log.router} of {log.region}")
