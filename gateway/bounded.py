"""What is kept, replayed or read is bounded in bytes: a map, and the newest of a list that fit."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")
Item = TypeVar("Item")


class BoundedMap(Generic[Key, Value]):
    """At most ``most`` entries of ``most_bytes`` together: what was set longest ago goes first.

    The last entry always stays, whatever it weighs. Example, with ``most_bytes`` 10: ``set("a", x,
    6)``, then ``set("b", y, 6)`` forgets "a", and ``set("c", z, 20)`` leaves "c" alone.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self.bytes = 0
        self._most = most
        self._most_bytes = most_bytes
        self._entries: collections.OrderedDict[Key, tuple[Value, int]] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Value | None:
        """What ``key`` was set to, else None. That makes it no younger (:meth:`touch`)."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def touch(self, key: Key) -> None:
        """``key``, which is kept, is as young as if it had been set now."""
        self._entries.move_to_end(key)

    def set(self, key: Key, value: Value, weight: int) -> None:
        """Keep ``value``, which has ``weight`` bytes."""
        self.drop(key)
        self._entries[key] = value, weight
        self.bytes += weight
        while len(self._entries) > 1 and (
            len(self._entries) > self._most or self.bytes > self._most_bytes
        ):
            self.drop(next(iter(self._entries)))

    def drop(self, key: Key) -> None:
        """Forget ``key``. Nothing happens if it isn't kept."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.bytes -= entry[1]

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self.bytes = 0


def newest_that_fit(items: Sequence[Item], size: Callable[[Item], int], most: int) -> list[Item]:
    """The last of ``items`` (oldest first) that have ``most`` bytes together, at most."""
    start = len(items)
    while start > 0 and (most := most - size(items[start - 1])) >= 0:
        start -= 1
    return list(items[start:])
