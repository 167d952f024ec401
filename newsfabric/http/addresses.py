"""How many connections, or sessions, each place (:mod:`newsfabric.http.networks`) has. Pure."""

from __future__ import annotations

from collections import Counter

from newsfabric.http.networks import parse_address, place_of


class Addresses:
    """Connections by place; ``most`` of one place, any number with 0."""

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._counts: Counter[bytes] = Counter()

    def enter(self, address: str) -> bool:
        """Count one more, if there may be one more; ValueError if it is no address."""
        if not self.has_room(address):
            return False
        self._counts[place_of(parse_address(address))] += 1
        return True

    def has_room(self, address: str) -> bool:
        """Whether there may be one more; ValueError if it is no address."""
        # A counter that is asked keeps nothing.
        return not self._most or self._counts[place_of(parse_address(address))] < self._most

    def leave(self, address: str) -> None:
        """A connection that :meth:`enter` has let in is closed. Once for each."""
        place = place_of(parse_address(address))
        self._counts[place] -= 1
        if not self._counts[place]:
            del self._counts[place]
