"""AMQP field tables and short strings as bytes: a decoder that no publisher can upset.

It replaces pika's ``data`` module for all bytes from strangers. pika's decoder raises on timestamps
past year 9999, turns floats into ints, recurses without a limit and mixes ``str`` with ``bytes``. A
message that makes a consumer's decoder raise is delivered again after the reconnect, forever. So
nothing raises here: bytes that are no value become :class:`~newsfabric.amqp.message.Undecodable`,
which validation refuses.

:func:`encode_table` can encode again all values that :func:`decode_table` returns, in at most two
and a half times the size, with types that every broker takes. So a message can always be passed on
to ``rejected``. :func:`encode_table` raises ValueError on values that have no AMQP form; those are
bugs of ours.

Types are RabbitMQ's reading of AMQP 0-9-1 section 4.2.1, where ``L`` and ``l`` are both signed and
``s`` is a short, not a string.
"""

from __future__ import annotations

import calendar
import functools
import math
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from newsfabric.amqp.message import SHOVELLED, Undecodable, Undecoded

# The size of a header table bounds the time to decode it: 16 KiB of one-byte fields take about 2
# ms. Our own tables have a few hundred bytes.
MAX_TABLE_BYTES: Final = 16 * 1024
# Nesting of tables, deeper than any use. Python's own stack ends near 1000.
MAX_DEPTH: Final = 16
# The single header of a message with a larger table: its first MAX_TABLE_BYTES. A consumer holds a
# thousand messages, and a message that is passed on must fit into a frame.
OVERSIZE: Final = "undecodable-headers"

_MAX_SHORT: Final = 255
_INT32: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)
_U32: Final = struct.Struct(">I")
_unpack_u32: Final = _U32.unpack_from
_unpack_scalar: Final = {
    ord(kind): struct.Struct(form)
    for kind, form in {
        "b": ">b",
        "B": ">B",
        "s": ">h",
        "U": ">h",
        "u": ">H",
        "I": ">i",
        "i": ">I",
        "l": ">q",
        "L": ">q",
    }.items()
}
_DECIMAL: Final = struct.Struct(">Bi")
_LONG_STRING: Final = struct.Struct(">cI")
_INT: Final = struct.Struct(">ci")
_LONG: Final = struct.Struct(">cq")


class _Malformed(Exception):
    """An error: the rest of this table can't be decoded."""


def decode_text(raw: bytes) -> str:
    """Return ``raw`` as text; bytes that aren't UTF-8 become surrogate escapes (PEP 383)."""
    return raw.decode("utf-8", "surrogateescape")


