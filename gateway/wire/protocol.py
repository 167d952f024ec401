"""Verbs of readers: JSON in, intents or refusals out. Pure.

A reader's text is untrusted: :meth:`Verbs.read` returns a value for every text and never raises.
This module decides all that needs neither the store nor the reader's login: form, limits, rate.
:mod:`gateway.answers.access` decides whether this reader may have the topic, at the verb's turn.
:mod:`gateway.answers.desk` carries an intent out.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, TypeGuard

import orjson

from gateway.wire.frames import encode_push
from gateway.wire.position import decode
from newsfabric.closing import ErrorCode
from newsfabric.messages.envelope import identity_of_id
from newsfabric.messages.mailbox import MARK_KINDS, MarkKind, UserMark
from newsfabric.numbers import is_whole
from newsfabric.topics import TopicTable, is_topic, parse_duration

Ref = str | int | float | bool | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReaderLimits:
    """Limits of one reader.

    ``verbs`` is the size of a token bucket (a page may subscribe to everything at once), refilled
    with ``verbs_per_second``. After ``refusals`` verbs on an empty bucket the reader is closed: a
    page that sends four buckets at once, and then waits, gets a refusal for each verb too many.
    ``waiting`` verbs may wait for the store, or for a slow reader to take its replay. The last of
    ``bad_tokens`` ends the connection.
    """

    frame_bytes: int = 16 * 1024
    topics: int = 128
    verbs: int = 256
    verbs_per_second: float = 10.0
    refusals: int = 1_024
    waiting: int = 256
    ref_bytes: int = 128
    bad_tokens: int = 5
    rewind: int = 1_000
    rewind_seconds: float = 7 * 86400.0
    history: int = 100

    @property
    def burst_bytes(self) -> int:
        """Bytes of all verbs that a reader may send at once."""
        return self.verbs * self.frame_bytes

    @property
    def told(self) -> dict[str, int | float]:
        """The limits that are sent to a reader."""
        rate = self.verbs_per_second
        per_second = int(rate) if rate == int(rate) else rate
        return {"topics": self.topics, "verbs": self.verbs, "verbs_per_second": per_second}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """A start in the past: a number of messages, or seconds. Exactly one is set."""

    count: int | None = None
    seconds: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """A subscription to ``topic``, with the messages after ``position`` or of ``rewind`` first.

    ``position`` is a token that can be decoded; ``rewind`` applies if it leaves a gap.
    """

    topic: str
    position: str | None = None
    rewind: Rewind | None = None
    ref: Ref = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribe:
    """The end of the subscription to ``topic``."""

    topic: str
    ref: Ref = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A request for the newest ``limit`` messages of ``topic``, before id ``before`` if given."""

    topic: str
    limit: int
    before: str | None = None
    ref: Ref = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SetMark:
    """A user mark on message ``id`` of ``topic``, a user's own: received, read or dismissed."""

    topic: str
    id: str
    kind: MarkKind
    ref: Ref = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogIn:
    """A login with ``token``. ``repr`` hides the token, which must not be logged.

    ``refresh``: the login of the same user lasts longer.
    """

    token: str = dataclasses.field(repr=False)
    refresh: bool = False
    ref: Ref = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """A request for ``pong``, with these ``limits`` of the reader if it asks for them."""

    limits: ReaderLimits | None = None
    ref: Ref = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refused verb; becomes an ``error`` push.

    A reader above its ``limits`` is sent them, and the time after which it may send more.
    """

    code: ErrorCode
    reason: str
    temporary: bool = False
    retry_after_ms: int | None = None
    limits: ReaderLimits | None = None
    topic: str | None = None
    ref: Ref = None


Intent = Subscribe | Unsubscribe | History | SetMark | LogIn | Ping | Refusal


class Gap(enum.Enum):
    """The ``reason`` sent with ``recovered: false``: why a resuming reader may have missed
    messages.

    EXPIRED: the position is older than the topic's ttl, or of another release. TOO_MANY: more was
    missed than one read of the store may return. STORE: it can't be read, or not all of it. BUSY:
    so much arrived meanwhile that memory lost it again. TOO_LARGE: more than one replay may have.
    """

    EXPIRED = "expired"
    TOO_MANY = "too_many"
    STORE = "store"
    BUSY = "busy"
    TOO_LARGE = "too_large"


class Throttle(enum.Enum):
    """The decision on the next verb, by the number of verbs before it."""

    ALLOW = "allow"
    REFUSE = "refuse"
    HANG_UP = "hang up"


class _Bad(Exception):
    """A refusal's code and reason, raised in the parser; never leaves this module."""

    def __init__(self, reason: str, code: ErrorCode = ErrorCode.BAD_REQUEST) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Bucket:
    """The token bucket of a reader: verbs on an empty one are refused, then the reader is closed.

    ``now`` is any clock in seconds.
    """

    __slots__ = ("_limits", "_refused", "_tokens", "_updated")

    def __init__(self, limits: ReaderLimits, now: float) -> None:
        self._limits = limits
        self._tokens = float(limits.verbs)
        self._updated = now
        self._refused = 0

    def admit(self, now: float) -> Throttle:
        """Count a verb received at ``now``. Call it once for each, before anything is read."""
        limits = self._limits
        earned = max(0.0, now - self._updated) * limits.verbs_per_second
        self._tokens = min(float(limits.verbs), self._tokens + earned)
        self._updated = now
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            if self._tokens >= limits.verbs / 2:
                self._refused = 0
            return Throttle.ALLOW
        self._refused += 1
        return Throttle.REFUSE if self._refused <= limits.refusals else Throttle.HANG_UP


