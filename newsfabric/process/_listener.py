"""A listening socket that survives the exhaustion of file descriptors.

Tornado would retry accept at once, for ever, and log each time. With one descriptor in reserve, new
connections are accepted and closed: the queue empties, without a busy loop.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Any, Final

from tornado.ioloop import IOLoop

_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)
# accept(2): the kernel is out of memory. Accepting pauses for this time (s), and connections wait.
_NO_MEMORY: Final = (errno.ENOBUFS, errno.ENOMEM)
_PAUSE: Final = 0.1


class SpareListener(socket.socket):
    """A listening socket that replaces ``of``. Belongs to the loop that Tornado accepts on."""

    def __init__(self, of: socket.socket) -> None:
        super().__init__(fileno=of.detach())
        self._spare = _spare()
        self._resume: object | None = None

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept as :meth:`socket.socket.accept`; ConnectionAbortedError for a refused connection,
        BlockingIOError if the kernel has no memory for it: Tornado retries after a pause.
        """
        try:
            return super().accept()
        except OSError as exc:
            if exc.errno in _NO_MEMORY:
                self._pause()
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
        """Close as :meth:`socket.socket.close`."""
        if self._resume is not None:
            IOLoop.current().remove_timeout(self._resume)
        self._give_back()
        super().close()

    def _pause(self) -> None:
        # Not a sleep: other work on this loop continues.
        loop = IOLoop.current()
        loop.update_handler(self, 0)
        self._resume = loop.call_later(_PAUSE, loop.update_handler, self, IOLoop.READ)

    def _give_back(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None


def _spare() -> int | None:
    """Return a descriptor in reserve; None while the machine has none left, which is retried."""
    try:
        return os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return None
