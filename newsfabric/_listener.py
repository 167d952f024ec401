"""A listening socket that survives having no descriptors left.

Tornado would try to accept again at once, for ever, and log each time. With one descriptor in
reserve, who comes meanwhile is accepted and closed: the queue empties, and nothing spins.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from typing import Any, Final

_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)
# accept(2): the kernel is out of memory, which is asked for again after a moment.
_NO_MEMORY: Final = (errno.ENOBUFS, errno.ENOMEM)
_PAUSE: Final = 0.01


class SpareListener(socket.socket):
    """Takes over the listening socket ``of``. Belongs to one thread."""

    def __init__(self, of: socket.socket) -> None:
        super().__init__(fileno=of.detach())
        self._spare = _spare()

    def accept(self) -> tuple[socket.socket, Any]:
        """As :meth:`socket.socket.accept`; ConnectionAbortedError for one that was turned away, and
        BlockingIOError after a moment where the kernel had no memory for it."""
        try:
            return super().accept()
        except OSError as exc:
            if exc.errno in _NO_MEMORY:
                time.sleep(_PAUSE)
                raise BlockingIOError(exc.errno, exc.strerror) from exc
            if exc.errno not in _EXHAUSTED:
                raise
            self._give_back()
            try:
                super().accept()[0].close()
            finally:
                self._spare = _spare()
            raise ConnectionAbortedError("no descriptor is left for it") from exc

    def close(self) -> None:
        """As :meth:`socket.socket.close`."""
        self._give_back()
        super().close()

    def _give_back(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None


def _spare() -> int | None:
    """A descriptor to hold; None while the whole machine has none left, which is tried again."""
    try:
        return os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return None
