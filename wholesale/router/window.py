"""What this router has routed lately: identity → when, and a fingerprint of what.

Bounded by age and by number, oldest out; owns no clock. It isn't the last word on repeats: another
router has its own window, so gateways drop copies by identity as well.

Ages go by a clock that only goes on, not by the time in the id: a machine's clock that jumps
forward would else empty the window, and one that is set back would keep everything for longer.
"""

from __future__ import annotations

import collections
from typing import Final, NamedTuple

from newsfabric.messages.envelope import MAX_MS

# As long as gateways: a copy may be twelve minutes on its way.
KEEP_MS: Final = 15 * 60 * 1000
# 160 bytes each, so 250 MB at the bound, which is reached from 1,722 messages/s on. At 10,000/s,
# more than one router manages with Cassandra, they last for 155 s: longer than the 150 s for which
# a queue holds a copy back.
MOST: Final = 1_550_000
# What is remembered of a hash of topic and body.
FINGERPRINT: Final = (1 << 32) - 1
_MS_AT: Final = FINGERPRINT.bit_length()
_SINCE_AT: Final = _MS_AT + MAX_MS.bit_length()


class Routed(NamedTuple):
    """One message that was routed: the time in its id (ms), and a hash of its topic and body.

    Of that the bits of :data:`FINGERPRINT` are remembered.
    """

    router_ms: int
    fingerprint: int


class Window:
    """Identities routed in the last ``keep_ms``, at most ``most`` of them; both are 1 or more.

    ``now`` is in seconds, and monotonic. ``evicted_early`` counts those that had to go before their
    time.
    """

    def __init__(self, *, keep_ms: int = KEEP_MS, most: int = MOST) -> None:
        if keep_ms < 1 or most < 1:
            raise ValueError("keep_ms and most must be positive")
        self._keep_ms = keep_ms
        self._most = most
        self.evicted_early = 0
        # When it was added and both parts of a Routed in one number, and the order beside: half of
        # what tuples in an OrderedDict take. Up to 34 years after the boot such a number has four
        # digits of CPython's, and takes as much as one of three would.
        self._routed: dict[int, int] = {}
        self._order: collections.deque[int] = collections.deque()

    def __len__(self) -> int:
        return len(self._routed)

    def find(self, identity: int, *, now: float) -> Routed | None:
        """What was routed as ``identity``, None if nothing was or it is too long ago."""
        packed = self._routed.get(identity)
        if packed is None or self._is_old(packed, now):
            return None
        return Routed(packed >> _MS_AT & MAX_MS, packed & FINGERPRINT)

    def add(self, identity: int, routed: Routed, *, now: float) -> None:
        """Remember ``identity`` as routed now; drop what is too old or one too many."""
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
