"""The envelope: a publisher's message, as a router numbers it, and its limits.

A :class:`Submission` is a publisher's message that was validated; :func:`receive` makes it from
AMQP or raises :class:`~newsfabric.errors.Rejected`. An :class:`Envelope` is a submission that a
router has numbered; :func:`encode` and :func:`decode` convert it for the way between router,
shovels and gateways.

The body is never parsed beyond the check that it is JSON: its bytes pass through the whole fabric
as the publisher wrote them.

``identity`` depends on the publisher alone, so copies and repeats of a message have the same one
whichever router routed them. ``id`` (UUIDv7, RFC 9562 section 5.7) has the router's clock before
it: it sorts roughly by arrival.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from newsfabric.amqp.message import SHOVELLED, Message, Properties, Undecodable
from newsfabric.errors import Rejected
from newsfabric.fixed import fixed
from newsfabric.messages.hops import last_hop
from newsfabric.numbers import is_whole, whole_number
from newsfabric.topics import CONTROL_WORD, MAX_TOPIC_BYTES, NOTES, REVOKED, is_topic

IDENTITY_BITS: Final = 74
JSON: Final = "application/json"
REJECT_REASONS: Final = (
    "bad_topic",
    "topic_not_allowed",
    "publisher_not_allowed",
    "empty_body",
    "too_large",
    "not_utf8",
    "not_json",
    "bad_header",
    "bad_property",
    "cc_not_allowed",
)

# Greatest depth of nested objects and lists, that of orjson's writer; its parser has four times it.
MAX_DEPTH: Final = 254
# Past 2**53 a browser can't distinguish two versions (RFC 8259 section 6).
MAX_INTEGER: Final = 2**53 - 1
# 48 bits of milliseconds, RFC 9562 section 5.7.
MAX_MS: Final = 2**48 - 1
# Ten years, in ms. RabbitMQ 3.10 accepts this ``expiration``, and closes the channel on a hundred.
MAX_EXPIRATION: Final = 315_360_000_000
# AMQP's long-long-int, and the maximum in stores and positions.
_MAX_LONG: Final = 2**63 - 1
_RAND_B_BITS: Final = 62
# W3C Trace Context section 3.2: version 00, lower case hex.
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_COPYING: Final = frozenset(("CC", "BCC"))
_SHOVEL: Final = re.compile(r"publish\.[a-z0-9-]{1,63}\.[0-9]")
# int(…, 16) alone would accept signs, spaces and underscores, and upper case sorts differently.
_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MessageLimits:
    """Limits of a message. Bytes are UTF-8 bytes.

    ``max_text_bytes`` holds for ``key``, ``message_id``, ``app_id``, ``type``, ``reply_to`` and
    ``correlation_id``; AMQP itself ends short strings at 255.
    """

    max_body_bytes: int = 64 * 1024
    max_text_bytes: int = 255


DEFAULT_LIMITS: Final = MessageLimits()


@fixed(frozen=True, slots=True, kw_only=True)
class Submission:
    """A publisher's message, validated. Times in ms since the epoch.

    ``lifetime_ms`` is the time for which the message is of use after it is routed, None for ever.
    ``reply_to`` is set when the publisher wants a receipt, ``came`` is the hop of the shovel that
    brought it.
    """

    topic: str
    body: bytes
    identity: int
    published_ms: int
    key: str | None = None
    version: int | None = None
    message_id: str | None = None
    app_id: str | None = None
    type: str | None = None
    lifetime_ms: int | None = None
    traceparent: str | None = None
    reply_to: str | None = None
    correlation_id: str | None = None
    came: str | None = None


@fixed(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A routed message: number ``seq`` of the log (``router``, ``epoch``).

    ``origin`` is the region that routed this copy: each region routes one copy of a gold message,
    with an ``id`` of its own, and the first to arrive is shown. ``path`` holds the hops so far as
    ``name@ms`` texts by the router's clock: the shovel that brought it, the router.
    """

    id: str
    identity: int
    topic: str
    body: bytes
    published_ms: int
    origin: str
    router: str
    epoch: int
    seq: int
    path: tuple[str, ...] = ()
    key: str | None = None
    version: int | None = None
    message_id: str | None = None
    app_id: str | None = None
    type: str | None = None
    expires_ms: int | None = None
    traceparent: str | None = None


