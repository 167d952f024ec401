"""A message's basic properties as bytes: a decoder that no publisher can upset.

No I/O. AMQP 0-9-1 section 4.2.6.1; the flags' numbers are those of the specification's XML.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from newsfabric.amqp.fields import (
    MAX_TABLE_BYTES,
    OVERSIZE,
    cached_short,
    decode_short,
    decode_table,
    encode_short,
    encode_table,
)
from newsfabric.amqp.message import TRANSIENT, Properties, Undecodable

_U16: Final = struct.Struct(">H")
_U64: Final = struct.Struct(">Q")

_HAS_CONTENT_TYPE: Final = 1 << 15
_HAS_CONTENT_ENCODING: Final = 1 << 14
_HAS_HEADERS: Final = 1 << 13
_HAS_DELIVERY_MODE: Final = 1 << 12
_HAS_PRIORITY: Final = 1 << 11
_HAS_CORRELATION_ID: Final = 1 << 10
_HAS_REPLY_TO: Final = 1 << 9
_HAS_EXPIRATION: Final = 1 << 8
_HAS_MESSAGE_ID: Final = 1 << 7
_HAS_TIMESTAMP: Final = 1 << 6
_HAS_TYPE: Final = 1 << 5
_HAS_USER_ID: Final = 1 << 4
_HAS_APP_ID: Final = 1 << 3
_HAS_MORE_FLAGS: Final = 1


def decode_properties(raw: bytes) -> Properties:
    """Return basic properties from a content header's payload, after its body size. Never raises.

    Malformed bytes become one undecodable header.
    """
    try:
        return _decode_properties(raw)
    except (IndexError, struct.error):
        return Properties(headers={OVERSIZE: Undecodable(raw[:MAX_TABLE_BYTES])})


def _decode_properties(raw: bytes) -> Properties:
    (flags,) = _U16.unpack_from(raw)
    at = 2
    more = flags
    while more & _HAS_MORE_FLAGS:
        # Section 4.2.6.1: more flags for properties that class basic doesn't have.
        (more,) = _U16.unpack_from(raw, at)
        at += 2
    found: dict[str, Any] = {}
    if flags & _HAS_CONTENT_TYPE:
        found["content_type"], at = decode_short(raw, at)
    if flags & _HAS_CONTENT_ENCODING:
        _, at = decode_short(raw, at)
    if flags & _HAS_HEADERS:
        (size,) = struct.unpack_from(">I", raw, at)
        found["headers"] = decode_table(raw[at + 4 : at + 4 + size])
        at += 4 + size
    if flags & _HAS_DELIVERY_MODE:
        found["delivery_mode"] = raw[at]
        at += 1
    if flags & _HAS_PRIORITY:
        at += 1
    if flags & _HAS_CORRELATION_ID:
        found["correlation_id"], at = decode_short(raw, at)
    if flags & _HAS_REPLY_TO:
        found["reply_to"], at = decode_short(raw, at)
    if flags & _HAS_EXPIRATION:
        found["expiration"], at = decode_short(raw, at)
    if flags & _HAS_MESSAGE_ID:
        found["message_id"], at = decode_short(raw, at)
    if flags & _HAS_TIMESTAMP:
        (found["timestamp"],) = _U64.unpack_from(raw, at)
        at += 8
    if flags & _HAS_TYPE:
        found["type"], at = decode_short(raw, at)
    if flags & _HAS_USER_ID:
        found["user_id"], at = decode_short(raw, at)
    if flags & _HAS_APP_ID:
        found["app_id"], at = decode_short(raw, at)
    return Properties(**found)


def encode_properties(properties: Properties) -> bytes:
    """Return the bytes of ``properties``; ValueError if one of them has no AMQP form."""
    flags = 0
    pieces: list[bytes] = []
    if properties.content_type is not None:
        flags |= _HAS_CONTENT_TYPE
        pieces.append(cached_short(properties.content_type))
    if properties.headers:
        flags |= _HAS_HEADERS
        pieces.append(encode_table(properties.headers))
    if properties.delivery_mode != TRANSIENT:
        flags |= _HAS_DELIVERY_MODE
        pieces.append(_octet(properties.delivery_mode))
    for flag, text in (
        (_HAS_CORRELATION_ID, properties.correlation_id),
        (_HAS_REPLY_TO, properties.reply_to),
        (_HAS_EXPIRATION, properties.expiration),
        (_HAS_MESSAGE_ID, properties.message_id),
    ):
        if text is not None:
            flags |= flag
            pieces.append(encode_short(text))
    if properties.timestamp is not None:
        flags |= _HAS_TIMESTAMP
        pieces.append(_unsigned64(properties.timestamp))
    if properties.type is not None:
        flags |= _HAS_TYPE
        pieces.append(cached_short(properties.type))
    if properties.user_id is not None:
        flags |= _HAS_USER_ID
        pieces.append(cached_short(properties.user_id))
    if properties.app_id is not None:
        flags |= _HAS_APP_ID
        pieces.append(cached_short(properties.app_id))
    return _U16.pack(flags) + b"".join(pieces)


def _octet(value: int) -> bytes:
    if not 0 <= value <= 255:
        raise ValueError(f"delivery_mode is an octet, not {value}")
    return bytes((value,))


def _unsigned64(value: int) -> bytes:
    if not 0 <= value < 2**64:
        raise ValueError(f"timestamp has 64 bits, no sign: {value}")
    return _U64.pack(value)
