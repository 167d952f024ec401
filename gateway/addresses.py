"""How many connections each reader's address has. Pure.

An IPv4 address counts by itself. Of IPv6 the first 64 bits count as one, because whoever has one
address there has 2^64 of them. The data plane counts alike (``addresses.rs``).
"""

from __future__ import annotations

import ipaddress
from collections import Counter


def place_of(address: str) -> bytes:
    """What ``address`` is counted under; ValueError if it is none."""
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        # On a socket for both families IPv4 looks like this.
        return parsed.ipv4_mapped.packed if parsed.ipv4_mapped else parsed.packed[:8]
    return parsed.packed


class Addresses:
    """Connections by place; ``most`` of one place, any number with 0."""

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._counts: Counter[bytes] = Counter()

    def enter(self, address: str) -> bool:
        """Count one more, if there may be one more."""
        place = place_of(address)
        if self._most and self._counts[place] >= self._most:
            return False
        self._counts[place] += 1
        return True

    def leave(self, address: str) -> None:
        """One that came in is closed."""
        place = place_of(address)
        self._counts[place] -= 1
        if not self._counts[place]:
            del self._counts[place]
