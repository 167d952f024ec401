"""What readers may say: JSON verbs in, intents or refusals out. Pure.

A reader's text is data from a stranger: whatever it is, :meth:`Verbs.read` returns a value and
never raises. Decided here is what can be without the store and without knowing who asks: form,
limits, rate. Whether this reader may have the topic is :mod:`gateway.access`'s
question, when the verb's turn comes; carrying an intent out is :mod:`gateway.desk`'s work.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, TypeGuard

import orjson

from gateway.frames import encode_push
from gateway.position import decode
from newsfabric.closing import ErrorCode
from newsfabric.messages.envelope import identity_of_id
from newsfabric.messages.mailbox import MARK_KINDS, MarkKind, UserMark
from newsfabric.numbers import is_whole
from newsfabric.topics import TopicTable, is_topic, parse_duration

Ref = str | int | float | bool | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReaderLimits:
    """What one reader may ask for.

    ``verbs`` is the bucket's size (a page may subscribe to everything at once), refilled with
    ``verbs_per_second``. After ``refusals`` verbs on an empty bucket the reader is closed: a page
    that says four buckets at once, and then waits, hears of each that it was too much.
    ``waiting`` verbs may wait for the store or for a slow reader to take its replay. The last of
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
        """All that a reader may say at once."""
        return self.verbs * self.frame_bytes

    @property
    def told(self) -> dict[str, int | float]:
        """What a reader is told of them."""
        rate = self.verbs_per_second
        per_second = int(rate) if rate == int(rate) else rate
        return {"topics": self.topics, "verbs": self.verbs, "verbs_per_second": per_second}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """How far back to start: a number of messages, or seconds. Exactly one is set."""

    count: int | None = None
    seconds: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """Subscribe to ``topic``, with what came after ``position`` or ``rewind`` messages first.

    ``position`` is a token that can be decoded; ``rewind`` is for when that isn't enough.
    """

    topic: str
    position: str | None = None
    rewind: Rewind | None = None
    ref: Ref = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribe:
    """Take the subscription to ``topic`` back."""

    topic: str
    ref: Ref = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Send the newest ``limit`` messages of ``topic``, older than id ``before`` if given."""

    topic: str
    limit: int
    before: str | None = None
    ref: Ref = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SetMark:
    """Note that the user has got, read or dismissed message ``id`` of ``topic``, a user's own."""

    topic: str
    id: str
    kind: MarkKind
    ref: Ref = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogIn:
    """Be whom ``token`` says from now on. ``repr`` hides the token: it must reach no log.

    ``refresh``: go on being the same, for longer.
    """

    token: str = dataclasses.field(repr=False)
    refresh: bool = False
    ref: Ref = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """Answer ``pong``, with these ``limits`` of the reader if it asks for them."""

    limits: ReaderLimits | None = None
    ref: Ref = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The verb can't be obeyed; becomes an ``error`` push.

    A reader that has gone beyond its ``limits`` is told them, and when to say more.
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
    """Why a reader who resumes may have missed something: ``reason`` beside ``recovered: false``.

    EXPIRED: the position is older than the topic's ttl, or of another release. TOO_MANY: more
    was missed than one read of the store may take. STORE: it can't be read, or not all of it.
    BUSY: so much arrived meanwhile that memory lost it again. TOO_LARGE: more than one replay may
    have.
    """

    EXPIRED = "expired"
    TOO_MANY = "too_many"
    STORE = "store"
    BUSY = "busy"
    TOO_LARGE = "too_large"


class Throttle(enum.Enum):
    """What becomes of the next verb, by how many came before it."""

    ALLOW = "allow"
    REFUSE = "refuse"
    HANG_UP = "hang up"


class _Bad(Exception):
    """Leaves the parser with a refusal's code and reason; never leaves this module."""

    def __init__(self, reason: str, code: ErrorCode = ErrorCode.BAD_REQUEST) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Bucket:
    """How often one reader may say something: who finds it empty is refused, then closed.

    ``now`` is any clock in seconds.
    """

    __slots__ = ("_limits", "_refused", "_tokens", "_updated")

    def __init__(self, limits: ReaderLimits, now: float) -> None:
        self._limits = limits
        self._tokens = float(limits.verbs)
        self._updated = now
        self._refused = 0

    def admit(self, now: float) -> Throttle:
        """A verb has come in at ``now``. Call it once for each, before anything is read."""
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
    """What readers of one gateway may say."""

    table: TopicTable
    limits: ReaderLimits

    def read(self, data: str | bytes) -> Intent:
        """What the reader wants."""
        try:
            fields = orjson.loads(data)
        except orjson.JSONDecodeError:
            return Refusal(code=ErrorCode.BAD_REQUEST, reason="not JSON")
        if not isinstance(fields, dict):
            return Refusal(code=ErrorCode.BAD_REQUEST, reason="a verb is a JSON object")
        return self.decide(fields)

    def decide(self, fields: Mapping[str, Any]) -> Intent:
        """What a verb that was parsed already wants."""
        ref: Ref = None
        try:
            ref = self._ref(fields)
            return self._intent(fields, ref)
        except _Bad as bad:
            topic = fields.get("topic")
            named = topic if isinstance(topic, str) and is_topic(topic) else None
            return Refusal(code=bad.code, reason=bad.reason, topic=named, ref=ref)

    def clash(self, verb: Subscribe, subscribed: Collection[str]) -> Refusal | None:
        """Why a reader who has ``subscribed`` can't have ``verb``; ask when its turn comes."""
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
    """The ``error`` push."""
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
    """The answer to a verb that is too much: after a second there is room for another one."""
    return Refusal(
        code=ErrorCode.TOO_MANY_REQUESTS,
        reason="too many requests",
        temporary=True,
        retry_after_ms=1_000,
        limits=limits,
    )


def pong_push(verb: Ping) -> bytes:
    """The reply to ``ping``."""
    limits = None if verb.limits is None else verb.limits.told
    return encode_push("pong", ref=verb.ref, limits=limits)


class Subscribed(NamedTuple):
    """What a reader is told who subscribes; what is replayed comes after it.

    ``recovered`` says that the replay is certainly all that came after the verb's position, or all
    that is kept of a user's own topic; ``gap`` why it may not be. There is no ``position`` when the
    last one of what is replayed has it.
    """

    position: str | None
    recovered: bool = False
    gap: Gap | None = None


def subscribed_push(verb: Subscribe, told: Subscribed) -> bytes:
    """The reply to ``subscribe``."""
    return encode_push(
        "subscribed",
        ref=verb.ref,
        topic=verb.topic,
        recovered=told.recovered,
        position=told.position,
        reason=None if told.gap is None else told.gap.value,
    )
