"""What truly happened in a history. The checks read it; routers, gateways and readers never do."""

from __future__ import annotations

import collections

from newsfabric.store.logs import Log
from tests.logmodel.rows import Copy


class InvariantBroken(Exception):
    """A history broke an invariant. ``invariant`` is L1 to L5, ``what`` says how."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant
        self.what = what


class Book:
    """Every number and message, and how often things happened."""

    def __init__(self) -> None:
        #: When a message counted as routed for the first time, and its topic.
        self.routed: dict[int, tuple[float, str]] = {}
        self.identity_of: dict[Copy, int] = {}
        self.copies: dict[int, list[Copy]] = {}
        self.published: set[Copy] = set()
        #: The numbers that were confirmed to a publisher.
        self.receipts: dict[int, list[Copy]] = {}
        #: What a gateway had offered that told a reader ``recovered: true`` without it, and the
        #: reader's topic. If it turns out to be a message, that was wrong.
        self.withheld: dict[tuple[Copy, str], None] = {}
        self.counts: collections.Counter[str] = collections.Counter()

    def numbered(self, identity: int, copy: Copy) -> None:
        self.identity_of[copy] = identity
        self.copies.setdefault(identity, []).append(copy)

    def is_routed(self, identity: int, topic: str, now: float) -> None:
        """From now on it is owed to whoever is connected."""
        self.routed.setdefault(identity, (now, topic))

    def receipt(self, identity: int, copy: Copy) -> None:
        self.receipts.setdefault(identity, []).append(copy)

    def concluded(self, log: Log, by_region: str) -> None:
        """Somebody of ``by_region`` ended this log."""
        self.counts["closed"] += 1
        if log.region != by_region:
            raise InvariantBroken("L5", f"{by_region} closed the log {log.router} of {log.region}")
