"""Commands to the data plane, as bytes. Pure; docs/dataplane-protocol.md defines them.

Each function except :func:`subscription` returns whole messages. The callers bound the largest
ones. A message that is too large all the same raises WireError here: otherwise the other end would
cut off the link.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gateway.answers.access import AuthState, encode_auth
from gateway.native.marks import encode_mark
from gateway.native.wire import (
    CONNECTION_BYTES,
    MAX_MESSAGE,
    U8,
    U16,
    U32,
    U64,
    VERSION,
    CommandKind,
    Connections,
    WireError,
)
from gateway.process.settings import ANY_ORIGIN, GatewaySettings
from gateway.wire.frames import Variant
from gateway.wire.publication import Publication
from newsfabric.closing import CLOSE_REASONS, CloseReason
from newsfabric.messages.envelope import taken_ms
from newsfabric.topics import SlowPolicy, TopicPolicy

_HEAD: Final = struct.Struct("<IB")
_MESSAGE: Final = struct.Struct("<16sq")
_SLOW: Final[dict[SlowPolicy, int]] = {"disconnect": 0, "conflate": 1, "drop_oldest": 2}
_MAX_U32: Final = 2**32 - 1
# Sixteen unused bytes of settings. After a downgrade, a data plane of version 6 takes over only if
# the first number isn't 0.
_UNUSED: Final = (1, 0, 0, 0)


#: Separates the labels of a series; the data plane doesn't know their meaning.
SERIES: Final = ","
_SERIES_BYTES: Final = 64

# Limit of batches that the data plane keeps; one more makes it forget the first.
MOST_BATCHES: Final = 32


def hello() -> bytes:
    """Return the first command."""
    return _command(CommandKind.HELLO, b"nfdp", U16.pack(VERSION))


def settings(values: GatewaySettings, *, capacity: int, handovers: int = 0) -> bytes:
    """Return all limits in ``values`` for the data plane, with room for ``capacity`` readers.

    At most ``handovers`` connections that were handed over may be open at once (0: any number).
    """
    reader, outbox, hub, native = values.reader, values.outbox, values.hub, values.native
    numbers = [
        capacity,
        _ms(values.heartbeat),
        _ms(values.linger),
        values.retry_after_ms,
        native.head_bytes,
        _ms(values.unfinished_seconds),
        reader.frame_bytes,
        reader.topics,
        reader.verbs,
        # Whole numbers only, and a reader who waits must be able to send again.
        max(1, round(reader.verbs_per_second)),
        reader.refusals,
        reader.waiting,
        outbox.hard_bytes,
        outbox.soft_bytes,
        _ms(outbox.soft_seconds),
        # Unused, too.
        0,
        values.fanout_chunk,
        native.deflate_bytes,
        values.per_address,
        *_UNUSED,
        hub.identities,
        _ms(hub.identity_seconds),
        _ms(native.alone_seconds),
        _ms(values.drain_seconds, least=0),
        values.drain_per_second,
    ]
    origins = () if values.origins == ANY_ORIGIN else values.origins
    return _command(
        CommandKind.SETTINGS,
        _u32s(numbers),
        U16.pack(len(origins)),
        *(_sized(U16, origin.encode()) for origin in origins),
        U8.pack(len(CLOSE_REASONS)),
        *(_reason(reason) for reason in CLOSE_REASONS),
        _text8(values.tokens.cookie or ""),
        U32.pack(_ms(native.pong_seconds, least=0)),
        U8.pack(values.websocket),
        U8.pack(values.sockjs_cookie),
        U32.pack(handovers),
        U16.pack(len(native.proxy_from)),
        *(_text8(network) for network in native.proxy_from),
        U64.pack(values.outbox_memory),
        U32.pack(_ms(values.stalled_seconds)),
    )


def publish(number: int, publication: Publication) -> bytes:
    """Return the commands that send ``publication`` to its topic's readers and measure its delay.

    Their mark reports to a successor of ours that the number was dealt with.
    """
    topic = _topic(publication.envelope.topic, publication.policy)
    mark = encode_mark(publication.envelope)
    command = _command(CommandKind.MARK, U16.pack(len(mark)), mark) + _command(
        CommandKind.PUBLISH, U64.pack(number), topic, *_message(publication)
    )
    return command if publication.way is None else _stamp(publication) + command


def subscribe(connections: Connections, subscription: bytes) -> bytes:
    """Return the answer to a ``subscribe``, with the bytes made by :func:`subscription`."""
    return _command(CommandKind.SUBSCRIBE, _to(connections), subscription)


def subscription(
    topic: str,
    policy: TopicPolicy,
    *,
    batch: int,
    seen: bool,
    ref: bytes,
    push: bytes,
    messages: Sequence[Publication] = (),
) -> bytes:
    """Return ``push`` and the :func:`batch` of that number (0: ``messages``), for any connections.

    Unless ``seen``, a copy that is published later is sent to these readers, too.
    """
    parts = (
        _topic(topic, policy),
        U64.pack(batch),
        U8.pack(seen),
        _sized(U16, ref),
        _sized(U32, push),
        _messages(messages),
    )
    return b"".join(parts)


def unsubscribe(connections: Connections, topic: str, push: bytes) -> bytes:
    """Return the answer to an ``unsubscribe``."""
    return _command(CommandKind.UNSUBSCRIBE, _to(connections), _text8(topic), _sized(U32, push))


def reply(connections: Connections, push: bytes) -> bytes:
    """Return the answer ``push`` to any verb."""
    return _command(CommandKind.REPLY, _to(connections), _sized(U32, push))


def close(connections: Connections, reason: CloseReason) -> bytes:
    """Return the command that ends connections."""
    ending = _text8(reason.name), U32.pack(reason.retry_after_ms)
    return _command(CommandKind.CLOSE, _to(connections), *ending)


def auth(connections: Connections, auth: AuthState, push: bytes) -> bytes:
    """Return the answer to a ``login``: the connections have ``auth`` until it ends."""
    login, blob = auth.login, encode_auth(auth)
    return _command(
        CommandKind.AUTH,
        _to(connections),
        _text8("" if login is None else login.user),
        U64.pack(0 if login is None else login.issued_ms),
        U64.pack(0 if login is None else login.ends_ms),
        _sized(U16, blob),
        _sized(U32, push),
    )


def evict(users: Sequence[tuple[str, int]], reason: CloseReason) -> bytes:
    """Return the command to close users whose auth states were issued until their time (ms)."""
    named = (_text8(user) + U64.pack(until_ms) for user, until_ms in users)
    return _command(CommandKind.EVICT, _text8(reason.name), U32.pack(len(users)), *named)


def remember(blob: bytes) -> bytes:
    """Return the command that keeps ``blob`` for the control plane that attaches next."""
    return _command(CommandKind.REMEMBER, _sized(U32, blob))


def drain(seconds: float, per_second: int) -> bytes:
    """Return the command to send all readers away and exit."""
    return _command(CommandKind.DRAIN, _u32s([_ms(seconds, least=0), per_second]))


def shed(reason: CloseReason, readers: int, retry_ms: int) -> bytes:
    """Return the command to send ``readers`` elsewhere, each to return within ``retry_ms``."""
    return _command(CommandKind.SHED, _text8(reason.name), _u32s([readers, retry_ms]))


def count() -> bytes:
    """Return the request for counters."""
    return _command(CommandKind.COUNT)


def gone(address: str) -> bytes:
    """Return the report that a connection from ``address`` that was handed over is closed."""
    return _command(CommandKind.GONE, _text8(address))


def kept(connections: Mapping[str, int]) -> bytes:
    """Return the report of open connections that earlier attachments handed over, by address."""
    named = (_text8(address) + U32.pack(count) for address, count in connections.items())
    return _command(CommandKind.KEPT, U32.pack(len(connections)), *named)


def _message(publication: Publication) -> tuple[bytes, bytes]:
    """Return a message as publish, batch and subscribe carry it: head and push. The head is made
    once for each message: a history is sent a thousand messages at a time."""
    push = publication.frame(Variant.RAW)
    if publication.native_head is None:
        envelope = publication.envelope
        version = -1 if envelope.version is None else envelope.version
        head = _MESSAGE.pack(_id(envelope.id), version) + _sized(U16, (envelope.key or "").encode())
        publication.native_head = head + U32.pack(len(push))
    return publication.native_head, push


def batch(number: int, topic: str, policy: TopicPolicy, messages: Sequence[Publication]) -> bytes:
    """Return the command that sends messages, oldest first, for many readers."""
    return _command(CommandKind.BATCH, U64.pack(number), _topic(topic, policy), _messages(messages))


def _command(kind: CommandKind, *parts: bytes) -> bytes:
    length = 1 + sum(map(len, parts))
    if length > MAX_MESSAGE:
        raise WireError(f"a command of {length} bytes")
    return b"".join((_HEAD.pack(length, kind), *parts))


def _to(connections: Connections) -> bytes:
    return U16.pack(len(connections) // CONNECTION_BYTES) + connections


def _stamp(publication: Publication) -> bytes:
    envelope = publication.envelope
    series = SERIES.join((publication.policy.topic_class, envelope.origin, publication.way or ""))
    if len(series.encode()) > _SERIES_BYTES:
        return b""
    return _command(CommandKind.STAMP, U64.pack(taken_ms(envelope)), _text8(series))


def _topic(name: str, policy: TopicPolicy) -> bytes:
    return _text8(name) + U8.pack(_SLOW[policy.slow])


def _messages(publications: Sequence[Publication]) -> bytes:
    parts = [part for publication in publications for part in _message(publication)]
    return U32.pack(len(publications)) + b"".join(parts)


def _id(id_: str) -> bytes:
    return bytes.fromhex(id_.replace("-", ""))


def _reason(reason: CloseReason) -> bytes:
    rest = struct.pack("<BI", reason.reconnect, reason.retry_after_ms)
    return _text8(reason.name) + U16.pack(reason.code) + _text8(reason.text) + rest


def _u32s(numbers: Iterable[int]) -> bytes:
    return b"".join(U32.pack(min(number, _MAX_U32)) for number in numbers)


def _ms(seconds: float, *, least: int = 1) -> int:
    return max(least, round(seconds * 1000))


def _sized(form: struct.Struct, data: bytes) -> bytes:
    return form.pack(len(data)) + data


def _text8(text: str) -> bytes:
    data = text.encode()
    return U8.pack(len(data)) + data
