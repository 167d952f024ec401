"""A process that has run out of descriptors: this one."""

from __future__ import annotations

import contextlib
import gc
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
        """Open all that there are; what others close from now on can be had again."""
        # Sockets that earlier tests have left would be closed in the middle of this one.
        gc.collect()
        gc.disable()
        with contextlib.suppress(OSError):
            while True:
                self._taken.append(os.open(os.devnull, os.O_RDONLY))

    def give_back(self) -> None:
        """Close them."""
        gc.enable()
        while self._taken:
            os.close(self._taken.pop())
