"""Commands to the data plane, as bytes. Pure; docs/dataplane-protocol.md defines them.

Each function except :func:`acceptance` returns whole messages. The callers bound the largest
ones. A message that is too large all the same raises WireError here: otherwise the other end would
cut off the link.

Commands for each message and frequent answer are packed by hand: the table's codec takes twice as
long. The answer to a rare verb needs no function here: its sender calls :func:`.wire.encode`.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from gateway.answers.access import AuthState, encode_auth
from gateway.native.saved_logs import encode_given
from gateway.native.table import MAGIC, VERSION, CommandKind
from gateway.native.wire import (
    CONNECTION_BYTES,
    U8,
    U16,
    U32,
    U64,
    Connections,
    encode,
    message,
    sized,
)
from gateway.process.settings import ANY_ORIGIN, GatewaySettings
from gateway.wire.frames import Framing
from gateway.wire.publication import Publication
from newsfabric.closing import CLOSE_REASONS, CloseReason, ErrorCode
from newsfabric.messages.envelope import taken_ms
from newsfabric.topics import SlowPolicy, TopicPolicy

_MESSAGE: Final = struct.Struct("<16sq")
_SLOW: Final[dict[SlowPolicy, int]] = {"disconnect": 0, "conflate": 1, "drop_oldest": 2}
_MAX_U32: Final = 2**32 - 1

#: Separates the labels of a series; the data plane doesn't know their meaning.
SERIES: Final = ","
_SERIES_BYTES: Final = 64

# Limit of batches that the data plane keeps; one more makes it forget the first.
MOST_BATCHES: Final = 32


def hello() -> bytes:
    """Return the first command."""
    return encode(CommandKind.HELLO, MAGIC, VERSION)


def settings(values: GatewaySettings, *, capacity: int, handovers: int = 0) -> bytes:
    """Return all limits in ``values`` for the data plane, with room for ``capacity`` readers.

    At most ``handovers`` connections that were handed over may be open at once (0: any number).
    """
    reader, outbox, hub, native = values.reader, values.outbox, values.hub, values.native
    numbers = {
        "capacity": capacity,
        "heartbeat_ms": _ms(values.heartbeat),
        "linger_ms": _ms(values.linger),
        "retry_after_ms": values.retry_after_ms,
        "head_bytes": native.head_bytes,
        "unfinished_ms": _ms(values.unfinished_seconds),
        "message_bytes": reader.frame_bytes,
        "topics": reader.topics,
        "verbs": reader.verbs,
        # Whole numbers only, and a reader who waits must be able to send again.
        "verbs_per_second": max(1, round(reader.verbs_per_second)),
        "refusals": reader.refusals,
        "waiting": reader.waiting,
        "hard_bytes": outbox.hard_bytes,
        "soft_bytes": outbox.soft_bytes,
        "soft_ms": _ms(outbox.soft_seconds),
        "stalled_ms": _ms(values.stalled_seconds),
        "fanout_chunk": values.fanout_chunk,
        "deflate_bytes": native.deflate_bytes,
        "per_address": values.per_address,
        "handovers": handovers,
        "identities": hub.identities,
        "identity_ms": _ms(hub.identity_seconds),
        "alone_ms": _ms(native.alone_seconds),
        "drain_ms": _ms(values.drain_seconds, least=0),
        "drain_per_second": values.drain_per_second,
        "pong_ms": _ms(native.pong_seconds, least=0),
    }
    others = {
        "outbox_bytes": values.outbox_memory,
        "websocket": values.websocket,
        "sockjs_cookie": values.sockjs_cookie,
        "cookie": values.tokens.cookie or "",
        "origins": () if values.origins == ANY_ORIGIN else values.origins,
        "proxy_from": native.proxy_from,
        "reasons": [dataclasses.asdict(reason) for reason in CLOSE_REASONS],
        "errors": {code.name.lower(): code for code in ErrorCode},
    }
    values_by_name = {name: _u32(number) for name, number in numbers.items()} | others
    return encode(CommandKind.SETTINGS, orjson.dumps(values_by_name))


def publish(number: int, publication: Publication) -> bytes:
    """Return the commands that send ``publication`` to its topic's readers and measure its delay.

    Their mark reports to a successor of ours that the number was dealt with.
    """
    topic = _topic(publication.envelope.topic, publication.policy)
    mark = encode_given(publication.envelope)
    command = message(CommandKind.MARK, U16.pack(len(mark)), mark) + message(
        CommandKind.PUBLISH, U64.pack(number), topic, *_message(publication)
    )
    return command if publication.way is None else _stamp(publication) + command


def subscribe(connections: Connections, acceptance: bytes) -> bytes:
    """Return the answer to a ``subscribe``, with the bytes made by :func:`acceptance`."""
    return message(CommandKind.SUBSCRIBE, _to(connections), acceptance)


def acceptance(
    topic: str,
    policy: TopicPolicy,
    *,
    batch: int,
    seen: bool,
    ref: bytes,
    push: bytes,
    messages: Sequence[Publication] = (),
) -> bytes:
    """Return an acceptance for any connections: ``push``, then batch ``batch`` (0: ``messages``).

    Unless ``seen``, a copy that is published later is sent to these readers, too.
    """
    parts = (
        _topic(topic, policy),
        U64.pack(batch),
        U8.pack(seen),
        sized(U16, ref),
        sized(U32, push),
        _messages(messages),
    )
    return b"".join(parts)


def unsubscribe(connections: Connections, topic: str, push: bytes) -> bytes:
    """Return the answer to an ``unsubscribe``."""
    return message(CommandKind.UNSUBSCRIBE, _to(connections), _text8(topic), sized(U32, push))


def reply(connections: Connections, push: bytes) -> bytes:
    """Return the answer ``push`` to any verb."""
    return message(CommandKind.REPLY, _to(connections), sized(U32, push))


def close(connections: Connections, reason: CloseReason) -> bytes:
    """Return the command that ends connections."""
    return encode(CommandKind.CLOSE, connections, reason.name, reason.retry_after_ms)


def auth(connections: Connections, auth: AuthState, push: bytes) -> bytes:
    """Return the answer to a ``login``: the connections have ``auth`` until it ends."""
    login = auth.login
    owner = ("", 0, 0) if login is None else (login.user, login.issued_ms, login.ends_ms)
    return encode(CommandKind.AUTH, connections, *owner, encode_auth(auth), push)


def evict(users: Sequence[tuple[str, int]], reason: CloseReason) -> bytes:
    """Return the command to close users whose auth states were issued until their time (ms)."""
    return encode(CommandKind.EVICT, reason.name, users)


def remember(blob: bytes) -> bytes:
    """Return the command that keeps ``blob`` for the control plane that attaches next."""
    return encode(CommandKind.REMEMBER, blob)


def drain(seconds: float, per_second: int) -> bytes:
    """Return the command to send all readers away and exit."""
    return encode(CommandKind.DRAIN, _u32(_ms(seconds, least=0)), _u32(per_second))


def shed(reason: CloseReason, readers: int, retry_ms: int) -> bytes:
    """Return the command to send ``readers`` elsewhere, each to return within ``retry_ms``."""
    return encode(CommandKind.SHED, reason.name, _u32(readers), _u32(retry_ms))


def count() -> bytes:
    """Return the request for counters."""
    return encode(CommandKind.COUNT)


def gone(address: str) -> bytes:
    """Return the report that a connection from ``address`` that was handed over is closed."""
    return encode(CommandKind.GONE, address)


def kept(connections: Mapping[str, int]) -> bytes:
    """Return the report of open connections that earlier attachments handed over, by address."""
    return encode(CommandKind.KEPT, list(connections.items()))


def _message(publication: Publication) -> tuple[bytes, bytes]:
    """Return a message as publish, batch and subscribe carry it: head and push. The head is made
    once for each message: a history is sent a thousand messages at a time."""
    push = publication.frame(Framing.RAW)
    if publication.native_head is None:
        envelope = publication.envelope
        version = -1 if envelope.version is None else envelope.version
        head = _MESSAGE.pack(_id(envelope.id), version) + sized(U16, (envelope.key or "").encode())
        publication.native_head = head + U32.pack(len(push))
    return publication.native_head, push


def batch(number: int, topic: str, policy: TopicPolicy, messages: Sequence[Publication]) -> bytes:
    """Return the command that sends messages, oldest first, for many readers."""
    return message(CommandKind.BATCH, U64.pack(number), _topic(topic, policy), _messages(messages))


def _to(connections: Connections) -> bytes:
    return U16.pack(len(connections) // CONNECTION_BYTES) + connections


def _stamp(publication: Publication) -> bytes:
    envelope = publication.envelope
    series = SERIES.join((publication.policy.topic_class, envelope.origin, publication.way or ""))
    if len(series.encode()) > _SERIES_BYTES:
        return b""
    return message(CommandKind.STAMP, U64.pack(taken_ms(envelope)), _text8(series))


def _topic(name: str, policy: TopicPolicy) -> bytes:
    return _text8(name) + U8.pack(_SLOW[policy.slow])


def _messages(publications: Sequence[Publication]) -> bytes:
    parts = [part for publication in publications for part in _message(publication)]
    return U32.pack(len(publications)) + b"".join(parts)


def _id(id_: str) -> bytes:
    return bytes.fromhex(id_.replace("-", ""))


def _u32(number: int) -> int:
    return min(number, _MAX_U32)


def _ms(seconds: float, *, least: int = 1) -> int:
    return max(least, round(seconds * 1000))


def _text8(text: str) -> bytes:
    return sized(U8, text.encode())
