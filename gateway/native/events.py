"""Events from the data plane, decoded from bytes. Pure; docs/dataplane-protocol.md defines them.

The data plane is our own process, and yet its messages are checked like a stranger's: their content
is from strangers. After a :class:`~gateway.native.wire.WireError` nothing that follows can be
decoded; drop the link and attach again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from gateway.native.table import MAX_MESSAGE, VERSION, EventKind
from gateway.native.wire import U32, Connections, WireError, decode


class AttachedEvent(NamedTuple):
    """The answer to ``hello``. ``attachment`` counts control planes; the last one left ``blob``."""

    pid: int
    attachment: int
    readers: int
    ports: list[int]
    blob: bytes


#: Connections, their common auth state (empty for none), and the text that they sent.
Verb: TypeAlias = tuple[Connections, bytes, bytes]


class VerbsEvent(NamedTuple):
    """Verbs of readers: answer each connection once."""

    verbs: list[Verb]


class PublishedEvent(NamedTuple):
    """The report that all fan-outs up to ``number`` are over."""

    number: int


class HandoverEvent(NamedTuple):
    """A request for this process; its descriptor arrives with the message's first byte."""

    address: str


class FullEvent(NamedTuple):
    """A full address: ask our connections from it for a sign of life."""

    address: str


class CountersEvent(NamedTuple):
    """Values by name; names that are missing haven't changed."""

    values: dict[str, int]


class RefusedEvent(NamedTuple):
    """The reason why the data plane cuts us off."""

    why: str


Event = (
    AttachedEvent
    | VerbsEvent
    | PublishedEvent
    | HandoverEvent
    | FullEvent
    | CountersEvent
    | RefusedEvent
)

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


def _decode(number: int, body: bytes) -> Event:
    made = _EVENTS.get(number)
    if made is None:
        raise WireError(f"no event has type {number}")
    return made(**decode(number, body))


def _attached(version: int, **fields: Any) -> AttachedEvent:
    if version != VERSION:
        raise WireError(f"version {version} of the protocol")
    return AttachedEvent(**fields)


def _verbs(verbs: list[Verb]) -> VerbsEvent:
    if not all(connections for connections, _, _ in verbs):
        raise WireError("a verb that nobody says")
    return VerbsEvent(verbs)


_EVENTS: Final[Mapping[int, Callable[..., Event]]] = {
    EventKind.ATTACHED: _attached,
    EventKind.VERBS: _verbs,
    EventKind.PUBLISHED: PublishedEvent,
    EventKind.HANDOVER: HandoverEvent,
    EventKind.COUNTERS: lambda counters: CountersEvent(dict(counters)),
    EventKind.REFUSED: RefusedEvent,
    EventKind.FULL: FullEvent,
}
