"""How often each address may ask: token buckets, as many as there is room for. Pure.

When there is no room for another address the one that was silent for longest is forgotten, and
begins anew if it comes again. Who has that many addresses gets more than others; what everybody
together may cost is bounded elsewhere.
"""

from __future__ import annotations

import collections
import dataclasses
import ipaddress
from collections.abc import Sequence
from typing import Final

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Some 20 MB.
MOST_ADDRESSES: Final = 65_536
# Who has an IPv6 address has a whole network of them.
_IPV6_PREFIX: Final = 64


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """``burst`` requests at once, then ``per_second``."""

    burst: int
    per_second: float

    def __post_init__(self) -> None:
        if self.burst < 1 or self.per_second <= 0:
            raise ValueError("burst must be 1 or more, per_second above 0")


#: What one address may ask of ``/history``: each question may read the store for seconds.
HISTORY_RATE: Final = Rate(burst=100, per_second=5.0)


class Pace:
    """Who may ask now, at ``rate`` each. ``free`` networks may ask at any rate."""

    def __init__(
        self, rate: Rate, *, free: Sequence[Network] = (), most: int = MOST_ADDRESSES
    ) -> None:
        self._rate = rate
        self._free = tuple(free)
        self._most = most
        # What is left of each one's burst and since when, the longest silent first.
        self._left: collections.OrderedDict[str, tuple[float, float]] = collections.OrderedDict()

    def __len__(self) -> int:
        """How many addresses are remembered."""
        return len(self._left)

    def ask(self, address: str, now: float) -> float:
        """0 if ``address`` may ask now, which counts; else the seconds until it may."""
        who = self._who(address)
        if who is None:
            return 0.0
        left, at = self._left.pop(who, (float(self._rate.burst), now))
        left = min(self._rate.burst, left + (now - at) * self._rate.per_second)
        wait = max(0.0, (1.0 - left) / self._rate.per_second)
        self._left[who] = (left if wait else left - 1.0, now)
        if len(self._left) > self._most:
            self._left.popitem(last=False)
        return wait

    def _who(self, address: str) -> str | None:
        """Whose bucket it is; None for those who need none. What is no address has one together."""
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return ""
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        if any(found in network for network in self._free):
            return None
        if isinstance(found, ipaddress.IPv4Address):
            return str(found)
        return str(ipaddress.IPv6Network((int(found), _IPV6_PREFIX), strict=False).network_address)
