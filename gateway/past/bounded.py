"""Bounds in bytes of kept, replayed or read messages: a map, and the newest items of a list."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")
Item = TypeVar("Item")


class BoundedMap(Generic[Key, Value]):
    """A map of at most ``most`` entries and ``most_bytes``: the oldest entry is dropped first.

    The newest entry always stays, whatever its weight. Example, with ``most_bytes`` 10: after
    ``set("a", x, 6)``, ``set("b", y, 6)`` drops "a"; ``set("c", z, 20)`` drops all but "c".
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self.bytes = 0
        self._most = most
        self._most_bytes = most_bytes
        self._entries: collections.OrderedDict[Key, tuple[Value, int]] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Value | None:
        """Return the value of ``key``, else None. Its age stays the same (see :meth:`touch`)."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def touch(self, key: Key) -> None:
        """Make the entry of ``key``, which must exist, the newest."""
        self._entries.move_to_end(key)

    def set(self, key: Key, value: Value, weight: int) -> None:
        """Set ``key`` to ``value`` of ``weight`` bytes, and drop old entries above the bounds."""
        self.drop(key)
        self._entries[key] = value, weight
        self.bytes += weight
        while len(self._entries) > 1 and (
            len(self._entries) > self._most or self.bytes > self._most_bytes
        ):
            self.drop(next(iter(self._entries)))

    def drop(self, key: Key) -> None:
        """Drop the entry of ``key``, if there is one."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.bytes -= entry[1]

    def clear(self) -> None:
        """Drop all entries."""
        self._entries.clear()
        self.bytes = 0


def newest_that_fit(items: Sequence[Item], size: Callable[[Item], int], most: int) -> list[Item]:
    """Return the last of ``items`` (oldest first) whose sizes sum to at most ``most``."""
    start = len(items)
    while start > 0 and (most := most - size(items[start - 1])) >= 0:
        start -= 1
    return list(items[start:])