def identity_of(
    *, app_id: str | None, message_id: str | None, topic: str, published_ms: int | None, body: bytes
) -> int:
    """Return the 74 bits that identify a message, the same for each copy and repeat of it.

    BLAKE2b over (app_id, message_id); without a message_id over (topic, timestamp_in_ms, body).
    Fields are length-prefixed, so different fields never give the same bytes.
    """
    digest = hashlib.blake2b(digest_size=10)
    if message_id is not None:
        fields = [b"m", _bytes(app_id or ""), _bytes(message_id)]
    else:
        fields = [b"t", _bytes(topic), str(published_ms).encode(), body]
    for field in fields:
        digest.update(len(field).to_bytes(4, "big"))
        digest.update(field)
    return int.from_bytes(digest.digest(), "big") >> (80 - IDENTITY_BITS)


def id_of(router_ms: int, identity: int) -> str:
    """Return the UUIDv7 text of ``identity`` as routed at ``router_ms`` (ms since the epoch)."""
    rand_a = identity >> _RAND_B_BITS
    rand_b = identity & ((1 << _RAND_B_BITS) - 1)
    value = router_ms << 80 | 0x7 << 76 | rand_a << 64 | 0b10 << 62 | rand_b
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def identity_of_id(id_text: str) -> int:
    """Return the identity inside an id; ValueError if it isn't one of ours."""
    if not _ID.fullmatch(id_text):
        raise ValueError(f"not a message id: {id_text!r}")
    value = int(id_text.replace("-", ""), 16)
    return (value >> 64 & 0xFFF) << _RAND_B_BITS | value & ((1 << _RAND_B_BITS) - 1)


def ms_of_id(id_text: str) -> int:
    """Return the router's clock inside an id, in ms since the epoch."""
    return int(id_text[:8] + id_text[9:13], 16)


def taken_ms(envelope: Envelope) -> int:
    """Return when a router took the message, by its clock: the time (ms) of the first hop.

    Delays count from here. ``published_ms`` is the publisher's word, and may be any value.
    """
    at = envelope.path[0].rpartition("@")[2] if envelope.path else ""
    # A text that no router wrote as a time is ignored; the id has a time, a moment later.
    return int(at) if len(at) <= 15 and at.isdecimal() else ms_of_id(envelope.id)


def identity_text(identity: int) -> str:
    """Return nineteen hex digits: the form of an identity for people and publishers."""
    return f"{identity:019x}"


def receive(message: Message, *, now_ms: int, limits: MessageLimits = DEFAULT_LIMITS) -> Submission:
    """Return a publisher's AMQP message as a submission; raise Rejected with the reason if invalid.

    The caller checks that the topic is one of topics.toml, and this publisher's.
    """
    properties = message.properties
    topic = _checked_topic(message)
    _check_body(message.body, properties.content_type, limits)
    headers = properties.headers
    _check_headers(headers)
    _check_author(topic, properties)
    stamp = _integer(headers, "timestamp_in_ms", MAX_MS)
    if stamp is None and properties.timestamp is not None:
        stamp = _seconds_to_ms(properties.timestamp)
    published_ms = now_ms if stamp is None else stamp
    most = limits.max_text_bytes
    message_id = _text("message_id", properties.message_id, most)
    app_id = _text("app_id", properties.app_id, most)
    return Submission(
        topic=topic,
        body=message.body,
        identity=identity_of(
            app_id=app_id,
            message_id=message_id,
            topic=topic,
            published_ms=stamp,
            body=message.body,
        ),
        published_ms=published_ms,
        key=_text("key", headers.get("key"), most, reason="bad_header"),
        version=_integer(headers, "version", MAX_INTEGER),
        message_id=message_id,
        app_id=app_id,
        type=_text("type", properties.type, most),
        lifetime_ms=_lifetime(properties.expiration),
        traceparent=_traceparent(headers.get("traceparent")),
        reply_to=_text("reply_to", properties.reply_to, most),
        correlation_id=_text("correlation_id", properties.correlation_id, most),
        came=_hop(headers, now_ms),
    )


def _hop(headers: Mapping[str, Any], now_ms: int) -> str | None:
    # A stranger may have written the header; a name that no shovel of ours has is no hop.
    shovel = last_hop(headers)
    return f"{shovel}@{now_ms}" if shovel is not None and _SHOVEL.fullmatch(shovel) else None


