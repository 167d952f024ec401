"""A process that has run out of descriptors: this one."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator


class Descriptors:
    """All that this process may have, taken and given back."""

    def __init__(self) -> None:
        self._taken: list[int] = []

    @classmethod
    @contextlib.contextmanager
    def bounded(cls) -> Iterator[Descriptors]:
        """With a low limit, so that taking all is quick. All is given back at the end."""
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, limits[0]), limits[1]))
        taken = cls()
        try:
            yield taken
        finally:
            taken.give_back()
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    def take_all(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._taken.append(os.open(os.devnull, os.O_RDONLY))

    def give_back(self) -> None:
        while self._taken:
            os.close(self._taken.pop())