@dataclasses.dataclass(frozen=True)
class Verbs:
    """The parser of verbs for the readers of one gateway."""

    table: TopicTable
    limits: ReaderLimits

    def read(self, data: str | bytes) -> Intent:
        """Return the intent of a reader's text."""
        try:
            fields = orjson.loads(data)
        except orjson.JSONDecodeError:
            return Refusal(code=ErrorCode.BAD_REQUEST, reason="not JSON")
        if not isinstance(fields, dict):
            return Refusal(code=ErrorCode.BAD_REQUEST, reason="a verb is a JSON object")
        return self.decide(fields)

    def decide(self, fields: Mapping[str, Any]) -> Intent:
        """Return the intent of a verb that is parsed JSON."""
        ref: Ref = None
        try:
            ref = self._ref(fields)
            return self._intent(fields, ref)
        except _Bad as bad:
            topic = fields.get("topic")
            named = topic if isinstance(topic, str) and is_topic(topic) else None
            return Refusal(code=bad.code, reason=bad.reason, topic=named, ref=ref)

    def clash(self, verb: Subscribe, subscribed: Collection[str]) -> Refusal | None:
        """Return a refusal if a reader with ``subscribed`` can't have ``verb``; ask at its turn."""
        if verb.topic in subscribed:
            code, reason = ErrorCode.ALREADY_SUBSCRIBED, "already subscribed"
        elif len(subscribed) >= self.limits.topics:
            code, reason = ErrorCode.LIMIT_EXCEEDED, f"at most {self.limits.topics} topics"
        else:
            return None
        return Refusal(code=code, reason=reason, topic=verb.topic, ref=verb.ref)

    def _intent(self, fields: Mapping[str, Any], ref: Ref) -> Intent:
        match fields.get("action"):
            case "subscribe":
                return self._subscribe(fields, ref)
            case "unsubscribe":
                return Unsubscribe(topic=_topic(fields), ref=ref)
            case "history":
                return self._history(fields, ref)
            case "login" | "refresh" as action:
                token = fields.get("token")
                if not isinstance(token, str):
                    raise _Bad("token must be a string")
                return LogIn(token=token, refresh=action == "refresh", ref=ref)
            case "ping":
                asked = fields.get("limits") is True
                return Ping(limits=self.limits if asked else None, ref=ref)
            case str(kind) if kind in MARK_KINDS:
                return self._mark(fields, ref, kind)
            case str():
                raise _Bad("unknown verb")
            case _:
                raise _Bad("action must be a verb")

    def _subscribe(self, fields: Mapping[str, Any], ref: Ref) -> Subscribe:
        topic = self._known_topic(fields)
        position = _position(fields.get("position"))
        rewind = self._rewind(fields.get("rewind"))
        return Subscribe(topic=topic, position=position, rewind=rewind, ref=ref)

    def _history(self, fields: Mapping[str, Any], ref: Ref) -> History:
        topic = self._known_topic(fields)
        limit = fields.get("limit", 20)
        if not is_whole(limit, 1, self.limits.history):
            raise _Bad(f"limit must be a whole number from 1 to {self.limits.history}")
        before = fields.get("before")
        if before is not None and not _is_id(before):
            raise _Bad("before must be a message's id")
        return History(topic=topic, limit=limit, before=before, ref=ref)

    def _mark(self, fields: Mapping[str, Any], ref: Ref, kind: MarkKind) -> SetMark:
        topic = self._known_topic(fields)
        policy = self.table.find(topic)
        if policy is None or policy.access != "owner":
            raise _Bad("only individual messages can be marked")
        id_ = fields.get("id")
        if not _is_id(id_):
            raise _Bad("id must be a message's id")
        try:
            UserMark(topic=topic, id=id_, kind=kind, at_ms=0)
        except ValueError as exc:
            raise _Bad("this topic's messages can't be marked") from exc
        return SetMark(topic=topic, id=id_, kind=kind, ref=ref)

    def _known_topic(self, fields: Mapping[str, Any]) -> str:
        topic = _topic(fields)
        if self.table.find(topic) is None:
            raise _Bad("unknown topic", ErrorCode.UNKNOWN_TOPIC)
        return topic

    def _rewind(self, value: Any) -> Rewind | None:
        if value is None:
            return None
        if is_whole(value, 1, self.limits.rewind):
            return Rewind(count=value)
        if isinstance(value, str):
            try:
                seconds = parse_duration(value)
            except ValueError as exc:
                raise _Bad("rewind must be a number of messages, or like 90s, 5m, 2h") from exc
            if 0 < seconds <= self.limits.rewind_seconds:
                return Rewind(seconds=seconds)
        raise _Bad(f"rewind must be 1 to {self.limits.rewind} messages, or like 90s, 5m, 2h")

    def _ref(self, fields: Mapping[str, Any]) -> Ref:
        ref = fields.get("ref")
        if isinstance(ref, str) and len(ref.encode()) > self.limits.ref_bytes:
            raise _Bad(f"ref has more than {self.limits.ref_bytes} bytes")
        if ref is None or isinstance(ref, str | int | float | bool):
            return ref
        raise _Bad("ref must be a string or a number")