def encode_text(text: str) -> bytes:
    """Return the bytes of which :func:`decode_text` made ``text``; ValueError if there are none."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as exc:
        raise ValueError(f"not text: {exc}") from exc


def encode_short(text: str) -> bytes:
    """Return a short string with its length octet; ValueError past 255 bytes (section 4.2.5.3)."""
    raw = encode_text(text)
    if len(raw) > _MAX_SHORT:
        raise ValueError(f"{len(raw)} bytes; AMQP ends short strings at {_MAX_SHORT}")
    return bytes((len(raw),)) + raw


#: For strings that are few and repeated: exchanges, content types, types, app ids.
cached_short: Final = functools.lru_cache(maxsize=1024)(encode_short)


def decode_short(data: bytes, at: int) -> tuple[str, int]:
    """Return the short string at ``at``, and its end; IndexError if there are no bytes."""
    after = at + 1 + data[at]
    return data[at + 1 : after].decode("utf-8", "surrogateescape"), after


def decode_table(raw: bytes) -> dict[str, Any]:
    """Return the fields in ``raw``, a table without its length. Never raises.

    A field of unknown length takes the rest of its table with it.
    """
    if len(raw) > MAX_TABLE_BYTES:
        return {OVERSIZE: Undecodable(raw[:MAX_TABLE_BYTES])}
    return _table(raw, 0, len(raw), 0)


def decode_array(raw: bytes) -> list[Any]:
    """Return the values in ``raw``, an array without its length. Never raises."""
    return _array(raw, 0, len(raw), 1)


def _table(data: bytes, at: int, end: int, depth: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    while at < end:
        name_at = at + 1
        at = name_at + data[at]
        # A truncated name is kept as far as it reaches: the marker needs a name.
        name = decode_text(data[name_at : min(at, end)])
        value_at, repeated = at, name in fields
        try:
            if name == SHOVELLED and data[at : at + 1] == b"A":
                # Two dozen fields, the same in every message of this path.
                raw, at = _decode_bytes(data, at + 1, end, depth)
                fields[name] = Undecoded(raw)
            else:
                fields[name], at = _value(data, at, end, depth)
        except _Malformed:
            fields[name] = Undecodable(data[at:end])
            break
        if repeated:
            # AMQP 0-9-1 section 4.2.5.5: illegal. Brokers accept it and use the first field, so a
            # second one must not hide the field that a shovel wrote.
            fields[name] = Undecodable(data[value_at:at])
    return fields


def _array(data: bytes, at: int, end: int, depth: int) -> list[Any]:
    values: list[Any] = []
    while at < end:
        try:
            value, at = _value(data, at, end, depth)
        except _Malformed:
            values.append(Undecodable(data[at:end]))
            break
        values.append(value)
    return values


def _value(data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    if at >= end:
        raise _Malformed
    kind = data[at]
    at += 1
    # Ordered by their frequency in the fabric's own messages.
    if kind == 0x53:  # S
        at, after = _extent(data, at, end)
        return data[at:after].decode("utf-8", "surrogateescape"), after
    scalar = _unpack_scalar.get(kind)
    if scalar is not None:
        after = at + scalar.size
        if after > end:
            raise _Malformed
        return scalar.unpack_from(data, at)[0], after
    decoder = _decoders.get(kind)
    if decoder is None:
        raise _Malformed
    return decoder(data, at, end, depth)


def _extent(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the start and the end of a value with a 32-bit length."""
    if at + 4 > end:
        raise _Malformed
    after = at + 4 + int(_unpack_u32(data, at)[0])
    if after > end:
        raise _Malformed
    return at + 4, after


def _fixed(data: bytes, at: int, end: int, size: int) -> tuple[bytes, int]:
    if at + size > end:
        raise _Malformed
    return data[at : at + size], at + size


def _decode_bool(data: bytes, at: int, end: int, _depth: int) -> tuple[bool, int]:
    raw, after = _fixed(data, at, end, 1)
    return raw != b"\0", after


def _decode_float(data: bytes, at: int, end: int, _depth: int) -> tuple[Any, int]:
    raw, after = _fixed(data, at, end, 4)
    return _finite(raw, struct.unpack(">f", raw)[0]), after


def _decode_double(data: bytes, at: int, end: int, _depth: int) -> tuple[Any, int]:
    raw, after = _fixed(data, at, end, 8)
    return _finite(raw, struct.unpack(">d", raw)[0]), after


def _finite(raw: bytes, value: float) -> Any:
    # Erlang has no NaN and no infinity: a broker would close the connection that sends one.
    return value if math.isfinite(value) else Undecodable(raw)


def _decode_decimal(data: bytes, at: int, end: int, _depth: int) -> tuple[Decimal, int]:
    raw, after = _fixed(data, at, end, _DECIMAL.size)
    scale, unscaled = _DECIMAL.unpack(raw)
    return Decimal(unscaled).scaleb(-scale), after


def _decode_timestamp(data: bytes, at: int, end: int, _depth: int) -> tuple[Any, int]:
    raw, after = _fixed(data, at, end, 8)
    try:
        return datetime.fromtimestamp(int.from_bytes(raw, "big"), UTC), after
    except (ValueError, OverflowError, OSError):
        return Undecodable(raw), after


def _decode_bytes(data: bytes, at: int, end: int, _depth: int) -> tuple[bytes, int]:
    at, after = _extent(data, at, end)
    return data[at:after], after


