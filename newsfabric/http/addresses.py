"""Counts of the connections, or sessions, of each place (:mod:`newsfabric.http.networks`). Pure."""

from __future__ import annotations

from collections import Counter

from newsfabric.http.networks import parse_address, place_of


class Addresses:
    """Connections by place; at most ``most`` of one place, any number with 0."""

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._counts: Counter[bytes] = Counter()

    def enter(self, address: str) -> bool:
        """Count one more, if there is room; ValueError if ``address`` is no address."""
        if not self.has_room(address):
            return False
        self._counts[place_of(parse_address(address))] += 1
        return True

    def has_room(self, address: str) -> bool:
        """Return whether there is room for one more; ValueError if ``address`` is no address."""
        # To read a Counter's key stores nothing.
        return not self._most or self._counts[place_of(parse_address(address))] < self._most

    def leave(self, address: str) -> None:
        """Note the end of a connection that :meth:`enter` has counted. Once for each."""
        place = place_of(parse_address(address))
        self._counts[place] -= 1
        if not self._counts[place]:
            del self._counts[place]
