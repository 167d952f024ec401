"""Events from the data plane, decoded from bytes. Pure; docs/dataplane-protocol.md defines them.

The data plane is our own process, and yet its messages are checked like a stranger's: their content
is from strangers. After a :class:`~gateway.native.wire.WireError` nothing that follows can be
decoded; drop the link and attach again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from gateway.native.wire import (
    CONNECTION_BYTES,
    MAX_MESSAGE,
    U8,
    U16,
    U32,
    U64,
    VERSION,
    Connections,
    EventKind,
    WireError,
)


class Attached(NamedTuple):
    """The answer to ``hello``. ``attachment`` counts control planes; the last one left ``blob``."""

    pid: int
    attachment: int
    readers: int
    ports: tuple[int, ...]
    blob: bytes


#: Connections, their common auth state (empty for none), and the text that they sent.
Verb: TypeAlias = tuple[Connections, bytes, bytes]


class Verbs(NamedTuple):
    """Verbs of readers: answer each connection once."""

    verbs: list[Verb]


class Published(NamedTuple):
    """The report that all fan-outs up to ``number`` are over."""

    number: int


class Handover(NamedTuple):
    """A request for this process; its descriptor arrives with the message's first byte."""

    address: str


class Full(NamedTuple):
    """A full address: ask our connections from it for a sign of life."""

    address: str


class Counters(NamedTuple):
    """Values by name; names that are missing haven't changed."""

    values: dict[str, int]


class Refused(NamedTuple):
    """The reason why the data plane cuts us off."""

    why: str


Event = Attached | Verbs | Published | Handover | Full | Counters | Refused

# ``why`` of a Refused that answers ``hello``, if the data plane is of another release.
OTHER_VERSION: Final = "bad value of version"
# ``why`` of a Refused when another control plane has attached.
REPLACED: Final = "replaced"
# ``why`` of a Refused when another data plane has our readers: attach again, over the same path.
TAKEN_OVER: Final = "taken_over"


class Decoder:
    """A decoder of bytes, in any pieces, to events."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield the events that are whole now. WireError: nothing that follows can be decoded."""
        self._buffer += data
        at = 0
        try:
            while (end := self._end_of_message(at)) is not None:
                event = _decode(self._buffer[at + 4], bytes(self._buffer[at + 5 : end]))
                at = end
                yield event
        finally:
            del self._buffer[:at]

    def _end_of_message(self, at: int) -> int | None:
        if len(self._buffer) < at + 4:
            return None
        (length,) = U32.unpack_from(self._buffer, at)
        if not 1 <= length <= MAX_MESSAGE:
            raise WireError(f"a message of {length} bytes")
        end = at + 4 + int(length)
        return end if end <= len(self._buffer) else None


def _decode(kind: int, body: bytes) -> Event:
    read = _EVENTS.get(kind)
    if read is None:
        raise WireError(f"no event has type {kind}")
    fields = _Fields(body)
    event = read(fields)
    fields.end()
    return event


class _Fields:
    """The fields of a body, taken off its front; WireError where it is too short."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def take(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if self._at > len(self._body):
            raise WireError("a message ends in the middle of a field")
        return self._body[start : self._at]

    def end(self) -> None:
        if self._at != len(self._body):
            raise WireError("a message goes on after its last field")

    def number(self, form: struct.Struct) -> int:
        (value,) = form.unpack(self.take(form.size))
        return int(value)

    def data(self, form: struct.Struct) -> bytes:
        return self.take(self.number(form))

    def verb(self) -> Verb:
        connections = self.take(CONNECTION_BYTES * self.number(U16))
        if not connections:
            raise WireError("a verb that nobody says")
        return connections, self.data(U16), self.data(U32)

    def text(self) -> str:
        try:
            return self.data(U8).decode()
        except UnicodeDecodeError as exc:
            raise WireError("a text isn't UTF-8") from exc


def _attached(fields: _Fields) -> Attached:
    version = fields.number(U16)
    if version != VERSION:
        raise WireError(f"version {version} of the protocol")
    return Attached(
        pid=fields.number(U32),
        attachment=fields.number(U32),
        readers=fields.number(U32),
        ports=tuple(fields.number(U16) for _ in range(fields.number(U8))),
        blob=fields.data(U32),
    )


_EVENTS: Final[Mapping[int, Callable[[_Fields], Event]]] = {
    EventKind.ATTACHED: _attached,
    EventKind.VERBS: lambda fields: Verbs([fields.verb() for _ in range(fields.number(U32))]),
    EventKind.PUBLISHED: lambda fields: Published(fields.number(U64)),
    EventKind.HANDOVER: lambda fields: Handover(fields.text()),
    EventKind.FULL: lambda fields: Full(fields.text()),
    EventKind.COUNTERS: lambda fields: Counters(
        {fields.text(): fields.number(U64) for _ in range(fields.number(U16))}
    ),
    EventKind.REFUSED: lambda fields: Refused(fields.text()),
}
