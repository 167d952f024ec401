"""The WebSocket protocol without I/O: the opening handshake and the frames a reader sends.

Why not Tornado's ``WebSocketHandler``, which this engine's HTTP server comes from: it
aborts the connection under an over-long message, so that neither the ``disconnect`` push nor code
1009 arrive; it accepts close codes that RFC 6455 forbids; and each message it writes costs a
future and a task, which is most of a delivery's price.

No extension is offered. After :meth:`FrameParser.feed` has set ``violation`` the parser eats
nothing more; close with it.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Final

from gateway.frames import BINARY, CLOSE, PING, PONG, TEXT
from newsfabric.closing import INVALID_PAYLOAD, PROTOCOL_ERROR, TOO_BIG, CloseReason

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION: Final = 0x0
_KNOWN: Final = frozenset({_CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG})
# RFC 6455 section 7.4.1 and the IANA registry; 1004–1006 and 1015 must not be sent.
_CLOSE_CODES: Final = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})


def accept_key(headers: Mapping[str, str]) -> str | None:
    """``Sec-WebSocket-Accept`` for a handshake's headers (RFC 6455 section 4.2); None if bad.

    ``headers`` must find names whatever their case.
    """
    key = headers.get("Sec-WebSocket-Key", "")
    try:
        nonce = base64.b64decode(key, validate=True)
    except binascii.Error:
        return None
    upgrade = headers.get("Upgrade", "").lower() == "websocket"
    tokens = [token.strip().lower() for token in headers.get("Connection", "").split(",")]
    if len(nonce) != 16 or not upgrade or "upgrade" not in tokens or not headers.get("Host"):
        return None
    digest = hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


@dataclasses.dataclass(frozen=True, slots=True)
class Received:
    """One whole message (TEXT, BINARY) or control frame. ``payload`` of CLOSE is checked."""

    opcode: int
    payload: bytes


@dataclasses.dataclass(slots=True)
class _Head:
    fin: bool
    opcode: int
    size: int
    mask: bytes
    bytes: int


class _Violated(Exception):
    def __init__(self, reason: CloseReason) -> None:
        super().__init__(reason.text)
        self.reason = reason


class FrameParser:
    """Bytes in, whole messages out; holds at most one message of ``max_bytes`` and one chunk."""

    __slots__ = ("_buffer", "_max_bytes", "_opcode", "_parts", "_size", "violation")

    def __init__(self, max_bytes: int) -> None:
        self.violation: CloseReason | None = None
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        # Of a fragmented message: its opcode (0 between messages), parts and their size.
        self._opcode = 0
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Received]:
        """What is complete now. Check ``violation`` afterwards."""
        received: list[Received] = []
        if self.violation is not None:
            return received
        self._buffer += data
        try:
            while (head := self._head()) is not None:
                if len(self._buffer) < head.bytes + head.size:
                    break
                event = self._frame(head, self._payload(head))
                if event is not None:
                    received.append(event)
        except _Violated as violated:
            self.violation = violated.reason
            self._buffer.clear()
            self._parts.clear()
        return received

    def _head(self) -> _Head | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        fin, opcode, masked = bool(buffer[0] & 0x80), buffer[0] & 0x0F, buffer[1] & 0x80
        # RFC 6455 section 5.2: reserved bits without an extension; 5.1: readers must mask.
        if buffer[0] & 0x70 or opcode not in _KNOWN or not masked:
            raise _Violated(PROTOCOL_ERROR)
        size, at = buffer[1] & 0x7F, 2
        # Section 5.5: control frames are short and whole.
        if opcode & 0x8 and (size > 125 or not fin):
            raise _Violated(PROTOCOL_ERROR)
        if size > 125:
            at = 4 if size == 126 else 10
            if len(buffer) < at:
                return None
            size = int.from_bytes(buffer[2:at], "big")
            # Section 5.2: the minimal number of bytes must be used, and never the first bit.
            if size < (126 if at == 4 else 1 << 16) or size >> 63:
                raise _Violated(PROTOCOL_ERROR)
        if not opcode & 0x8 and self._size + size > self._max_bytes:
            raise _Violated(TOO_BIG)
        if len(buffer) < at + 4:
            return None
        return _Head(fin, opcode, size, bytes(buffer[at : at + 4]), at + 4)

    def _payload(self, head: _Head) -> bytes:
        end = head.bytes + head.size
        masked = bytes(self._buffer[head.bytes : end])
        del self._buffer[:end]
        mask = (head.mask * (head.size // 4 + 1))[: head.size]
        plain = int.from_bytes(masked, "big") ^ int.from_bytes(mask, "big")
        return plain.to_bytes(head.size, "big")

    def _frame(self, head: _Head, payload: bytes) -> Received | None:
        if head.opcode & 0x8:
            if head.opcode == CLOSE:
                _check_close(payload)
            return Received(head.opcode, payload)
        # Section 5.4: a message is one frame with an opcode, then continuations.
        if (head.opcode == _CONTINUATION) != (self._opcode != 0):
            raise _Violated(PROTOCOL_ERROR)
        self._opcode = self._opcode or head.opcode
        self._parts.append(payload)
        # Empty fragments cost a list's entry each: they count as one byte.
        self._size += max(1, len(payload))
        return self._message() if head.fin else None

    def _message(self) -> Received:
        message = Received(self._opcode, b"".join(self._parts))
        self._opcode, self._size = 0, 0
        self._parts.clear()
        if message.opcode == TEXT:
            _check_utf8(message.payload)
        return message


def close_code(payload: bytes) -> int:
    """The code in a CLOSE that was received; 1005 for none (RFC 6455 section 7.1.5)."""
    return int.from_bytes(payload[:2], "big") if payload else 1005


def _check_close(payload: bytes) -> None:
    if not payload:
        return
    code = close_code(payload)
    if len(payload) == 1 or not (code in _CLOSE_CODES or 3000 <= code <= 4999):
        raise _Violated(PROTOCOL_ERROR)
    _check_utf8(payload[2:])


def _check_utf8(payload: bytes) -> None:
    try:
        payload.decode()
    except UnicodeDecodeError as exc:
        # RFC 6455 section 8.1.
        raise _Violated(INVALID_PAYLOAD) from exc
