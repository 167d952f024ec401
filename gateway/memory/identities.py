"""The identities of messages seen lately, by which copies and repeats are dropped.

``now`` is in seconds of a monotonic clock. Identities are dropped in groups of ten seconds, which
costs one list for each group instead of one time for each identity. Above the limit, the oldest
group is dropped early. A repeat that arrives after that is taken for a new message, and readers'
libraries drop it.
"""

from __future__ import annotations

import collections
import math
from typing import Final

_GROUP_SECONDS: Final = 10.0


class SeenIdentities:
    """The identities of the last ``seconds`` (ten more, or until the next :meth:`add`), at most
    ``limit`` of them."""

    def __init__(self, *, seconds: float, limit: int) -> None:
        self._seconds = seconds
        self._limit = limit
        #: The number of identities dropped early, at the limit.
        self.evicted_early = 0
        self._seen: set[int] = set()
        # (start of the group's ten seconds, its identities), oldest first.
        self._groups: collections.deque[tuple[float, list[int]]] = collections.deque()

    def __len__(self) -> int:
        return len(self._seen)

    def __contains__(self, identity: int) -> bool:
        return identity in self._seen

    def add(self, identity: int, now: float) -> None:
        """Remember ``identity`` as seen at ``now``; do nothing if it is remembered already."""
        while self._groups and self._groups[0][0] + _GROUP_SECONDS + self._seconds <= now:
            self._forget_oldest()
        if identity in self._seen:
            return
        start = math.floor(now / _GROUP_SECONDS) * _GROUP_SECONDS
        if not self._groups or self._groups[-1][0] < start:
            self._groups.append((start, []))
        self._groups[-1][1].append(identity)
        self._seen.add(identity)
        if len(self._seen) > self._limit:
            self._evict()

    def _evict(self) -> None:
        if len(self._groups) == 1:
            # All within ten seconds: the older half is dropped.
            start, identities = self._groups.pop()
            half = max(1, len(identities) // 2)
            self._groups += (start, identities[:half]), (start, identities[half:])
        self.evicted_early += self._forget_oldest()

    def _forget_oldest(self) -> int:
        _, identities = self._groups.popleft()
        self._seen.difference_update(identities)
        return len(identities)
