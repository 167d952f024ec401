"""As many as fit: what is replayed, read or kept is bounded in bytes, and the newest count most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def newest_that_fit(items: Sequence[Item], size: Callable[[Item], int], most: int) -> list[Item]:
    """The last of ``items`` (oldest first) that have ``most`` bytes together, at most."""
    start = len(items)
    while start > 0:
        most -= size(items[start - 1])
        if most < 0:
            break
        start -= 1
    return list(items[start:])
