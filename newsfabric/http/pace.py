"""How often each address may ask: token buckets, as many as there is room for. Pure.

When there is no room for another address the one that was silent for longest is forgotten, and
begins anew if it comes again. Who has that many addresses gets more than others; what everybody
together may cost is bounded elsewhere.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Final

from newsfabric.http.networks import Network, parse_address, place_of

# Some 20 MB.
MOST_ADDRESSES: Final = 65_536
# The bucket of all that is no address.
_NOBODY: Final = b""


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
        # What is left of each place's burst and since when, the longest silent first.
        self._left: collections.OrderedDict[bytes, tuple[float, float]] = collections.OrderedDict()

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

    def _who(self, address: str) -> bytes | None:
        """Whose bucket it is; None for those who need none."""
        try:
            found = parse_address(address)
        except ValueError:
            return _NOBODY
        if any(found in network for network in self._free):
            return None
        return place_of(found)
