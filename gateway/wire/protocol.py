"""The readers' protocol, apart from its verbs: limits, rate, refusals, replies. Pure.

The verbs are in :mod:`gateway.answers.verbs`, each in a module of its own; their fields are checked
by :mod:`gateway.wire.fields`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection
from typing import NamedTuple

from gateway.wire.frames import encode_push
from newsfabric.closing import ErrorCode

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
    def public(self) -> dict[str, int | float]:
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
class VerbRefusal:
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
    CLOSE = "close"


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
        return Throttle.REFUSE if self._refused <= limits.refusals else Throttle.CLOSE


def subscription_refusal(
    topic: str, subscribed: Collection[str], limits: ReaderLimits
) -> VerbRefusal | None:
    """Return a refusal if a reader with ``subscribed`` can't have ``topic``; ask at its turn."""
    if topic in subscribed:
        code, reason = ErrorCode.ALREADY_SUBSCRIBED, "already subscribed"
    elif len(subscribed) >= limits.topics:
        code, reason = ErrorCode.LIMIT_EXCEEDED, f"at most {limits.topics} topics"
    else:
        return None
    return VerbRefusal(code=code, reason=reason, topic=topic)


def error_push(refusal: VerbRefusal) -> bytes:
    """Return the ``error`` push for ``refusal``."""
    return encode_push(
        "error",
        ref=refusal.ref,
        topic=refusal.topic,
        code=int(refusal.code),
        reason=refusal.reason,
        temporary=refusal.temporary,
        retry_after_ms=refusal.retry_after_ms,
        limits=None if refusal.limits is None else refusal.limits.public,
    )


def too_many(limits: ReaderLimits) -> VerbRefusal:
    """Return the refusal of a verb above the rate: after a second there is room for another one."""
    return VerbRefusal(
        code=ErrorCode.TOO_MANY_REQUESTS,
        reason="too many requests",
        temporary=True,
        retry_after_ms=1_000,
        limits=limits,
    )


class Subscribed(NamedTuple):
    """The content of the reply to ``subscribe``; the replay is sent after it.

    ``recovered``: the replay is certainly all that came after the verb's position, or all that is
    kept of a user's own topic. ``gap`` is the reason why it may not be. ``position`` is None if the
    last message of the replay has it.
    """

    topic: str
    ref: Ref
    position: str | None
    recovered: bool = False
    gap: Gap | None = None

    def push(self) -> bytes:
        """Return the reply."""
        return encode_push(
            "subscribed",
            ref=self.ref,
            topic=self.topic,
            recovered=self.recovered,
            position=self.position,
            reason=None if self.gap is None else self.gap.value,
        )
