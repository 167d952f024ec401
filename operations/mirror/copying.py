"""Decides which of the original's messages are copied into the other fabric, and how. Pure.

The mirror consumes routed envelopes, so rejected messages never arrive here. A share is cut by
identity: it has all copies and repeats of a message or none, every mirror cuts alike, and a smaller
share lies within a larger one.

A copy has all fields that the other fabric computes the identity from (``message_id``, ``app_id``,
topic, ``timestamp_in_ms``, body), so that a duplicate does no harm. It has no ``reply_to``: no
publisher waits for a receipt. It has no ``traceparent`` either, or the other fabric's spans would
appear in traces of the original.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal

from newsfabric.amqp.message import Message, Properties
from newsfabric.messages.envelope import (
    IDENTITY_BITS,
    JSON,
    MAX_EXPIRATION,
    Envelope,
    decode,
    identity_of,
    identity_of_id,
    taken_ms,
)
from newsfabric.topics import CANARY_TOPIC, CONTROL_WORD, NOTES, TopicClass, TopicPolicy, TopicTable
from newsfabric.topology.times import TIMES

#: The reason why a message isn't copied. ``own``: the fabric's own, and the other one makes its
#: own. ``public_there``: private here, and public by the other's topics.toml.
LeftOut = Literal[
    "own", "unknown_topic", "private", "public_there", "expired", "unreadable", "repeated"
]

# As long as routers remember identities, at a thousand messages a second.
_REMEMBERED: Final = 1_000_000
_REMEMBERED_SECONDS: Final = TIMES.identity_ms / 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """A message that may be copied. ``copy`` is the message to publish, None if outside the share.

    ``identity`` is the original's, ``identity_there`` the one that the other fabric will compute.
    ``public``: everyone may read the topic here. ``taken_ms`` is by the clock of the router here.
    """

    topic: str
    topic_class: TopicClass
    public: bool
    identity: int
    taken_ms: int = 0
    identity_there: int = 0
    copy: Message | None = None


def in_share(identity: int, share: float) -> bool:
    """Return whether ``identity`` is in ``share`` (0 to 1)."""
    return identity < share * (1 << IDENTITY_BITS)


def carried_patterns(topics: TopicTable, *, with_private: bool) -> tuple[str, ...]:
    """Return the bindings of the mirror's queue: most topics it may not copy don't reach it.

    An earlier entry may still make a topic private: :class:`Copying` decides.
    """
    found = (p.pattern for p in topics.policies if with_private or p.access == "public")
    return tuple(dict.fromkeys(found))


class Copying:
    """The decision for each message.

    ``topics`` are the original's, ``others`` the other fabric's, if known: then a private message
    is copied only if the topic is private there too, and copies name their publisher if publishers
    have rights there.
    """

    def __init__(
        self,
        topics: TopicTable,
        *,
        share: float,
        with_private: bool = False,
        others: TopicTable | None = None,
    ) -> None:
        self._topics = topics
        self._share = share
        self._with_private = with_private
        self._others = others
        self._names_user = others is not None and bool(others.publishers)
        # Identities of consumed messages, the oldest first, with their times.
        self._seen: collections.OrderedDict[int, float] = collections.OrderedDict()

    def decide(self, message: Message, now: float) -> Candidate | LeftOut:
        """Return the decision about ``message``, consumed at ``now`` (seconds since the epoch)."""
        policy = self._policy(message.topic)
        if isinstance(policy, str):
            return policy
        if _is_own(message.properties):
            return "own"
        public = policy.access == "public"
        try:
            identity = identity_of_id(_id_of(message.properties.headers))
            if not self._is_new(identity, now):
                return "repeated"
            if not in_share(identity, self._share):
                return Candidate(message.topic, policy.topic_class, public, identity)
            envelope = decode(message)
        except ValueError:
            return "unreadable"
        if envelope.expires_ms is not None and envelope.expires_ms <= now * 1000:
            return "expired"
        return Candidate(
            envelope.topic,
            policy.topic_class,
            public,
            identity,
            taken_ms(envelope),
            identity_there(envelope),
            copy_of(envelope, names_user=self._names_user, now_ms=int(now * 1000)),
        )

    def _policy(self, topic: str) -> TopicPolicy | LeftOut:
        if topic.partition(".")[0] in (CONTROL_WORD, NOTES) or topic == CANARY_TOPIC:
            return "own"
        policy = self._topics.find(topic)
        if policy is None:
            return "unknown_topic"
        if policy.access != "public":
            if not self._with_private:
                return "private"
            there = None if self._others is None else self._others.find(topic)
            if there is not None and there.access == "public":
                return "public_there"
        return policy

    def _is_new(self, identity: int, now: float) -> bool:
        while self._seen:
            oldest = next(iter(self._seen))
            if len(self._seen) < _REMEMBERED and now - self._seen[oldest] < _REMEMBERED_SECONDS:
                break
            del self._seen[oldest]
        if identity in self._seen:
            return False
        self._seen[identity] = now
        return True


def copy_of(envelope: Envelope, *, names_user: bool, now_ms: int) -> Message:
    """Return ``envelope`` as a publisher's message; its ``user_id`` is set if ``names_user``."""
    headers: dict[str, Any] = {"timestamp_in_ms": envelope.published_ms}
    for name in ("key", "version"):
        if (value := getattr(envelope, name)) is not None:
            headers[name] = value
    properties = Properties(
        content_type=JSON,
        headers=headers,
        message_id=envelope.message_id,
        app_id=envelope.app_id,
        type=envelope.type,
        expiration=_expiration(envelope, now_ms),
        user_id=envelope.app_id if names_user else None,
    )
    return Message(envelope.topic, envelope.body, properties)


def identity_there(envelope: Envelope) -> int:
    """Return the copy's identity: the same, unless the original had neither id nor timestamp."""
    return identity_of(
        app_id=envelope.app_id,
        message_id=envelope.message_id,
        topic=envelope.topic,
        published_ms=envelope.published_ms,
        body=envelope.body,
    )


def _expiration(envelope: Envelope, now_ms: int) -> str | None:
    if envelope.expires_ms is None:
        return None
    # The remaining time: the other fabric counts from the routing of the copy.
    return str(min(max(0, envelope.expires_ms - now_ms), MAX_EXPIRATION))


def _id_of(headers: Mapping[str, Any]) -> str:
    found = headers.get("id")
    if not isinstance(found, str):
        raise ValueError("no id")
    return found


def _is_own(properties: Properties) -> bool:
    texts = (properties.app_id, properties.type)
    return any(isinstance(t, str) and t.partition(".")[0] == CONTROL_WORD for t in texts)