def _checked_topic(message: Message) -> str:
    topic = message.topic
    if not is_topic(topic):
        raise Rejected("bad_topic", f"a topic is dotted words, at most {MAX_TOPIC_BYTES} bytes")
    # Publishers reach a core cluster through a shovel, whose header they can't remove.
    if topic == REVOKED and SHOVELLED not in message.properties.headers:
        return topic
    if topic.split(".", 1)[0] == CONTROL_WORD:
        raise Rejected("topic_not_allowed", f"{CONTROL_WORD!r} is the fabric's own word")
    return topic


def _check_body(body: bytes, content_type: str | None, limits: MessageLimits) -> None:
    if content_type not in (None, "", JSON) and not _is_json_type(content_type):
        raise Rejected("bad_property", f"content_type must be {JSON}")
    if not body:
        raise Rejected("empty_body", "the body is empty")
    if len(body) > limits.max_body_bytes:
        raise Rejected("too_large", f"{len(body)} bytes, at most {limits.max_body_bytes}")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        # orjson has one error for both; publishers need to know which it was.
        try:
            body.decode("utf-8")
        except UnicodeDecodeError as not_utf8:
            raise Rejected("not_utf8", str(not_utf8)) from exc
        raise Rejected("not_json", str(exc)) from exc
    # Only bodies with so many brackets need the check; few have.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH:
        try:
            orjson.dumps(value)
        except orjson.JSONEncodeError as exc:
            raise Rejected("not_json", f"nested more than {MAX_DEPTH} deep") from exc


def _check_headers(headers: Mapping[str, Any]) -> None:
    # Under any name: where the headers were too large to be decoded, ``key`` and ``version`` may be
    # among them.
    for name, value in headers.items():
        if isinstance(value, Undecodable):
            raise Rejected("bad_header", f"{name!a:.80} is no AMQP value")
    # RabbitMQ's sender-selected distribution: further routing keys, without a check of topic
    # permissions, at each broker on the way. So any message could use gold's paths.
    if not headers.keys().isdisjoint(_COPYING):
        raise Rejected("cc_not_allowed", "a message has one topic: headers CC and BCC are refused")


def _check_author(topic: str, properties: Properties) -> None:
    # The fabric publishes its own messages on the core's exchange intake, without a shovel. No
    # publisher has access to a core, and none can remove a shovel's header.
    if SHOVELLED not in properties.headers:
        return
    if topic.split(".", 1)[0] == NOTES:
        raise Rejected(
            "topic_not_allowed", f"{NOTES!r} is the topic of the fabric's own notices of marks"
        )
    for name, value in (("type", properties.type), ("app_id", properties.app_id)):
        if isinstance(value, str) and value.split(".", 1)[0] == CONTROL_WORD:
            raise Rejected("bad_property", f"{name}: {CONTROL_WORD!r} is the fabric's own word")


def _is_json_type(content_type: str) -> bool:
    # Several libraries send "application/json; charset=utf-8".
    return content_type.split(";", 1)[0].strip().lower() == JSON


def _text(name: str, value: Any, most: int, *, reason: str = "bad_property") -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise Rejected(reason, f"{name} must be a string")
    try:
        size = len(value) if value.isascii() else len(value.encode("utf-8"))
    except UnicodeEncodeError as exc:
        raise Rejected(reason, f"{name} is not UTF-8") from exc
    if size > most:
        raise Rejected(reason, f"{name} has {size} bytes, at most {most}")
    return value


def _integer(headers: Any, name: str, most: int) -> int | None:
    value = headers.get(name)
    if value is None:
        return None
    if not is_whole(value, 0, most):
        raise Rejected("bad_header", f"{name} must be a whole number from 0 to {most}")
    return int(value)


def _seconds_to_ms(seconds: int) -> int:
    if not 0 <= seconds * 1000 <= MAX_MS:
        raise Rejected("bad_property", "timestamp is in seconds since the epoch")
    return seconds * 1000


def _lifetime(expiration: str | None) -> int | None:
    if expiration is None or expiration == "":
        return None
    try:
        return whole_number(expiration, 0, MAX_EXPIRATION)
    except ValueError as exc:
        raise Rejected(
            "bad_property", f"expiration must be ms in decimal digits, up to {MAX_EXPIRATION}"
        ) from exc


