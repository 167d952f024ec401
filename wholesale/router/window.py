"""The messages routed lately: identity → time, and a fingerprint of topic and body.

The window is bounded by age and by number; the oldest are dropped first. It owns no clock, and
doesn't find all repeats: another router has its own window, so gateways drop copies by identity
too.

Ages are measured by a monotonic clock, not by the time in the id: otherwise a machine's clock that
jumps forward would empty the window, and one that is set back would prolong it.
"""

from __future__ import annotations

import collections
from typing import Final, NamedTuple

from newsfabric.messages.envelope import MAX_MS
from newsfabric.topology.times import TIMES

# As long as in gateways: a copy may be under way for twelve minutes.
KEEP_MS: Final = TIMES.identity_ms
# 160 bytes each, so 250 MB at the bound, which is reached from 1,722 messages/s on. At 10,000/s,
# more than one router manages with Cassandra, an identity is kept for 155 s: longer than the 150 s
# for which a queue holds a copy back.
MOST: Final = 1_550_000
# The bits that are kept of a hash of topic and body.
FINGERPRINT: Final = (1 << 32) - 1
_MS_AT: Final = FINGERPRINT.bit_length()
_SINCE_AT: Final = _MS_AT + MAX_MS.bit_length()


class Routed(NamedTuple):
    """A routed message: the time in its id (ms), and a hash of its topic and body.

    Only the bits of :data:`FINGERPRINT` are kept of the hash.
    """

    router_ms: int
    fingerprint: int


class IdentityWindow:
    """Identities routed in the last ``keep_ms``, at most ``most`` of them; both are 1 or more.

    ``now`` is in seconds, and monotonic. ``evicted_early`` counts identities that were dropped
    before their time.
    """

    def __init__(self, *, keep_ms: int = KEEP_MS, most: int = MOST) -> None:
        if keep_ms < 1 or most < 1:
            raise ValueError("keep_ms and most must be positive")
        self._keep_ms = keep_ms
        self._most = most
        self.evicted_early = 0
        # One number holds the time of adding and both parts of a Routed; a deque holds the order.
        # That is half the memory of tuples in an OrderedDict. Until 34 years after the boot such a
        # number has four digits of CPython's, and takes as much memory as one of three digits.
        self._routed: dict[int, int] = {}
        self._order: collections.deque[int] = collections.deque()

    def __len__(self) -> int:
        return len(self._routed)

    def find(self, identity: int, *, now: float) -> Routed | None:
        """Return the message routed as ``identity``; None if there was none, or too long ago."""
        packed = self._routed.get(identity)
        if packed is None or self._is_old(packed, now):
            return None
        return Routed(packed >> _MS_AT & MAX_MS, packed & FINGERPRINT)

    def add(self, identity: int, routed: Routed, *, now: float) -> None:
        """Remember ``identity`` as routed now; drop the oldest ones beyond age or number."""
        while self._order and self._is_old(self._routed[self._order[0]], now):
            del self._routed[self._order.popleft()]
        if identity not in self._routed:
            self._order.append(identity)
        what = routed.router_ms << _MS_AT | routed.fingerprint & FINGERPRINT
        self._routed[identity] = int(now * 1000) << _SINCE_AT | what
        if len(self._routed) > self._most:
            del self._routed[self._order.popleft()]
            self.evicted_early += 1

    def _is_old(self, packed: int, now: float) -> bool:
        return (packed >> _SINCE_AT) + self._keep_ms <= int(now * 1000)
