"""The part of AMQP 1.0 that an attack needs: log in, begin a session, attach links, send a request.

Types are those of part 1 of the standard, performatives those of part 2. Replies aren't decoded:
a test asks the broker itself for the effect.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

TIMEOUT: Final = 10.0
_SASL: Final = b"AMQP\x03\x01\x00\x00"
_AMQP: Final = b"AMQP\x00\x01\x00\x00"
NULL: Final = b"\x40"
TRUE: Final = b"\x41"
FALSE: Final = b"\x42"
# Descriptors.
_OPEN, _BEGIN, _ATTACH, _TRANSFER, _END, _CLOSE = 0x10, 0x11, 0x12, 0x14, 0x17, 0x18
_SOURCE, _TARGET = 0x28, 0x29
_PROPERTIES, _VALUE = 0x73, 0x77


class Ended(Exception):
    """The broker has closed the connection."""


def uint(value: int) -> bytes:
    return b"\x70" + struct.pack(">I", value)


def ubyte(value: int) -> bytes:
    return b"\x50" + bytes([value])


def text(value: str) -> bytes:
    data = value.encode()
    return b"\xb1" + struct.pack(">I", len(data)) + data


def symbol(value: str) -> bytes:
    data = value.encode()
    return b"\xb3" + struct.pack(">I", len(data)) + data


def binary(data: bytes) -> bytes:
    return b"\xb0" + struct.pack(">I", len(data)) + data


def array(*symbols: str) -> bytes:
    items = b"".join(symbol(each)[1:] for each in symbols)
    return b"\xf0" + struct.pack(">II", len(items) + 5, len(symbols)) + b"\xb3" + items


def pairs(items: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Encode a map."""
    data = b"".join(key + value for key, value in items)
    return b"\xd1" + struct.pack(">II", len(data) + 4, 2 * len(items)) + data


def described(descriptor: int, *fields: bytes) -> bytes:
    data = b"".join(fields)
    listed = b"\xd0" + struct.pack(">II", len(data) + 4, len(fields)) + data
    return b"\x00\x53" + bytes([descriptor]) + listed


def source(address: bytes = NULL, *, filters: bytes = NULL, dynamic: str = "") -> bytes:
    """Encode a source; ``dynamic`` is the capability of a node that the broker is to create."""
    if dynamic:
        fields = (NULL, NULL, symbol("link-detach"), NULL, TRUE, NULL, NULL, NULL, NULL, NULL)
        return described(_SOURCE, *fields, array(dynamic))
    return described(_SOURCE, address, NULL, NULL, NULL, NULL, NULL, NULL, filters)


def target(address: bytes = NULL) -> bytes:
    return described(_TARGET, address)


class Amqp10Connection:
    """A connection of ``user``: a context manager. :class:`Ended` if the broker ends it."""

    def __init__(self, port: int, user: str, password: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
        self._sessions = 0
        self._handles: dict[int, int] = {}
        try:
            self._log_in(user, password)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def session(self) -> int:
        """Begin a session; return its channel."""
        channel = self._sessions
        self._sessions += 1
        self._handles[channel] = 0
        self._send(_BEGIN, NULL, uint(0), uint(100), uint(100), uint(0xFFFFFFFF), channel=channel)
        self._hear(_BEGIN)
        return channel

    def attach(
        self,
        channel: int,
        name: str,
        *,
        receives: bool,
        at: bytes,
        to: bytes,
        properties: bytes = NULL,
    ) -> bytes:
        """Attach a link from ``at`` to ``to``; return the frame that answers."""
        handle = self._handles[channel]
        self._handles[channel] += 1
        role = TRUE if receives else FALSE
        first = NULL if receives else uint(0)
        fields = (text(name), uint(handle), role, ubyte(1), ubyte(0), at, to, NULL, NULL, first)
        self._send(_ATTACH, *fields, NULL, NULL, NULL, properties, channel=channel)
        return self._hear(_ATTACH)

    def request(self, channel: int, method: str, path: str, body: bytes) -> bytes:
        """Send a request in one frame to the management node; return the frame that answers."""
        pair = {"properties": pairs([(symbol("paired"), TRUE)])}
        node = text("/management")
        self.attach(channel, "m", receives=False, at=source(text("/me")), to=target(node), **pair)
        self.attach(channel, "m", receives=True, at=source(node), to=target(text("/me")), **pair)
        flow = (uint(0), uint(100), uint(0), uint(100), uint(1), NULL, uint(10))
        self._send(0x13, *flow, channel=channel)
        annotations = (
            described(_PROPERTIES, uint_id(1), NULL, text(path), text(method), text("$me"))
            + b"\x00\x53"
            + bytes([_VALUE])
            + body
        )
        # RabbitMQ takes no request in several frames (seen with 4.3.6).
        head = (uint(0), uint(0), binary(b"0"), uint(0), TRUE, FALSE)
        self._send(_TRANSFER, *head, channel=channel, payload=annotations)
        return self._hear(_TRANSFER)

    def _log_in(self, user: str, password: str) -> None:
        self._socket.sendall(_SASL)
        self._exactly(8)
        self._frame()
        login = binary(f"\0{user}\0{password}".encode())
        self._send(0x41, symbol("PLAIN"), login, kind=1)
        self._frame()
        self._socket.sendall(_AMQP)
        self._exactly(8)
        self._send(_OPEN, text("me"), text("vhost:/"), uint(1 << 20))
        self._hear(_OPEN)

    def _send(
        self, descriptor: int, *fields: bytes, channel: int = 0, kind: int = 0, payload: bytes = b""
    ) -> None:
        body = described(descriptor, *fields) + payload
        try:
            self._socket.sendall(struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body)
        except OSError as exc:
            raise Ended(str(exc)) from exc

    def _hear(self, descriptor: int) -> bytes:
        """Return the next frame with this descriptor."""
        while True:
            frame = self._frame()
            if frame[:2] == b"\x00\x53":
                if frame[2] == descriptor:
                    return frame
                if frame[2] in (_END, _CLOSE):
                    raise Ended(repr(frame))

    def _frame(self) -> bytes:
        size, offset = struct.unpack(">IBxxx", self._exactly(8))
        body = self._exactly(size - 8)
        return body[4 * offset - 8 :]

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            try:
                data = self._socket.recv(count - len(found))
            except OSError as exc:
                raise Ended(str(exc)) from exc
            if not data:
                raise Ended("no more")
            found += data
        return found


def uint_id(value: int) -> bytes:
    """Encode a message id that is a number."""
    return b"\x80" + struct.pack(">Q", value)
