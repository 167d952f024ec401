"""A forwarder to a port that can reset all its connections at once, like a forgetful firewall."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Iterator

# SO_LINGER with these values makes closing send RST instead of FIN.
_ABORT = struct.pack("ii", 1, 0)


class ResettingWay:
    """A forwarder of connections to ``port`` of loopback, in threads; :attr:`port` is its own."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []

    def reset(self) -> int:
        """Reset both ends of every connection; return the number of ends."""
        with self._lock:
            ends, self._open = self._open, []
        for end in ends:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
            # Not close(): a thread reads from the socket, and would keep it open.
            os.close(end.detach())
        return len(ends)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                with self._lock:
                    self._open += (near, far)
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=_carry, args=(one, other), daemon=True).start()

    @contextlib.contextmanager
    def running(self) -> Iterator[ResettingWay]:
        """Accept connections until the context ends; then reset them."""
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            yield self
        finally:
            # This also wakes the accepting thread.
            self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
            self.reset()


def _carry(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65_536):
            other.sendall(data)
    for end in (one, other):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
