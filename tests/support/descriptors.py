"""Tests' own process with no file descriptors left."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator


class Descriptors:
    """The limit of this process's file descriptors, and two ways to have none left: see each."""

    def __init__(self, limit: tuple[int, int]) -> None:
        self._limit = limit
        self._taken: list[int] = []

    @classmethod
    @contextlib.contextmanager
    def bounded(cls) -> Iterator[Descriptors]:
        """Allow at most 256 until the end of the context."""
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        bounded = cls((min(256, before[0]), before[1]))
        bounded.give_back()
        try:
            yield bounded
        finally:
            bounded.give_back()
            resource.setrlimit(resource.RLIMIT_NOFILE, before)

    def take_all(self) -> None:
        """Open all descriptors that are left: a closed one can be opened again."""
        with contextlib.suppress(OSError):
            while True:
                self._taken.append(os.open(os.devnull, os.O_RDONLY))

    def allow_none(self) -> None:
        """Allow no further descriptor, even if others are closed."""
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, self._limit[1]))

    def give_back(self) -> None:
        """Let descriptors be opened again."""
        while self._taken:
            os.close(self._taken.pop())
        resource.setrlimit(resource.RLIMIT_NOFILE, self._limit)
