"""Rate limits of requests by address: token buckets, in bounded number. Pure.

When there is no room for another address, the one that was silent for longest is forgotten, and
gets a full bucket if it returns. A client with that many addresses gets more than others; the total
cost of all clients is bounded elsewhere.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Final

from newsfabric.http.networks import Network, parse_address, place_of

# Some 20 MB.
MOST_ADDRESSES: Final = 65_536
# The bucket of all texts that are no address.
_NOBODY: Final = b""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """``burst`` requests at once, then ``per_second``."""

    burst: int
    per_second: float

    def __post_init__(self) -> None:
        if self.burst < 1 or self.per_second <= 0:
            raise ValueError("burst must be 1 or more, per_second above 0")


#: Limit of one address for ``/history``: each request may read the store for seconds.
HISTORY_RATE: Final = Rate(burst=100, per_second=5.0)


class RateLimit:
    """A rate limit: each address may ask at ``rate``, ``free`` networks at any rate."""

    def __init__(
        self, rate: Rate, *, free: Sequence[Network] = (), most: int = MOST_ADDRESSES
    ) -> None:
        self._rate = rate
        self._free = tuple(free)
        self._most = most
        # Tokens left of each place and the time of that count, the longest silent first.
        self._left: collections.OrderedDict[bytes, tuple[float, float]] = collections.OrderedDict()

    def __len__(self) -> int:
        """Return the number of remembered addresses."""
        return len(self._left)

    def seconds_to_wait(self, address: str, now: float) -> float:
        """Return 0 if ``address`` may ask now, and count that; else the seconds until it may."""
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

    def _who(self, address: str) -> bytes | None:
        """Return the key of the bucket of ``address``; None for free networks."""
        try:
            found = parse_address(address)
        except ValueError:
            return _NOBODY
        if any(found in network for network in self._free):
            return None
        return place_of(found)
