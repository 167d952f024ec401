"""A verb of a reader, the parts of a gateway that answer it, and the reader.

Each verb is a class of its own in a module of its own; :mod:`gateway.answers.verbs` lists them. A
verb uses a reader only through its :class:`Port`, and the gateway through its :class:`VerbContext`.
"""

from __future__ import annotations

import abc
import dataclasses
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, Self, TypeVar

from gateway.answers.access import AuthState
from gateway.answers.authenticator import Authenticator
from gateway.answers.upstream import Upstream
from gateway.memory.hub import Hub
from gateway.past.mailbox import Mailboxes
from gateway.past.replay import Replay
from gateway.past.resume import Resumes
from gateway.past.rewind import Rewinds
from gateway.process import measures
from gateway.wire.fields import VerbFields
from gateway.wire.protocol import Ref, Subscribed, VerbRefusal, error_push
from newsfabric.closing import CloseReason
from newsfabric.topics import TopicTable

Pending = Coroutine[Any, Any, None]
Found = TypeVar("Found")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verb(abc.ABC):
    """A reader's verb that is well-formed; ``topic`` is "" where it has none."""

    topic: str = ""
    ref: Ref = None

    @classmethod
    def parse(cls, fields: VerbFields) -> Self:
        """Return the verb with these fields; BadVerb if one of them is wrong."""
        return cls(topic=fields.topic, ref=fields.ref)

    @abc.abstractmethod
    def answer(self, context: VerbContext, reader: Port) -> Pending | None:
        """Answer now, or return a coroutine to await before the reader's next verb.

        The coroutine raises StoreError or LinkError if it can't answer now.
        """


class Port(Protocol):
    """A reader as a verb sees it, or several readers who send the same verb at the same moment
    and get the same answer. For a reader that is gone the methods do nothing.
    """

    @property
    def reader_count(self) -> int:
        """The number of readers."""

    @property
    def auth(self) -> AuthState:
        """The login state."""

    async def read_when_room(self, read: Callable[[], Awaitable[Found]]) -> Found:
        """Return the result of ``read``, once there is room for it here or the reader is gone."""

    def subscription_refusal(self, topic: str) -> VerbRefusal | None:
        """Return why the reader can't subscribe to ``topic``; None if not known here."""

    def push(self, push: bytes) -> None:
        """Answer a verb with ``push``."""

    def subscribe(self, reply: Subscribed, replay: Replay) -> None:
        """Answer with ``reply``, send the newest of ``replay`` that fit, and deliver the topic's
        messages from now on, with nothing in between.
        """

    def unsubscribe(self, topic: str, push: bytes) -> None:
        """End the subscription, if there is one, and answer with ``push``."""

    def identify(self, auth: AuthState, push: bytes) -> None:
        """Set the login state to ``auth`` until its token expires, and answer with ``push``."""

    def close(self, reason: CloseReason) -> None:
        """Close the connection."""


@dataclasses.dataclass(kw_only=True, eq=False)
class VerbContext:
    """The parts of a gateway that answer verbs. ``can_serve`` returns whether the start of each log
    is known here; ``now`` is a clock in seconds since the epoch."""

    table: TopicTable
    replay_bytes: int
    hub: Hub
    rewinds: Rewinds
    resumes: Resumes
    mailboxes: Mailboxes
    upstream: Upstream
    authenticator: Authenticator
    can_serve: Callable[[], bool]
    now: Callable[[], float] = time.time


def answer_with(
    reader: Port,
    found: Found | None,
    read: Callable[[], Awaitable[Found]],
    send: Callable[[Found], None],
) -> Pending | None:
    """Call ``send`` with ``found``; if that is None, with the result of ``read`` once there is room
    for it."""

    async def later() -> None:
        send(await reader.read_when_room(read))

    if found is None:
        return later()
    send(found)
    return None


def refuse(reader: Port, refusal: VerbRefusal, verb: Verb | None = None) -> None:
    """Answer with the error push of ``refusal``, and count it."""
    reader.push(refusal_push(reader, refusal, verb))


def refusal_push(reader: Port, refusal: VerbRefusal, verb: Verb | None = None) -> bytes:
    """Return the error push of ``refusal``, which is counted; with the ``ref`` of ``verb``."""
    measures.ERRORS.labels(int(refusal.code)).inc(reader.reader_count)
    return error_push(refusal if verb is None else dataclasses.replace(refusal, ref=verb.ref))
