"""A process that has run out of descriptors: this one."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator


class Descriptors:
    """How many this process may have: a few, or no more than it has."""

    def __init__(self, limit: tuple[int, int]) -> None:
        self._limit = limit

    @classmethod
    @contextlib.contextmanager
    def bounded(cls) -> Iterator[Descriptors]:
        """At most 256 of them, until the end of the context."""
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        bounded = cls((min(256, before[0]), before[1]))
        bounded.give_back()
        try:
            yield bounded
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)

    def take_all(self) -> None:
        """None can be had from now on.

        The limit is lowered, and not all are opened: what the garbage collector closes
        meanwhile would be free again.
        """
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, self._limit[1]))

    def give_back(self) -> None:
        """They can be had again."""
        resource.setrlimit(resource.RLIMIT_NOFILE, self._limit)
