"""Commands to the data plane, as bytes. Pure; docs/dataplane-protocol.md defines them.

Each function makes one whole message. The largest are bounded by whoever calls (see
:func:`that_fit`); one that is too large all the same is a WireError here, instead of a
link that is cut off at the other end.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gateway.frames import Variant
from gateway.native.wire import (
    CONNECTION_BYTES,
    MAX_MESSAGE,
    U8,
    U16,
    U32,
    U64,
    VERSION,
    Connection,
    WireError,
)
from gateway.publication import Publication
from gateway.settings import ANY_ORIGIN, GatewaySettings
from gateway.standing import Standing, encode_badge
from newsfabric.closing import CLOSE_REASONS, CloseReason
from newsfabric.topics import SlowPolicy, TopicPolicy

_HEAD: Final = struct.Struct("<IB")
_POLICY: Final = struct.Struct("<IBB")
_MESSAGE: Final = struct.Struct("<16sQq")
# A subscribe goes on there after its connection.
_AFTER_CONNECTION: Final = _HEAD.size + CONNECTION_BYTES
_SLOW: Final[dict[SlowPolicy, int]] = {"disconnect": 0, "conflate": 1, "drop_oldest": 2}
_MAX_U32: Final = 2**32 - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Replay:
    """How far back a subscribe starts: ``kind`` 1 the last ``value``, 2 since ms.

    0 is the newest of each key, where the topic has these; 4 is 2 and 0. 3 is the :func:`batch` of
    number ``value``; of number 0: what the command gives as older messages.
    """

    kind: int = 0
    value: int = 0


#: Between the labels of a series, which is all that the data plane knows of them.
SERIES: Final = ","
_SERIES_BYTES: Final = 64

# So many batches the data plane keeps; one more makes it forget the first.
MOST_BATCHES: Final = 32


def hello() -> bytes:
    """The first command."""
    return _command(1, b"nfdp", U16.pack(VERSION))


def settings(told: GatewaySettings, *, capacity: int, handovers: int = 0) -> bytes:
    """Every limit of ``told``, with room for ``capacity`` readers.

    At most ``handovers`` connections that were handed over may be open at once (0: any number).
    """
    reader, outbox, hub, native = told.reader, told.outbox, told.hub, told.native
    numbers = [
        capacity,
        _ms(told.heartbeat),
        _ms(told.linger),
        told.retry_after_ms,
        native.head_bytes,
        _ms(told.unfinished_seconds),
        reader.frame_bytes,
        reader.topics,
        reader.verbs,
        # Whole numbers only, and a reader who waits must be able to speak again.
        max(1, round(reader.verbs_per_second)),
        reader.refusals,
        reader.waiting,
        outbox.hard_bytes,
        outbox.soft_bytes,
        _ms(outbox.soft_seconds),
        told.replay_bytes,
        told.fanout_chunk,
        native.deflate_bytes,
        told.per_address,
        hub.topics,
    ]
    rest = [
        hub.keys,
        hub.identities,
        _ms(hub.identity_seconds),
        _ms(native.alone_seconds),
        _ms(told.drain_seconds, least=0),
        told.drain_per_second,
    ]
    origins = () if told.origins == ANY_ORIGIN else told.origins
    return _command(
        2,
        _u32s(numbers),
        U64.pack(hub.memory_bytes),
        _u32s(rest),
        U16.pack(len(origins)),
        *(_text16(origin) for origin in origins),
        U8.pack(len(CLOSE_REASONS)),
        *(_reason(reason) for reason in CLOSE_REASONS),
        _text8(told.tokens.cookie or ""),
        U32.pack(_ms(native.pong_seconds, least=0)),
        U8.pack(told.websocket),
        U8.pack(told.sockjs_cookie),
        U32.pack(handovers),
        U16.pack(len(native.proxy_from)),
        *(_text8(network) for network in native.proxy_from),
        U64.pack(told.outbox_memory),
        U32.pack(_ms(told.stalled_seconds)),
    )


def publish(number: int, publication: Publication) -> bytes:
    """Send ``publication`` to its topic's readers, and measure how long it was under way."""
    topic = _topic(publication.envelope.topic, publication.policy)
    command = _command(3, U64.pack(number), topic, message(publication))
    return command if publication.way is None else _stamp(publication) + command


def seed(
    topic: str,
    policy: TopicPolicy,
    history: Sequence[Publication],
    latest: Sequence[Publication],
    *,
    complete: bool,
) -> bytes:
    """A topic's past; see :func:`that_fit` for how much of one there is room for."""
    return _command(
        4,
        _topic(topic, policy),
        U8.pack(complete),
        _messages(history),
        _messages(latest),
    )


def subscribe(
    connection: Connection,
    topic: str,
    policy: TopicPolicy,
    *,
    token: int | None,
    replay: Replay,
    ref: bytes,
    push: bytes,
    older: Sequence[Publication] = (),
) -> bytes:
    """Answer a ``subscribe``. With a ``token``: only if memory covers what is asked for."""
    return _command(
        5,
        connection,
        U32.pack(token or 0),
        _topic(topic, policy),
        U8.pack(token is not None),
        U8.pack(replay.kind),
        U64.pack(replay.value),
        U16.pack(len(ref)),
        ref,
        _bytes32(push),
        _messages(older),
    )


def subscribe_again(command: bytes, connection: Connection) -> bytes:
    """What :func:`subscribe` made, for another connection."""
    return command[: _HEAD.size] + connection + command[_AFTER_CONNECTION:]


