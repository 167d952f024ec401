"""What this router has routed lately: identity → when, and a fingerprint of what.

Bounded by age and by number, oldest out; owns no clock. It isn't the last word on repeats: another
router has its own window, so gateways drop copies by identity as well.
"""

from __future__ import annotations

import collections
from typing import Final, NamedTuple

# As long as gateways: a copy may be twelve minutes on its way.
KEEP_MS: Final = 15 * 60 * 1000
# About 250 bytes each: 60 MB at the bound, which is reached from 280 messages/s on.
MOST: Final = 250_000


class Routed(NamedTuple):
    """One message that was routed: the time in its id (ms), and its topic and body hashed."""

    router_ms: int
    fingerprint: int


class Window:
    """Identities routed in the last ``keep_ms``, at most ``most`` of them."""

    def __init__(self, *, keep_ms: int = KEEP_MS, most: int = MOST) -> None:
        if keep_ms < 1 or most < 1:
            raise ValueError("keep_ms and most must be positive")
        self._keep_ms = keep_ms
        self._most = most
        self._routed: collections.OrderedDict[int, Routed] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._routed)

    def find(self, identity: int, *, now_ms: int) -> Routed | None:
        """What was routed as ``identity``, None if nothing was or it is too long ago."""
        found = self._routed.get(identity)
        if found is None or found.router_ms + self._keep_ms <= now_ms:
            return None
        return found

    def add(self, identity: int, routed: Routed, *, now_ms: int) -> None:
        """Remember ``identity``; drop what is too old or one too many."""
        self._routed[identity] = routed
        self._routed.move_to_end(identity)
        while len(self._routed) > self._most or self._oldest_ms() + self._keep_ms <= now_ms:
            self._routed.popitem(last=False)
            if not self._routed:
                return

    def _oldest_ms(self) -> int:
        return next(iter(self._routed.values())).router_ms