def _topic(fields: Mapping[str, Any]) -> str:
    topic = fields.get("topic")
    if not isinstance(topic, str) or not is_topic(topic):
        raise _Bad("topic must be dotted words of A-Z a-z 0-9 _ and -")
    return topic


def _position(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _Bad("position must be a string")
    try:
        decode(value)
    except ValueError as exc:
        raise _Bad("not a position of this fabric", ErrorCode.UNRECOVERABLE_POSITION) from exc
    return value


def _is_id(value: Any) -> TypeGuard[str]:
    if not isinstance(value, str) or len(value) != 36:
        return False
    try:
        identity_of_id(value)
    except ValueError:
        return False
    return True


def error_push(refusal: Refusal) -> bytes:
    """Return the ``error`` push for ``refusal``."""
    return encode_push(
        "error",
        ref=refusal.ref,
        topic=refusal.topic,
        code=int(refusal.code),
        reason=refusal.reason,
        temporary=refusal.temporary,
        retry_after_ms=refusal.retry_after_ms,
        limits=None if refusal.limits is None else refusal.limits.told,
    )


def too_many(limits: ReaderLimits) -> Refusal:
    """Return the refusal of a verb above the rate: after a second there is room for another one."""
    return Refusal(
        code=ErrorCode.TOO_MANY_REQUESTS,
        reason="too many requests",
        temporary=True,
        retry_after_ms=1_000,
        limits=limits,
    )


def pong_push(verb: Ping) -> bytes:
    """Return the reply to ``ping``."""
    limits = None if verb.limits is None else verb.limits.told
    return encode_push("pong", ref=verb.ref, limits=limits)


class Subscribed(NamedTuple):
    """The content of the reply to ``subscribe``; the replay is sent after it.

    ``recovered``: the replay is certainly all that came after the verb's position, or all that is
    kept of a user's own topic. ``gap`` is the reason why it may not be. ``position`` is None if the
    last message of the replay has it.
    """

    position: str | None
    recovered: bool = False
    gap: Gap | None = None


def subscribed_push(verb: Subscribe, told: Subscribed) -> bytes:
    """Return the reply to ``subscribe``."""
    return encode_push(
        "subscribed",
        ref=verb.ref,
        topic=verb.topic,
        recovered=told.recovered,
        position=told.position,
        reason=None if told.gap is None else told.gap.value,
    )
