"""A listening socket that survives having no descriptors left.

Tornado would try to accept again at once, for ever, and log each time. With one descriptor in
reserve, who comes meanwhile is accepted and closed: the queue empties, and nothing spins.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Any, Final

from tornado.ioloop import IOLoop

_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)
# accept(2): the kernel is out of memory. Whoever waits goes on waiting for so many seconds.
_NO_MEMORY: Final = (errno.ENOBUFS, errno.ENOMEM)
_PAUSE: Final = 0.1


class SpareListener(socket.socket):
    """Takes over the listening socket ``of``. Belongs to the loop that Tornado accepts on."""

    def __init__(self, of: socket.socket) -> None:
        super().__init__(fileno=of.detach())
        self._spare = _spare()
        self._resume: object | None = None

    def accept(self) -> tuple[socket.socket, Any]:
        """As :meth:`socket.socket.accept`; ConnectionAbortedError for one that was turned away, and
        BlockingIOError where the kernel has no memory for it: then Tornado comes after a pause."""
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
        """As :meth:`socket.socket.close`."""
        if self._resume is not None:
            IOLoop.current().remove_timeout(self._resume)
        self._give_back()
        super().close()

    def _pause(self) -> None:
        # Not a sleep: all else on this loop goes on.
        loop = IOLoop.current()
        loop.update_handler(self, 0)
        self._resume = loop.call_later(_PAUSE, loop.update_handler, self, IOLoop.READ)

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
