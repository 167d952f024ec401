"""The bytes on the wire, encoded once and shared by all readers that get them.

Every push is one JSON text. Each transport frames it in one of the ways of :class:`Framing`. A
message is encoded at most once for each variant, whatever the number of readers. The body's bytes
are spliced in as the publisher wrote them. They were checked to be JSON before
(:mod:`gateway.feed.feed`), so they can't break out of their place.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from newsfabric.closing import CloseReason
from newsfabric.messages.envelope import Envelope, identity_text
from newsfabric.messages.mailbox import PUSH_TYPES, UserMark
from newsfabric.messages.pushes import message_fields
from newsfabric.topics import TopicClass

# Opcodes of RFC 6455 section 5.2.
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA

# SockJS 1.0, "Unicode characters that must be escaped": browsers mangle these. Characters beyond
# U+FFFF are surrogate pairs in JavaScript, so they are escaped as pairs.
_SOCKJS_ESCAPED: Final = re.compile(
    "[\x00-\x1f\u0300-\u0333\u033d-\u0346\u034a-\u034c\u0350-\u0352\u0357-\u0358\u035c-\u0362"
    "\u0374\u037e\u0387\u0591-\u05af\u05c4\u0610-\u0617\u0653-\u0654\u0657-\u065b\u065d-\u065e"
    "\u06df-\u06e2\u06eb-\u06ec\u0730\u0732-\u0733\u0735-\u0736\u073a\u073d\u073f-\u0741\u0743"
    "\u0745\u0747\u07eb-\u07f1\u0951\u0958-\u095f\u09dc-\u09dd\u09df\u0a33\u0a36\u0a59-\u0a5b\u0a5e"
    "\u0b5c-\u0b5d\u0e38-\u0e39\u0f43\u0f4d\u0f52\u0f57\u0f5c\u0f69\u0f72-\u0f76\u0f78\u0f80-\u0f83"
    "\u0f93\u0f9d\u0fa2\u0fa7\u0fac\u0fb9\u1939-\u193a\u1a17\u1b6b\u1cda-\u1cdb\u1dc0-\u1dcf\u1dfc"
    "\u1dfe\u1f71\u1f73\u1f75\u1f77\u1f79\u1f7b\u1f7d\u1fbb\u1fbe\u1fc9\u1fcb\u1fd3\u1fdb\u1fe3"
    "\u1feb\u1fee-\u1fef\u1ff9\u1ffb\u1ffd\u2000-\u2001\u200c-\u200f\u2028-\u202f\u2060-\u206f"
    "\u20d0-\u20d1\u20d4-\u20d7\u20e7-\u20e9\u2126\u212a-\u212b\u2329-\u232a\u2adc\u302b-\u302c"
    "\uaab2-\uaab3\ud800-\udfff\uf900-\ufaff\ufb1d\ufb1f\ufb2a-\ufb36\ufb38-\ufb4e\ufff0-\uffff"
    "\U00010000-\U0010ffff]"
)


class Framing(enum.IntEnum):
    """The framing of a push for a transport."""

    RAW = 0
    WEBSOCKET = 1
    SOCKJS = 2
    SOCKJS_WEBSOCKET = 3
    SSE = 4


def message_push(envelope: Envelope, topic_class: TopicClass, position: str | None) -> bytes:
    """Return the ``message`` push of ``envelope``; ``position``: None if read from the store."""
    head = orjson.dumps(message_fields(envelope, topic_class) | {"position": position})
    return head[:-1] + b',"body":' + envelope.body + b"}"


def mark_push(mark: UserMark, position: str | None) -> bytes:
    """Return the ``acked``, ``read`` or ``dismissed`` push; ``position``: as of a message."""
    return orjson.dumps(
        {
            "type": PUSH_TYPES[mark.kind],
            "topic": mark.topic,
            "id": mark.id,
            "at": mark.at_ms,
            "position": position,
        }
    )


def with_identity(push: bytes, identity: int) -> bytes:
    """Return ``push`` with its message's identity, for readers that don't take it from the id."""
    return push[:-1] + b',"identity":"%b"}' % identity_text(identity).encode()


def frame_as(push: bytes, framing: Framing, position: str | None = None) -> bytes:
    """Return the JSON text ``push`` framed as ``framing``; ``position``: the id of an SSE event."""
    if framing is Framing.RAW:
        return push
    if framing is Framing.WEBSOCKET:
        return websocket_frame(TEXT, push)
    if framing is Framing.SOCKJS:
        return sockjs_element(push)
    if framing is Framing.SOCKJS_WEBSOCKET:
        return websocket_frame(TEXT, sockjs_array([sockjs_element(push)]))
    return sse_event(push, position)


def websocket_frame(opcode: int, payload: bytes) -> bytes:
    """Return one unfragmented, unmasked frame (RFC 6455 section 5.2; 5.1: servers don't mask)."""
    size = len(payload)
    if size < 126:
        return bytes((0x80 | opcode, size)) + payload
    if size < 1 << 16:
        return bytes((0x80 | opcode, 126)) + size.to_bytes(2, "big") + payload
    return bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big") + payload


def websocket_close(code: int, text: str) -> bytes:
    """Return a close frame. Control frames carry at most 125 bytes (RFC 6455 section 5.5)."""
    return websocket_frame(CLOSE, code.to_bytes(2, "big") + text.encode()[:123])


def sockjs_element(push: bytes) -> bytes:
    """Return ``push`` as one JSON string, an element of a SockJS ``a[…]`` frame."""
    text = orjson.dumps(push.decode()).decode()
    return _SOCKJS_ESCAPED.sub(_escaped, text).encode()


def _escaped(found: re.Match[str]) -> str:
    pair = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{pair[i : i + 4]}" for i in range(0, len(pair), 4))


def sockjs_array(elements: Iterable[bytes]) -> bytes:
    """Return a SockJS message frame of elements made by :func:`sockjs_element`."""
    return b"a[" + b",".join(elements) + b"]"


def sockjs_close(code: int, text: str) -> bytes:
    """Return a SockJS close frame, ``c[code,"text"]``."""
    return b"c" + orjson.dumps([code, text])


def sse_event(push: bytes, position: str | None = None) -> bytes:
    """Return an event of a ``text/event-stream`` (WHATWG HTML section 9.2).

    A body may have several lines. CR and LF stand only between its JSON tokens (inside strings they
    are escaped), so on one ``data:`` line spaces mean the same.
    """
    data = b"data: " + push.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\n"
    return data if position is None else b"id: " + position.encode() + b"\n" + data


def encode_push(kind: str, /, **fields: Any) -> bytes:
    """Return a push of type ``kind``, not of a message, as JSON text; None fields are left out."""
    push = {"type": kind}
    for name, value in fields.items():
        if value is not None:
            push[name] = value
    return orjson.dumps(push)


def disconnect_push(reason: CloseReason, retry_after_ms: int) -> bytes:
    """Return the ``disconnect`` push, sent before each close (proxies don't pass close frames)."""
    return encode_push(
        "disconnect",
        code=reason.code,
        reason=reason.text,
        reconnect=reason.reconnect,
        retry_after_ms=retry_after_ms,
    )


def messages_push(
    ref: Any, topic: str, messages: Iterable[bytes], more: bool, missing: Sequence[str] = ()
) -> bytes:
    """Return the reply to ``history``. ``messages``: ``message`` pushes, oldest first. ``missing``:
    ids of messages that can't be read; the field is left out if there are none."""
    missing_field = {"missing": missing} if missing else {}
    head = encode_push("history", ref=ref, topic=topic, more=more, **missing_field)
    return head[:-1] + b',"messages":[' + b",".join(messages) + b"]}"