def unsubscribe(connection: Connection, topic: str, push: bytes) -> bytes:
    """Answer an ``unsubscribe``."""
    return _command(6, connection, _text8(topic), _bytes32(push))


def reply(connection: Connection, push: bytes) -> bytes:
    """Answer any verb with ``push``."""
    return _command(7, connection, _bytes32(push))


def history(
    connection: Connection,
    topic: str,
    policy: TopicPolicy,
    *,
    token: int,
    limit: int,
    before: str | None,
    head: bytes,
) -> bytes:
    """Answer a ``history`` if memory covers it; ``head`` is the push up to the value of more."""
    return _command(
        8,
        connection,
        U32.pack(token),
        _topic(topic, policy),
        U16.pack(limit),
        U8.pack(before is not None),
        bytes(16) if before is None else _id(before),
        _bytes32(head),
    )


def close(connection: Connection, reason: CloseReason) -> bytes:
    """End a connection."""
    return _command(9, connection, _text8(reason.name), U32.pack(reason.retry_after_ms))


def badge(connection: Connection, standing: Standing, push: bytes) -> bytes:
    """Answer a ``login``: from now on the reader is who ``standing`` says, until that ends."""
    login, blob = standing.login, encode_badge(standing)
    return _command(
        16,
        connection,
        _text8("" if login is None else login.user),
        U64.pack(0 if login is None else login.issued_ms),
        U64.pack(0 if login is None else login.ends_ms),
        U16.pack(len(blob)),
        blob,
        _bytes32(push),
    )


def evict(users: Sequence[tuple[str, int]], reason: CloseReason) -> bytes:
    """End the connections of users whose badges were issued until then (ms)."""
    named = (_text8(user) + U64.pack(until_ms) for user, until_ms in users)
    return _command(17, _text8(reason.name), U32.pack(len(users)), *named)


def remember(blob: bytes) -> bytes:
    """Keep ``blob`` for whoever attaches next."""
    return _command(10, _bytes32(blob))


def drain(seconds: float, per_second: int) -> bytes:
    """Send all readers away and exit."""
    return _command(11, _u32s([_ms(seconds, least=0), per_second]))


def shed(reason: CloseReason, readers: int, retry_ms: int) -> bytes:
    """Send so many readers elsewhere, each to come again within ``retry_ms``."""
    return _command(20, _text8(reason.name), _u32s([readers, retry_ms]))


def count() -> bytes:
    """Ask for counters."""
    return _command(12)


def gone(address: str) -> bytes:
    """One connection from ``address`` that was handed over is closed."""
    return _command(21, _text8(address))


def kept(connections: Mapping[str, int]) -> bytes:
    """What was handed over in earlier attachments and is open still, by address."""
    named = (_text8(address) + U32.pack(count) for address, count in connections.items())
    return _command(22, U32.pack(len(connections)), *named)


def message(publication: Publication) -> bytes:
    """One message as publish, seed and subscribe carry it."""
    envelope = publication.envelope
    version = -1 if envelope.version is None else envelope.version
    return b"".join(
        (
            _MESSAGE.pack(_id(envelope.id), envelope.expires_ms or 0, version),
            _text16(envelope.key or ""),
            _bytes32(publication.frame(Variant.RAW)),
        )
    )


def that_fit(publications: Sequence[Publication], size: int) -> Sequence[Publication]:
    """The newest of ``publications`` (oldest first) whose pushes have ``size`` bytes together."""
    start = len(publications)
    while start > 0:
        size -= len(publications[start - 1].frame(Variant.RAW))
        if size < 0:
            break
        start -= 1
    return publications[start:]


def batch(number: int, topic: str, policy: TopicPolicy, messages: Sequence[Publication]) -> bytes:
    """Messages, oldest first, that many readers will be given."""
    return _command(15, U64.pack(number), _topic(topic, policy), _messages(messages))


def _command(kind: int, *parts: bytes) -> bytes:
    length = 1 + sum(map(len, parts))
    if length > MAX_MESSAGE:
        raise WireError(f"a command of {length} bytes")
    return b"".join((_HEAD.pack(length, kind), *parts))


def _stamp(publication: Publication) -> bytes:
    envelope = publication.envelope
    series = SERIES.join((publication.policy.topic_class, envelope.origin, publication.way or ""))
    if len(series.encode()) > _SERIES_BYTES:
        return b""
    return _command(23, U64.pack(envelope.published_ms), _text8(series))


def _topic(name: str, policy: TopicPolicy) -> bytes:
    return _text8(name) + _POLICY.pack(policy.keep, _SLOW[policy.slow], policy.latest)


def _messages(publications: Sequence[Publication]) -> bytes:
    return U32.pack(len(publications)) + b"".join(map(message, publications))


def _id(id_: str) -> bytes:
    return bytes.fromhex(id_.replace("-", ""))


def _reason(reason: CloseReason) -> bytes:
    rest = struct.pack("<BI", reason.reconnect, reason.retry_after_ms)
    return _text8(reason.name) + U16.pack(reason.code) + _text8(reason.text) + rest


def _u32s(numbers: Iterable[int]) -> bytes:
    return b"".join(U32.pack(min(number, _MAX_U32)) for number in numbers)


def _ms(seconds: float, *, least: int = 1) -> int:
    return max(least, round(seconds * 1000))


def _text8(text: str) -> bytes:
    data = text.encode()
    return U8.pack(len(data)) + data


def _text16(text: str) -> bytes:
    data = text.encode()
    return U16.pack(len(data)) + data


def _bytes32(data: bytes) -> bytes:
    return U32.pack(len(data)) + data
