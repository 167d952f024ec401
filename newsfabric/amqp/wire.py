"""The AMQP frames that carry messages: publish, deliver, return and their acknowledgements.

No I/O: received bytes become calls of a :class:`Sink`, messages become bytes to send. Handshake,
channels, declarations and heartbeats are not here; these stay with pika, whose frames pass through
:meth:`Sink.on_frame` unchanged.

The reason not to use pika here: its decoder raises on headers that a hostile publisher can send
(see :mod:`newsfabric.amqp.fields`), and can be replaced only by patching module functions, while
whole frames can be intercepted. Together with the loop's transport this module also saves a third
of the processor time per message, a router's largest cost (1 KB bodies, nine headers: consume and
ack 26 to 18 µs, publish and confirm 26 to 16 µs).

Frame layout: AMQP 0-9-1 section 4.2.3; content: section 4.2.6; numbers: the specification's XML.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Callable
from typing import Final, Protocol

from newsfabric.amqp.fields import cached_short, decode_short, decode_text, encode_short
from newsfabric.amqp.message import Message, Properties
from newsfabric.amqp.properties import decode_properties, encode_properties

_METHOD: Final = 1
_HEADER: Final = 2
_BODY: Final = 3
_FRAME_END: Final = 0xCE
_FRAME_END_OCTET: Final = b"\xce"
# Type, channel and length before the payload, the end octet after it.
_OVERHEAD: Final = 8

# RabbitMQ cuts bodies into frames of the negotiated size, but no headers. A header just below the
# frame_max of its entrance grows by some 300 bytes at each shovel. It can't grow to this limit:
# docs/design/0022-messages-that-fail.md has the calculation.
MAX_HEADER: Final = 1 << 20
# The rest of a larger body is read and not kept. All consumers refuse bodies half as large, so the
# message is refused: that is better than a message that stays in its queue for ever.
MAX_BODY: Final = 1 << 20
# Messages received in part, one on each channel. A link of ours has a dozen channels.
MAX_UNFINISHED: Final = 64

_FRAME: Final = struct.Struct(">BHI")
_TAG_AND_BITS: Final = struct.Struct(">QB")
_U16: Final = struct.Struct(">H")
_CONTENT: Final = struct.Struct(">HHQ")

_BASIC: Final = 60
_PUBLISH: Final = struct.pack(">HHH", _BASIC, 40, 0)
_RETURN: Final = struct.pack(">HH", _BASIC, 50)
_DELIVER: Final = struct.pack(">HH", _BASIC, 60)
_ACK: Final = struct.pack(">HH", _BASIC, 80)
_REJECT: Final = struct.pack(">HH", _BASIC, 90)
_NACK: Final = struct.pack(">HH", _BASIC, 120)

_MULTIPLE: Final = 1


class WireError(Exception):
    """The broker sent bytes that aren't AMQP: the connection can't continue."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReturnReason:
    """The reason for which the broker returned a mandatory message (``basic.return``)."""

    code: int
    text: str
    exchange: str


class Sink(Protocol):
    """A receiver of a connection's messages and frames, in order."""

    def on_deliver(
        self, channel: int, consumer: str, tag: int, redelivered: bool, message: Message
    ) -> None:
        """Take a message for consumer tag ``consumer``."""

    def on_return(self, channel: int, reason: ReturnReason, message: Message) -> None:
        """Take a mandatory message that found no queue; its confirm follows."""

    def on_confirm(self, channel: int, tag: int, multiple: bool, taken: bool) -> None:
        """Take the confirm (``taken``) or refusal of publication ``tag``, or of all up to it."""

    def on_frame(self, frame: bytes) -> None:
        """Take a whole frame of any other kind."""


@dataclasses.dataclass(slots=True)
class _Content:
    """A message whose method frame was received, and whose header or body is incomplete."""

    finish: Callable[[Message], None]
    topic: str
    properties: Properties | None = None
    missing: int = 0
    body: bytearray = dataclasses.field(default_factory=bytearray)