def _traceparent(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _TRACEPARENT.fullmatch(value):
        raise Rejected("bad_header", "traceparent is not as W3C Trace Context has it")
    return value


def routed(
    submission: Submission,
    *,
    now_ms: int,
    origin: str,
    router: str,
    epoch: int,
    seq: int,
) -> Envelope:
    """Return ``submission`` as number ``seq`` of a router's log, at ``now_ms`` of its clock.

    Its lifetime counts from there, as its topic's ttl does: a publisher's clock has no effect.
    """
    came, lifetime_ms = submission.came, submission.lifetime_ms
    return Envelope(
        id=id_of(now_ms, submission.identity),
        identity=submission.identity,
        topic=submission.topic,
        body=submission.body,
        published_ms=submission.published_ms,
        origin=origin,
        router=router,
        epoch=epoch,
        seq=seq,
        path=(f"{router}@{now_ms}",) if came is None else (came, f"{router}@{now_ms}"),
        key=submission.key,
        version=submission.version,
        message_id=submission.message_id,
        app_id=submission.app_id,
        type=submission.type,
        expires_ms=None if lifetime_ms is None else now_ms + lifetime_ms,
        traceparent=submission.traceparent,
    )


_OPTIONAL_HEADERS: Final = ("key", "version", "traceparent", "expires_ms")


def encode(envelope: Envelope, *, low: int = 0) -> Message:
    """Return ``envelope`` as the AMQP message from router to gateways.

    ``low`` is that of its log at the moment of publishing: all numbers up to it are settled.

    Headers are built anew: all other headers of the publisher (say, a forged ``seq``) are dropped.
    ``expiration`` isn't set again, because every broker on the way would start counting anew;
    ``expires_ms`` is absolute.
    """
    headers: dict[str, Any] = {
        "id": envelope.id,
        "origin": envelope.origin,
        "router": envelope.router,
        "epoch": envelope.epoch,
        "seq": envelope.seq,
        "low": low,
        "path": list(envelope.path),
        "timestamp_in_ms": envelope.published_ms,
    }
    for name in _OPTIONAL_HEADERS:
        value = getattr(envelope, name)
        if value is not None:
            headers[name] = value
    properties = Properties(
        content_type=JSON,
        headers=headers,
        message_id=envelope.message_id,
        app_id=envelope.app_id,
        type=envelope.type,
    )
    return Message(envelope.topic, envelope.body, properties)


def decode(message: Message) -> Envelope:
    """Return the envelope inside a routed message; ValueError if a router can't have sent it."""
    headers = message.properties.headers
    try:
        return Envelope(
            id=headers["id"],
            identity=identity_of_id(headers["id"]),
            topic=_str(message.topic),
            body=message.body,
            published_ms=_int(headers["timestamp_in_ms"], MAX_MS),
            origin=_str(headers["origin"]),
            router=_str(headers["router"]),
            epoch=_int(headers["epoch"], MAX_MS),
            seq=_int(headers["seq"]),
            path=_path(headers.get("path", [])),
            key=_optional(_str, headers.get("key")),
            version=_optional(_int, headers.get("version")),
            message_id=_optional(_str, message.properties.message_id),
            app_id=_optional(_str, message.properties.app_id),
            type=_optional(_str, message.properties.type),
            expires_ms=_optional(_int, headers.get("expires_ms")),
            traceparent=_optional(_str, headers.get("traceparent")),
        )
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"not a routed message: {exc!r}") from exc


def low_of(message: Message) -> int:
    """Return the ``low`` given to :func:`encode`, 0 if none. ValueError if it is no number."""
    return _int(message.properties.headers.get("low", 0))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8")


def _int(value: Any, most: int = _MAX_LONG) -> int:
    # pika's 64-bit fields are of a subclass of int.
    if not is_whole(value, 0, most):
        raise ValueError(f"expected a whole number up to {most}, got {value!r:.80}")
    return int(value)


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, got {value!r}")
    if not value.isascii():
        # UnicodeEncodeError, a ValueError, for text that was no UTF-8.
        value.encode("utf-8")
    return value


def _path(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list of hops, got {value!r}")
    return tuple(_str(hop) for hop in value)


def _optional(check: Any, value: Any) -> Any:
    return None if value is None else check(value)
