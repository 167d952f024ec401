"""Individual messages and their user marks, as values. Pure.

An individual message is one on a topic with ``access = "owner"``, whose last word is its user's id.
It is kept for its user until it expires or is dismissed. A *user mark* means that a user's device
has it (``ack``), that the user has read it (``read``) or dismissed it (``dismiss``). User marks are
only ever added, never removed. In all code about mailboxes a bare "mark" is a user mark, not the
mark of a log.

A gateway sends a mark up on exchange ``upstream``. The mailbox service sends two messages down: an
*announcement* on the user's topic, which gateways push to the user's devices, and a note on
``marks.<app_id>`` for the publisher's tools.

The decision that a reader may question: a mark belongs to a message's *identity*, though it carries
the id that the reader knew. The copies of a gold message have an id in each region, and a user who
dismisses one of them has dismissed the message.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Final, Literal, cast, get_args

import orjson

from newsfabric.amqp.message import Message, Properties
from newsfabric.messages.envelope import (
    JSON,
    MAX_EXPIRATION,
    MAX_MS,
    Envelope,
    id_of,
    identity_of,
    identity_of_id,
    identity_text,
)
from newsfabric.numbers import is_whole
from newsfabric.topics import CONTROL_WORD, NOTES, TopicPolicy, is_topic, owner_of

MarkKind = Literal["ack", "read", "dismiss"]
MARK_KINDS: Final[tuple[MarkKind, ...]] = get_args(MarkKind)
# The ``type`` of pushes to readers when a message was marked.
PUSH_TYPES: Final[dict[MarkKind, str]] = {"ack": "acked", "read": "read", "dismiss": "dismissed"}

# Routing key and property ``type`` of a mark on its way up.
MARK: Final = "mark"
MARK_KEY: Final = f"{CONTROL_WORD}.{MARK}"
# Property ``type`` of an announcement, and ``app_id`` of announcements and notes. Routers refuse
# both from publishers: see newsfabric.messages.envelope.
ANNOUNCEMENT: Final = f"{CONTROL_WORD}.mark"
_DEVICES: Final = f"{CONTROL_WORD}.mailbox"
_TOOLS: Final = f"{CONTROL_WORD}.marks"
_KEPT: Final = f"{CONTROL_WORD}.kept"

# A bound, so that a topic, an identity and a kind of mark fit into one message_id.
_MOST_TOPIC_BYTES: Final = 200
# A user's id: one word of a topic.
_USER: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UserMark:
    """A user's action: ``kind`` on message ``id`` of ``topic`` at ``at_ms``.

    ValueError for a topic that can't be a user's, or a text that is no id.
    """

    topic: str
    id: str
    kind: MarkKind
    at_ms: int

    def __post_init__(self) -> None:
        good = is_topic(self.topic) and len(self.topic) <= _MOST_TOPIC_BYTES
        if not good or not _USER.fullmatch(self.user):
            raise ValueError(f"no user's topic: {self.topic!a}")
        identity_of_id(self.id)

    @property
    def user(self) -> str:
        """The user who made the mark."""
        return owner_of(self.topic)

    @property
    def identity(self) -> int:
        """The identity of the marked message, the same for all of its copies."""
        return identity_of_id(self.id)


@dataclasses.dataclass(frozen=True, slots=True)
class KeptMessage:
    """An individual message that is kept, and its marks: of each kind the first that was made."""

    envelope: Envelope
    marks: tuple[UserMark, ...] = ()

    def mark(self, kind: MarkKind) -> UserMark | None:
        """Return the mark of that kind, if there is one."""
        return next((mark for mark in self.marks if mark.kind == kind), None)


def is_individual(envelope: Envelope, policy: TopicPolicy | None) -> bool:
    """Return whether ``envelope`` is kept for a user: an owner's topic, no announcement."""
    return (
        policy is not None
        and policy.access == "owner"
        and not (envelope.type or "").startswith(f"{CONTROL_WORD}.")
    )


def first_of_each(marks: list[UserMark]) -> tuple[UserMark, ...]:
    """Return the first of each kind of one message's marks, in the order of :data:`MARK_KINDS`."""
    found: dict[MarkKind, UserMark] = {}
    for mark in sorted(marks, key=lambda mark: (mark.at_ms, mark.id)):
        found.setdefault(mark.kind, mark)
    return tuple(found[kind] for kind in MARK_KINDS if kind in found)


