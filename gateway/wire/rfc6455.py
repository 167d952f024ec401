"""The WebSocket protocol without I/O: the opening handshake, and frames from readers.

The library wsproto takes the frames apart, checks their heads and unmasks them. The rules here are
ours: the limit of a message, the age of an unfinished one, the close codes. No extension is
offered, not even compression (RFC 7692). docs/design/0005 has the reasons.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final, NamedTuple

from wsproto import frame_protocol
from wsproto.frame_protocol import Frame, FrameDecoder, MessageDecoder, Opcode, ParseFailed, RsvBits
from wsproto.utilities import generate_accept_token

from newsfabric.closing import INVALID_PAYLOAD, PROTOCOL_ERROR, TOO_BIG, CloseReason

SUBPROTOCOL: Final = "newsfabric"
NO_HANDSHAKE: Final = "Not a WebSocket handshake."
# RFC 6455 section 7.4.1 and the IANA registry; 1004–1006 and 1015 must not be sent.
_CLOSE_CODES: Final = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})
_REASONS: Final = {reason.code: reason for reason in (INVALID_PAYLOAD, PROTOCOL_ERROR, TOO_BIG)}


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
    return generate_accept_token(key.encode()).decode()


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


class _Frames(FrameDecoder):
    """A decoder of frames, of which those of one message hold at most ``max_bytes``."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(client=False)
        self._max_bytes = max_bytes
        # The size of the whole frames of the message being received; 0 between messages.
        self.size = 0

    def extension_processing(self, opcode: Opcode, rsv: RsvBits, payload_len: int) -> None:
        """Check a frame by its head. wsproto calls this as soon as the length is known."""
        super().extension_processing(opcode, rsv, payload_len)
        if opcode.iscontrol():
            return
        if self.size + payload_len > self._max_bytes:
            raise _violating(TOO_BIG)
        # RFC 6455 section 5.4: a message is one frame with an opcode, then continuations.
        if (opcode is Opcode.CONTINUATION) != (self.size > 0):
            raise _violating(PROTOCOL_ERROR)

    @property
    def is_unfinished(self) -> bool:
        """True if a frame or a message has begun and isn't whole."""
        return bool(self.size or self.header or len(self.buffer))


class FrameParser:
    """A parser of bytes to messages; holds at most one message of ``max_bytes`` and one chunk.

    A violation is reported as soon as it can be seen, before its frame or message is whole. After
    it the parser accepts nothing more; close with it.
    """

    def __init__(self, max_bytes: int) -> None:
        self.violation: CloseReason | None = None
        self._frames = _Frames(max_bytes)
        self._messages = MessageDecoder()
        # Of the message being received. A list of small parts would take many times their size.
        self._message = bytearray()
        # When the unfinished frame or message was first seen.
        self._since: float | None = None

    def feed(self, data: bytes) -> list[Received]:
        """Return the messages that are complete now. Check ``violation`` afterwards."""
        received: list[Received] = []
        if self.violation is not None:
            return received
        self._frames.receive_bytes(data)
        try:
            while (frame := self._frames.process_buffer()) is not None:
                event = _control(frame) if frame.opcode.iscontrol() else self._data(frame)
                if event is not None:
                    received.append(event)
                if frame.frame_finished and not self._frames.size:
                    self._since = None
        except ParseFailed as failed:
            self.stop(_REASONS[failed.code])
        return received

    def unfinished_since(self, now: float) -> float | None:
        """Return the time since which a frame or message is unfinished; None if none is.

        Ask after each :meth:`feed`: a message that has begun since the last call has begun ``now``.
        """
        if not self._frames.is_unfinished:
            return None
        if self._since is None:
            self._since = now
        return self._since

    def stop(self, reason: CloseReason) -> None:
        """Accept nothing more, and drop the bytes received: ``violation`` is ``reason`` now."""
        self.violation = reason
        self._frames.buffer = frame_protocol.Buffer()
        self._message.clear()

    def _data(self, frame: Frame) -> Received | None:
        """Take a part of a data frame; return the message that it ends."""
        assert isinstance(frame.payload, bytes)
        self._message += frame.payload
        checked = self._messages.process_frame(frame)
        if frame.frame_finished:
            # Empty fragments count as one byte, so that their number is bounded.
            self._frames.size += max(1, self._frames.payload_consumed)
        if not checked.message_finished:
            return None
        message = Received(checked.opcode, bytes(self._message))
        self._message.clear()
        self._frames.size = 0
        return message


def _violating(reason: CloseReason) -> ParseFailed:
    return ParseFailed(reason.text, frame_protocol.CloseReason(reason.code))


def _control(frame: Frame) -> Received:
    assert isinstance(frame.payload, bytes)
    if frame.opcode is Opcode.CLOSE:
        _check_close(frame.payload)
    return Received(frame.opcode, frame.payload)


def _check_close(payload: bytes) -> None:
    # Not wsproto's own check, which refuses 1014.
    if not payload:
        return
    code = int.from_bytes(payload[:2], "big")
    if len(payload) == 1 or not (code in _CLOSE_CODES or 3000 <= code <= 4999):
        raise _violating(PROTOCOL_ERROR)
    try:
        payload[2:].decode()
    except UnicodeDecodeError as exc:
        # Section 5.5.1: the reason is UTF-8; 8.1.
        raise _violating(INVALID_PAYLOAD) from exc
