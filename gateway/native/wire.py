"""The codec of the control protocol: bodies of messages, as the table states them. Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from gateway.native.table import FORMS, MAX_MESSAGE, CommandKind, EventKind

# Of each thread u16, slot u32, generation u32: only the data plane knows their meaning.
Connections = bytes
CONNECTION_BYTES: Final = 10

U8: Final = struct.Struct("<B")
U16: Final = struct.Struct("<H")
U32: Final = struct.Struct("<I")
U64: Final = struct.Struct("<Q")
_HEAD: Final = struct.Struct("<IB")
_SHORT: Final = "a message ends in the middle of a field"


class WireError(ValueError):
    """Error: bytes received, or about to be sent, break the protocol."""


class _Body:
    """A body that is read from its front; WireError where it is too short."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def take_bytes(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if self._at > len(self._body):
            raise WireError(_SHORT)
        return self._body[start : self._at]

    def number(self, layout: struct.Struct) -> int:
        try:
            value: int = layout.unpack_from(self._body, self._at)[0]
        except struct.error as exc:
            raise WireError(_SHORT) from exc
        self._at += layout.size
        return value

    def end(self) -> None:
        if self._at != len(self._body):
            raise WireError("a message goes on after its last field")


class _Form(NamedTuple):
    """A form of a field: its value as bytes, and its value from the front of a body."""

    put: Callable[[Any], bytes]
    take: Callable[[_Body], Any]


def sized(count: struct.Struct, data: bytes) -> bytes:
    """Return ``data`` behind its length."""
    return count.pack(len(data)) + data


def message(kind: CommandKind | EventKind, *parts: bytes) -> bytes:
    """Return the message whose body is ``parts``; WireError if it is too long."""
    length = 1 + sum(map(len, parts))
    if length > MAX_MESSAGE:
        raise WireError(f"a message of {length} bytes")
    return b"".join((_HEAD.pack(length, kind), *parts))


def encode(kind: CommandKind | EventKind, *values: Any) -> bytes:
    """Return the message with the ``values`` of its fields."""
    return message(kind, _put(_FIELDS[kind], values))


def decode(kind: int, body: bytes) -> dict[str, Any]:
    """Return a body's fields by name; WireError if it isn't exactly so long."""
    rest = _Body(body)
    fields = {name: form.take(rest) for name, form in _FIELDS[kind].items()}
    rest.end()
    return fields


def _put(fields: dict[str, _Form], values: tuple[Any, ...]) -> bytes:
    return b"".join(form.put(one) for form, one in zip(fields.values(), values, strict=True))


def _number(layout: str) -> _Form:
    packed = struct.Struct(layout)
    return _Form(packed.pack, lambda body: body.number(packed))


def _fixed(size: int) -> _Form:
    return _Form(bytes, lambda body: body.take_bytes(size))


def _bytes(count: struct.Struct, unit: int = 1) -> _Form:
    return _Form(
        lambda data: count.pack(len(data) // unit) + data,
        lambda body: body.take_bytes(unit * body.number(count)),
    )


def _text(count: struct.Struct) -> _Form:
    def take(body: _Body) -> str:
        try:
            return body.take_bytes(body.number(count)).decode()
        except UnicodeDecodeError as exc:
            raise WireError("a text isn't UTF-8") from exc

    return _Form(lambda text: sized(count, text.encode()), take)


def _list(count: struct.Struct, item: _Form) -> _Form:
    return _Form(
        lambda items: count.pack(len(items)) + b"".join(map(item.put, items)),
        lambda body: [item.take(body) for _ in range(body.number(count))],
    )


def _record(fields: dict[str, _Form]) -> _Form:
    takes = [form.take for form in fields.values()]
    return _Form(
        lambda values: _put(fields, values),
        lambda body: tuple([take(body) for take in takes]),
    )


def _fields(body: str) -> dict[str, _Form]:
    words = [field.split() for field in body.split(", ") if field]
    return {name: _form(*form or [name]) for name, *form in words}


def _form(name: str) -> _Form:
    if name not in _forms:
        meaning = FORMS[name]
        if meaning.startswith("["):
            item, _, bits = meaning[1:].partition("]")
            _forms[name] = _list(_COUNTS[bits], _form(item))
        elif " " in meaning:
            _forms[name] = _record(_fields(meaning))
        else:
            _forms[name] = _form(meaning)
    return _forms[name]


_COUNTS: Final = {"8": U8, "16": U16, "32": U32}
_forms: dict[str, _Form] = {
    "u8": _number("<B"),
    "u16": _number("<H"),
    "u32": _number("<I"),
    "u64": _number("<Q"),
    "i64": _number("<q"),
    "flag": _number("<?"),
    "text8": _text(U8),
    "text16": _text(U16),
    "bytes16": _bytes(U16),
    "bytes32": _bytes(U32),
    "id": _fixed(16),
    "magic": _fixed(4),
    # Left as bytes: only the data plane knows their meaning.
    "connections": _bytes(U16, CONNECTION_BYTES),
}
_FIELDS: Final[dict[int, dict[str, _Form]]] = {
    kind: _fields(kind.body) for kind in (*CommandKind, *EventKind)
}
