"""Many readers on plain sockets that do the least a reader can: connect, send verbs, never read."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any

PATIENCE = 60.0
_HANDSHAKE = (
    b"GET /websocket HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Crowd:
    """Readers connected to ``port``."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._sockets: list[socket.socket] = []

    @classmethod
    @contextlib.contextmanager
    def at(cls, port: int) -> Iterator[Crowd]:
        """Make a crowd; at the end, reset the connections that are left."""
        crowd = cls(port)
        try:
            yield crowd
        finally:
            crowd.reset()

    def come(self, count: int, *verbs: Mapping[str, Any], receive_buffer: int = 0) -> None:
        """Connect ``count`` more, each of which sends ``verbs``; refused ones stay in the crowd."""
        for _ in range(count):
            sock = self._knock(receive_buffer)
            sock.sendall(b"".join(map(_frame, verbs)))

    def knock(self, count: int) -> None:
        """Connect ``count`` more, and wait for no answer."""
        for _ in range(count):
            self._open(0)

    def reset(self) -> None:
        """Reset all connections at once, as after a network failure."""
        for sock in self._sockets:
            linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            sock.close()
        self._sockets.clear()

    def _knock(self, receive_buffer: int) -> socket.socket:
        sock = self._open(receive_buffer)
        sock.sendall(_HANDSHAKE)
        # The head of the HTTP answer: the gateway sends no more before a reader's first verb.
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += sock.recv(1)
        return sock

    def _open(self, receive_buffer: int) -> socket.socket:
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(PATIENCE)
        sock.connect(("127.0.0.1", self._port))
        self._sockets.append(sock)
        return sock


def _frame(verb: Mapping[str, Any]) -> bytes:
    """Encode a text frame with a mask of zeros."""
    text = json.dumps(verb).encode()
    assert len(text) < 126
    return bytes((0x81, 0x80 | len(text))) + bytes(4) + text