def encode_mark(mark: UserMark) -> Message:
    """Return ``mark`` as a message for exchange upstream."""
    body = {"topic": mark.topic, "id": mark.id, "mark": mark.kind, "at": mark.at_ms}
    properties = Properties(content_type=JSON, type=MARK)
    return Message(MARK_KEY, orjson.dumps(body), properties)


def decode_mark(message: Message) -> UserMark:
    """Return the mark in ``message``; ValueError if it isn't one."""
    if message.properties.type != MARK:
        raise ValueError(f"not a mark: type is {message.properties.type!r}")
    fields = _fields(message.body)
    topic = fields.get("topic")
    if not isinstance(topic, str):
        raise ValueError("topic must be text")
    return _mark(topic, fields)


def announcement(mark: UserMark, *, left_ms: int) -> Message:
    """Return a message to the user's devices about ``mark``, of no use after ``left_ms``.

    The message is the same for each repeat of the mark, so that gateways push it once.
    """
    body = _announcement_body(mark)
    return _notice_message(
        mark, mark.topic, body, app_id=_DEVICES, type=ANNOUNCEMENT, left_ms=left_ms
    )


def tool_note(mark: UserMark, marked: Envelope, *, left_ms: int) -> Message | None:
    """Return a message about ``mark`` to the tools of the publisher of ``marked``.

    None if its ``app_id`` is missing or can't be part of a topic: the publisher is unknown then.
    """
    topic = f"{NOTES}.{marked.app_id}"
    if marked.app_id is None or not is_topic(topic):
        return None
    body = {
        "user": mark.user,
        "id": mark.id,
        "message_id": marked.message_id,
        "mark": mark.kind,
        "at": mark.at_ms,
    }
    return _notice_message(
        mark, topic, orjson.dumps(body), app_id=_TOOLS, type=None, left_ms=left_ms
    )


def announced(envelope: Envelope, policy: TopicPolicy) -> UserMark | None:
    """Return the mark that ``envelope`` announces; None for every other message.

    An announcement that :func:`announcement` can't have made is a message like any other.
    """
    if envelope.type != ANNOUNCEMENT or policy.access != "owner":
        return None
    try:
        return _mark(envelope.topic, _fields(envelope.body))
    except ValueError:
        return None


def announced_again(mark: UserMark, marked: Envelope) -> Envelope:
    """Return ``mark`` as sent with a mailbox: like its announcement, but not a copy of that one."""
    identity = identity_of(
        app_id=_KEPT,
        message_id=f"{mark.topic}/{mark.identity:x}/{mark.kind}",
        topic=mark.topic,
        published_ms=None,
        body=b"",
    )
    return dataclasses.replace(
        marked,
        id=id_of(mark.at_ms, identity),
        identity=identity,
        body=_announcement_body(mark),
        published_ms=mark.at_ms,
        key=None,
        version=None,
        message_id=None,
        app_id=_KEPT,
        type=ANNOUNCEMENT,
        expires_ms=None,
    )


def _announcement_body(mark: UserMark) -> bytes:
    return orjson.dumps({"id": mark.id, "mark": mark.kind, "at": mark.at_ms})


def _notice_message(
    mark: UserMark,
    topic: str,
    body: bytes,
    *,
    app_id: str,
    type: str | None,
    left_ms: int,
) -> Message:
    properties = Properties(
        content_type=JSON,
        message_id=f"{mark.topic}/{identity_text(mark.identity)}/{mark.kind}",
        app_id=app_id,
        type=type,
        headers={"timestamp_in_ms": mark.at_ms},
        expiration=str(left_ms) if left_ms <= MAX_EXPIRATION else None,
    )
    return Message(topic, body, properties)


def _mark(topic: str, fields: dict[str, Any]) -> UserMark:
    id_, kind, at_ms = fields.get("id"), fields.get("mark"), fields.get("at")
    if not isinstance(id_, str):
        raise ValueError("id must be text")
    if kind not in MARK_KINDS:
        raise ValueError(f"mark must be one of {', '.join(MARK_KINDS)}")
    if not is_whole(at_ms, 0, MAX_MS):
        raise ValueError("at must be ms since the epoch")
    return UserMark(topic=topic, id=id_, kind=cast(MarkKind, kind), at_ms=at_ms)


def _fields(body: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise ValueError(f"not JSON: {exc}") from exc
    if not isinstance(fields, dict):
        raise ValueError("the body is no object")
    return fields
