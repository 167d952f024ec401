"""The WebSocket protocol without I/O: the opening handshake, and frames from readers.

No extension is offered, not even compression (RFC 7692). docs/design/0005 and 0030 have the reasons
for not using Tornado's or a library's implementation.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from gateway.wire.frames import BINARY, CLOSE, PING, PONG, TEXT
from newsfabric.closing import INVALID_PAYLOAD, PROTOCOL_ERROR, TOO_BIG, CloseReason

SUBPROTOCOL: Final = "newsfabric"
NO_HANDSHAKE: Final = "Not a WebSocket handshake."
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION: Final = 0x0
_KNOWN: Final = frozenset({_CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG})
# RFC 6455 section 7.4.1 and the IANA registry; 1004–1006 and 1015 must not be sent.
_CLOSE_CODES: Final = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})


def accept_key(headers: Mapping[str, str]) -> str:
    """Return ``Sec-WebSocket-Accept`` for a handshake's headers (RFC 6455 section 4.2).

    ``headers`` must ignore the case of names. ValueError names the fault, in SockJS's words where
    it has some.
    """
    if headers.get("Upgrade", "").lower() != "websocket":
        raise ValueError('Can "Upgrade" only to "WebSocket".')
    tokens = [token.strip().lower() for token in headers.get("Connection", "").split(",")]
    if "upgrade" not in tokens:
        raise ValueError('"Connection" must be "Upgrade".')
    key = headers.get("Sec-WebSocket-Key", "")
    if not _is_nonce(key) or not headers.get("Host"):
        raise ValueError(NO_HANDSHAKE)
    digest = hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


def _is_nonce(key: str) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except ValueError:
        return False


def offered(headers: Mapping[str, str]) -> tuple[bool, str | None]:
    """Return whether our subprotocol is offered, and the entry behind it: a token.

    RFC 6455 section 4.1. A page's script can set no other header of a handshake.
    """
    entries = [entry.strip() for entry in headers.get("Sec-WebSocket-Protocol", "").split(",")]
    if SUBPROTOCOL not in entries:
        return False, None
    behind = entries[entries.index(SUBPROTOCOL) + 1 :]
    return True, behind[0] if behind else None


class Received(NamedTuple):
    """A whole message (TEXT, BINARY) or control frame. ``payload`` of CLOSE is checked."""

    opcode: int
    payload: bytes


@dataclasses.dataclass(slots=True)
class _Head:
    fin: bool
    opcode: int
    mask: bytes
    # Bytes of the payload that aren't received yet.
    left: int


class _Violated(Exception):
    def __init__(self, reason: CloseReason) -> None:
        super().__init__(reason.text)
        self.reason = reason


class FrameParser:
    """A parser of bytes to messages; holds at most one message of ``max_bytes`` and one chunk.

    A violation is reported as soon as it can be seen, before its frame or message is whole. After
    it the parser accepts nothing more; close with it.
    """

    def __init__(self, max_bytes: int) -> None:
        self.violation: CloseReason | None = None
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        # The frame whose payload is being received.
        self._frame: _Head | None = None
        # Of the message being received: its opcode (0 between messages), the size of its frames,
        # and its bytes: a list of parts would take many times their size if they are small.
        self._opcode = 0
        self._size = 0
        self._message = bytearray()
        # Of a text: how many of its bytes are whole characters.
        self._valid = 0
        # When the unfinished frame or message was first seen.
        self._since: float | None = None

    def feed(self, data: bytes) -> list[Received]:
        """Return the messages that are complete now. Check ``violation`` afterwards."""
        received: list[Received] = []
        if self.violation is not None:
            return received
        self._buffer += data
        try:
            while (frame := self._frame or self._head()) is not None:
                self._frame = frame
                event = self._control(frame) if frame.opcode & 0x8 else self._data(frame)
                if event is not None:
                    received.append(event)
                if self._frame is not None:
                    break
                if not self._opcode:
                    self._since = None
        except _Violated as violated:
            self.give_up(violated.reason)
        return received

    def unfinished_since(self, now: float) -> float | None:
        """Return the time since which a frame or message is unfinished; None if none is.

        Ask after each :meth:`feed`: a message that has begun since the last call has begun ``now``.
        """
        if not (self._buffer or self._frame or self._opcode):
            return None
        if self._since is None:
            self._since = now
        return self._since

    def give_up(self, reason: CloseReason) -> None:
        """Accept nothing more, and drop the bytes received: ``violation`` is ``reason`` now."""
        self.violation = reason
        self._buffer.clear()
        self._message.clear()

    def _head(self) -> _Head | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        fin, opcode, masked = bool(buffer[0] & 0x80), buffer[0] & 0x0F, buffer[1] & 0x80
        # RFC 6455 section 5.2: reserved bits without an extension; 5.1: readers must mask.
        if buffer[0] & 0x70 or opcode not in _KNOWN or not masked:
            raise _Violated(PROTOCOL_ERROR)
        size, at, control = buffer[1] & 0x7F, 2, opcode & 0x8
        # Section 5.5: control frames are short and whole.
        if control and (size > 125 or not fin):
            raise _Violated(PROTOCOL_ERROR)
        if size > 125:
            at = 4 if size == 126 else 10
            if len(buffer) < at:
                return None
            size = int.from_bytes(buffer[2:at], "big")
            # Section 5.2: the minimal number of bytes must be used, and never the first bit.
            if size < (126 if at == 4 else 1 << 16) or size >> 63:
                raise _Violated(PROTOCOL_ERROR)
        if not control:
            if self._size + size > self._max_bytes:
                raise _Violated(TOO_BIG)
            # Section 5.4: a message is one frame with an opcode, then continuations.
            if (opcode == _CONTINUATION) != (self._opcode != 0):
                raise _Violated(PROTOCOL_ERROR)
        if len(buffer) < at + 4:
            return None
        if not control:
            self._opcode = self._opcode or opcode
            # Empty fragments count as one byte, so that their number is bounded.
            self._size += max(1, size)
        mask = bytes(buffer[at : at + 4])
        del buffer[: at + 4]
        return _Head(fin, opcode, mask, size)

    def _control(self, frame: _Head) -> Received | None:
        if len(self._buffer) < frame.left:
            return None
        self._frame = None
        payload = self._take(frame)
        if frame.opcode == CLOSE:
            _check_close(payload)
        return Received(frame.opcode, payload)

    def _data(self, frame: _Head) -> Received | None:
        self._message += self._take(frame)
        if not frame.left:
            self._frame = None
        final = frame.fin and not frame.left
        if self._opcode == TEXT:
            self._check_text(final=final)
        if not final:
            return None
        message = Received(self._opcode, bytes(self._message))
        self._message.clear()
        self._opcode = self._size = self._valid = 0
        return message

    def _take(self, frame: _Head) -> bytes:
        """Return the payload bytes received, unmasked (RFC 6455 section 5.3)."""
        masked = self._buffer[: frame.left]
        size = len(masked)
        del self._buffer[:size]
        frame.left -= size
        mask = (frame.mask * (size // 4 + 1))[:size]
        plain = int.from_bytes(masked, "big") ^ int.from_bytes(mask, "big")
        if frame.left:
            # The rest begins with the next byte of the mask.
            turn = size % 4
            frame.mask = frame.mask[turn:] + frame.mask[:turn]
        return plain.to_bytes(size, "big")

    def _check_text(self, *, final: bool) -> None:
        # RFC 6455 section 8.1. The incremental decoder of ``codecs`` detects surrogates too late.
        try:
            self._message[self._valid :].decode()
        except UnicodeDecodeError as exc:
            if final or exc.reason != "unexpected end of data":
                raise _Violated(INVALID_PAYLOAD) from exc
            self._valid += exc.start
        else:
            self._valid = len(self._message)


def _check_close(payload: bytes) -> None:
    if not payload:
        return
    code = int.from_bytes(payload[:2], "big")
    if len(payload) == 1 or not (code in _CLOSE_CODES or 3000 <= code <= 4999):
        raise _Violated(PROTOCOL_ERROR)
    try:
        payload[2:].decode()
    except UnicodeDecodeError as exc:
        # Section 5.5.1: the reason is UTF-8; 8.1.
        raise _Violated(INVALID_PAYLOAD) from exc