class FrameReader:
    """A parser that cuts received bytes into frames and assembles messages.

    ``frame_max`` is the negotiated size; only headers may be larger (:data:`MAX_HEADER`). The
    reader holds at most one frame, and :data:`MAX_BODY` of each of :data:`MAX_UNFINISHED` messages.
    After a WireError, the only error that it raises by itself, it must not be fed again.
    """

    def __init__(self, sink: Sink, frame_max: int) -> None:
        self._sink = sink
        self._frame_max = frame_max
        # The beginning of a frame, and the number of bytes needed to parse it again.
        self._rest = bytearray()
        self._needed = 0
        # At most one message per channel is incomplete (section 4.2.6).
        self._contents: dict[int, _Content] = {}
        self._methods: dict[bytes, Callable[[int, bytes], None]] = {
            _DELIVER: self._on_deliver,
            _RETURN: self._on_return,
            _ACK: functools.partial(self._on_confirm, taken=True),
            _NACK: functools.partial(self._on_confirm, taken=False),
        }

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream, cut anywhere."""
        if self._rest:
            if len(self._rest) + len(data) < self._needed:
                # A large frame in small pieces: joined once, not for each piece.
                self._rest += data
                return
            data = b"".join((self._rest, data))
        at, size = 0, len(data)
        self._needed = _OVERHEAD
        while at + _OVERHEAD <= size:
            kind, channel, length = _FRAME.unpack_from(data, at)
            if length > self._frame_max:
                self._check_large(kind, length)
            end = at + _OVERHEAD + length
            if end > size:
                self._needed = end - at
                break
            if data[end - 1] != _FRAME_END:
                raise WireError("a frame doesn't end at its stated size")
            self._on_frame(kind, channel, data, at, end)
            at = end
        self._rest = bytearray(data[at:])

    def _check_large(self, kind: int, length: int) -> None:
        most = MAX_HEADER if kind == _HEADER else self._frame_max
        if length > most:
            raise WireError(f"a frame of kind {kind} with {length} bytes, at most {most}")

    def _on_frame(self, kind: int, channel: int, data: bytes, at: int, end: int) -> None:
        if kind == _BODY:
            self._on_body(channel, data[at + 7 : end - 1])
        elif kind == _HEADER:
            self._on_header(channel, data[at + 7 : end - 1])
        elif kind == _METHOD and (method := self._methods.get(data[at + 7 : at + 11])):
            method(channel, data[at + 11 : end - 1])
        else:
            self._sink.on_frame(data[at:end])

    def _on_confirm(self, channel: int, payload: bytes, *, taken: bool) -> None:
        if len(payload) < _TAG_AND_BITS.size:
            raise WireError("a confirm that is cut short")
        tag, bits = _TAG_AND_BITS.unpack_from(payload)
        self._sink.on_confirm(channel, tag, bool(bits & _MULTIPLE), taken)

    def _on_deliver(self, channel: int, payload: bytes) -> None:
        try:
            after = 1 + payload[0]
            consumer = _cached_text(payload[1:after])
            tag, redelivered = _TAG_AND_BITS.unpack_from(payload, after)
            # After the name of the exchange.
            topic, _ = decode_short(payload, after + 10 + payload[after + 9])
        except (IndexError, struct.error) as exc:
            raise WireError("a delivery that is cut short") from exc
        finish = functools.partial(
            self._sink.on_deliver, channel, consumer, tag, bool(redelivered & 1)
        )
        self._begin(channel, finish, topic)

    def _on_return(self, channel: int, payload: bytes) -> None:
        try:
            (code,) = _U16.unpack_from(payload)
            text, at = decode_short(payload, 2)
            exchange, at = decode_short(payload, at)
            topic, _ = decode_short(payload, at)
        except (IndexError, struct.error) as exc:
            raise WireError("a return that is cut short") from exc
        finish = functools.partial(
            self._sink.on_return, channel, ReturnReason(code, text, exchange)
        )
        self._begin(channel, finish, topic)

    def _begin(self, channel: int, finish: Callable[[Message], None], topic: str) -> None:
        if channel in self._contents:
            raise WireError(f"a second message on channel {channel} before the first has ended")
        if len(self._contents) == MAX_UNFINISHED:
            raise WireError(f"more than {MAX_UNFINISHED} messages at once")
        self._contents[channel] = _Content(finish, topic)

    def _on_header(self, channel: int, payload: bytes) -> None:
        content = self._contents.get(channel)
        if content is None or content.properties is not None:
            raise WireError(f"a content header out of turn on channel {channel}")
        if len(payload) < _CONTENT.size:
            raise WireError("a content header that is cut short")
        content.missing = _CONTENT.unpack_from(payload)[2]
        content.properties = decode_properties(payload[_CONTENT.size :])
        if content.missing == 0:
            self._finish(channel, content, content.properties, b"")

    def _on_body(self, channel: int, payload: bytes) -> None:
        content = self._contents.get(channel)
        if content is None or content.properties is None or len(payload) > content.missing:
            raise WireError(f"a content body out of turn on channel {channel}")
        content.missing -= len(payload)
        if content.missing == 0 and not content.body and len(payload) <= MAX_BODY:
            self._finish(channel, content, content.properties, payload)
            return
        content.body += payload[: MAX_BODY - len(content.body)]
        if content.missing == 0:
            self._finish(channel, content, content.properties, bytes(content.body))

    def _finish(self, channel: int, content: _Content, properties: Properties, body: bytes) -> None:
        del self._contents[channel]
        content.finish(Message(content.topic, body, properties))


# The properties encoded last, and their bytes: most of the work of a publication.
_last: tuple[Properties | None, bytes] = None, b""
# Consumers' tags.
_cached_text: Final = functools.lru_cache(maxsize=64)(decode_text)


def encode_publish(
    channel: int, exchange: str, message: Message, *, mandatory: bool, frame_max: int
) -> bytes:
    """Return all frames of a publication; ValueError, and no frames, if it has no AMQP form."""
    return encode_address(channel, exchange, message.topic, mandatory=mandatory) + encode_content(
        channel, message, frame_max=frame_max
    )


def encode_address(channel: int, exchange: str, topic: str, *, mandatory: bool) -> bytes:
    """Return the first frame of a publication; ValueError if it has no AMQP form."""
    method = b"".join(
        (
            _PUBLISH,
            cached_short(exchange),
            encode_short(topic),
            b"\1" if mandatory else b"\0",
        )
    )
    return _FRAME.pack(_METHOD, channel, len(method)) + method + _FRAME_END_OCTET


def encode_content(channel: int, message: Message, *, frame_max: int) -> bytes:
    """Return all frames of a publication but the first, the same for any exchange; ValueError if
    ``message`` has no AMQP form."""
    body = message.body
    header = _CONTENT.pack(_BASIC, 0, len(body)) + _encoded(message.properties)
    room = frame_max - _OVERHEAD
    if len(header) > room:
        # A header can't be cut (section 4.2.6.1), and a larger frame ends the connection.
        raise ValueError(f"properties of {len(header)} bytes, at most {room}")
    pieces = [_FRAME.pack(_HEADER, channel, len(header)), header, _FRAME_END_OCTET]
    for at in range(0, len(body), room):
        piece = body if len(body) <= room else body[at : at + room]
        pieces += (_FRAME.pack(_BODY, channel, len(piece)), piece, _FRAME_END_OCTET)
    return b"".join(pieces)


def _encoded(properties: Properties) -> bytes:
    """Return ``properties`` encoded: once, if several brokers are sent the message in sequence."""
    global _last
    if properties is not _last[0]:
        _last = properties, encode_properties(properties)
    return _last[1]


def encode_ack(channel: int, tag: int, *, multiple: bool) -> bytes:
    """Return ``basic.ack`` of delivery ``tag``, or of all that are outstanding up to it."""
    return _settle(channel, _ACK, tag, multiple)


def encode_reject(channel: int, tag: int, *, requeue: bool) -> bytes:
    """Return ``basic.reject`` of delivery ``tag``."""
    return _settle(channel, _REJECT, tag, requeue)


def _settle(channel: int, method: bytes, tag: int, bit: bool) -> bytes:
    payload = method + _TAG_AND_BITS.pack(tag, bit)
    return _FRAME.pack(_METHOD, channel, len(payload)) + payload + _FRAME_END_OCTET