def _decode_void(_data: bytes, at: int, _end: int, _depth: int) -> tuple[None, int]:
    return None, at


def _decode_array(data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    at, after = _extent(data, at, end)
    if depth == MAX_DEPTH:
        return Undecodable(data[at:after]), after
    return _array(data, at, after, depth + 1), after


def _decode_table(data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    at, after = _extent(data, at, end)
    if depth == MAX_DEPTH:
        return Undecodable(data[at:after]), after
    return _table(data, at, after, depth + 1), after


_Decoder = Callable[[bytes, int, int, int], tuple[Any, int]]
_decoders: Final[dict[int, _Decoder]] = {
    ord("t"): _decode_bool,
    ord("f"): _decode_float,
    ord("d"): _decode_double,
    ord("D"): _decode_decimal,
    ord("T"): _decode_timestamp,
    ord("x"): _decode_bytes,
    ord("V"): _decode_void,
    ord("A"): _decode_array,
    ord("F"): _decode_table,
}


def encode_table(fields: Mapping[str, Any]) -> bytes:
    """Return ``fields`` after their length; ValueError names the field that can't be sent."""
    pieces: list[bytes] = []
    for name, value in fields.items():
        try:
            pieces.append(_encode_name(name))
            pieces.append(_encoders.get(type(value), _no_form)(value))
        except ValueError as exc:
            raise ValueError(f"header {name!r}: {exc}") from exc
    raw = b"".join(pieces)
    return _U32.pack(len(raw)) + raw


# Names are few and repeated.
_encode_name: Final = functools.lru_cache(maxsize=1024)(encode_short)


def _encode_value(value: Any) -> bytes:
    return _encoders.get(type(value), _no_form)(value)


def _no_form(value: Any) -> bytes:
    raise ValueError(f"{type(value).__name__} has no AMQP form")


def _with_length(kind: bytes, raw: bytes) -> bytes:
    return kind + _U32.pack(len(raw)) + raw


def _encode_str(value: str) -> bytes:
    raw = encode_text(value)
    return _LONG_STRING.pack(b"S", len(raw)) + raw


def _encode_int(value: int) -> bytes:
    if value in _INT32:
        return _INT.pack(b"I", value)
    if value in _INT64:
        return _LONG.pack(b"l", value)
    raise ValueError("an integer has at most 64 bits")


def _encode_float(value: float) -> bytes:
    if not math.isfinite(value):
        raise ValueError("a float must be finite")
    return struct.pack(">cd", b"d", value)


def _encode_decimal(value: Decimal) -> bytes:
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or not -255 <= exponent <= 0:
        raise ValueError("a decimal has 0 to 255 places")
    unscaled = int(value.scaleb(-exponent))
    if unscaled not in _INT32:
        raise ValueError("a decimal has at most 32 bits")
    return b"D" + _DECIMAL.pack(-exponent, unscaled)


def _encode_timestamp(value: datetime) -> bytes:
    seconds = calendar.timegm(value.utctimetuple())
    if seconds < 0:
        raise ValueError("a timestamp is not before 1970")
    return struct.pack(">cQ", b"T", seconds)


def _encode_list(values: list[Any]) -> bytes:
    return _with_length(b"A", b"".join(map(_encode_value, values)))


def _encode_dict(fields: dict[str, Any]) -> bytes:
    return b"F" + encode_table(fields)


_encoders: Final[dict[type, Callable[[Any], bytes]]] = {
    str: _encode_str,
    int: _encode_int,
    bool: lambda value: b"t\1" if value else b"t\0",
    float: _encode_float,
    bytes: lambda value: _with_length(b"x", value),
    # As plain bytes: the original bytes might end a connection of ours.
    Undecodable: lambda value: _with_length(b"x", value),
    Undecoded: lambda value: _with_length(b"x", value),
    type(None): lambda _value: b"V",
    Decimal: _encode_decimal,
    datetime: _encode_timestamp,
    list: _encode_list,
    dict: _encode_dict,
}
