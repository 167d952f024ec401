"""The desk: decides the answer to each verb of a reader, the same on both engines.

The desk uses a reader only through its :class:`Port`, and keeps no state of it. Answers are made
from the hub's memory, and from the store for older messages.

The store may fail. A subscribe then continues with the messages in memory, since new messages
matter more than old ones. A history, and a mailbox, are refused with a temporary error.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar, assert_never

from gateway.answers.access import AuthState, refusal
from gateway.answers.gate import Gate, Verdict
from gateway.answers.upstream import Upstream
from gateway.memory.hub import Hub
from gateway.memory.memory import Selection
from gateway.past.bounded import newest_that_fit
from gateway.past.mailroom import Mailroom
from gateway.past.past import Past
from gateway.past.recalled import Recalled
from gateway.past.resume import Resumer
from gateway.process import measures
from gateway.wire.frames import Variant, encode_push, messages_push
from gateway.wire.protocol import (
    Gap,
    History,
    Intent,
    LogIn,
    Ping,
    Refusal,
    SetMark,
    Subscribe,
    Subscribed,
    Unsubscribe,
    error_push,
    pong_push,
)
from gateway.wire.publication import push_bytes
from newsfabric.closing import INVALID_TOKEN, CloseReason, ErrorCode
from newsfabric.errors import LinkError, StoreError
from newsfabric.messages.mailbox import UserMark
from newsfabric.store.rules import clock_ms
from newsfabric.topics import TopicTable

Pending = Coroutine[Any, Any, None]
Found = TypeVar("Found")

_OF_A_TOPIC: Final = (Subscribe, History, SetMark)


class Port(Protocol):
    """A reader as the desk sees it, or several readers who send the same verb at the same moment
    and get the same answer. For a reader that is gone the methods do nothing.
    """

    @property
    def many(self) -> int:
        """The number of readers."""

    @property
    def auth(self) -> AuthState:
        """The login state."""

    async def room_for(self, read: Callable[[], Awaitable[Found]]) -> Found:
        """Return the result of ``read``, once there is room for it here or the reader is gone."""

    def clash(self, verb: Subscribe) -> Refusal | None:
        """Return why the reader can't subscribe to the topic; None if not known here."""

    def push(self, push: bytes) -> None:
        """Answer a verb with ``push``."""

    def subscribe(self, verb: Subscribe, told: Subscribed, replay: Recalled) -> None:
        """Answer ``verb`` with ``told``, send the newest of ``replay`` that fit, and deliver the
        topic's messages from now on, with nothing in between.
        """

    def unsubscribe(self, topic: str, push: bytes) -> None:
        """End the subscription, if there is one, and answer with ``push``."""

    def identify(self, auth: AuthState, push: bytes) -> None:
        """Set the login state to ``auth`` until its token expires, and answer with ``push``."""

    def close(self, reason: CloseReason) -> None:
        """Close the connection."""


@dataclasses.dataclass(kw_only=True, eq=False, slots=True)
class Desk:
    """The decisions, one verb at a time for each reader. ``can_serve`` returns whether the start of
    each log is known here."""

    table: TopicTable
    replay_bytes: int
    hub: Hub
    past: Past
    resumer: Resumer
    mailroom: Mailroom
    upstream: Upstream
    gate: Gate
    can_serve: Callable[[], bool]

    def decide(self, reader: Port, intent: Intent) -> Pending | None:
        """Answer ``intent`` now, or return a coroutine to await before the reader's next one."""
        if isinstance(intent, Refusal):
            refuse(reader, intent)
            return None
        measures.VERBS.labels(type(intent).__name__.lower()).inc(reader.many)
        denied = self._denied(reader, intent)
        if denied is not None:
            refuse(reader, denied)
            return None
        match intent:
            case Subscribe():
                pending = self._subscribe(reader, intent)
            case History():
                pending = self._history(reader, intent)
            case SetMark():
                pending = self._mark(reader, intent)
            case LogIn():
                return self._log_in(reader, intent)
            case Unsubscribe():
                push = encode_push("unsubscribed", ref=intent.ref, topic=intent.topic)
                reader.unsubscribe(intent.topic, push)
                return None
            case Ping():
                reader.push(pong_push(intent))
                return None
            case _:
                assert_never(intent)
        return None if pending is None else _unless_away(reader, intent, pending)

    def _denied(self, reader: Port, intent: Intent) -> Refusal | None:
        if not isinstance(intent, _OF_A_TOPIC):
            return None
        if not isinstance(intent, SetMark) and not self.can_serve():
            # Verbs of readers that the data plane had before this process started.
            return _not_now(intent, "the gateway is starting")
        policy = self.table.known(intent.topic)
        if policy.access != "public":
            denied = refusal(intent, policy, reader.auth.login)
            if denied is not None:
                return denied
        return reader.clash(intent) if isinstance(intent, Subscribe) else None

    def _subscribe(self, reader: Port, verb: Subscribe) -> Pending | None:
        if verb.position is not None:
            return self._resume(reader, verb, verb.position)
        if verb.rewind is None and self.table.known(verb.topic).access == "owner":
            return self._open_mailbox(reader, verb)
        asked_at = time.time()
        found = self.past.recall(verb, asked_at)
        if found is None:
            return self._rewind(reader, verb, asked_at, None)
        self._join(reader, verb, found, recovered=False)
        return None

    async def _rewind(
        self, reader: Port, verb: Subscribe, asked_at: float, gap: Gap | None
    ) -> None:
        """Subscribe to past and live messages; ``gap``: why the position couldn't be used."""
        found = await reader.room_for(lambda: self.past.recover(verb, asked_at))
        self._join(reader, verb, found, recovered=False, gap=gap)

    async def _open_mailbox(self, reader: Port, verb: Subscribe) -> None:
        kept = await reader.room_for(lambda: self.mailroom.collect(verb.topic))
        self._join(reader, verb, kept, recovered=kept.recovered, gap=kept.gap)

    def _resume(self, reader: Port, verb: Subscribe, position: str) -> Pending | None:
        missed = self.resumer.recall(verb.topic, position)
        if missed is None or not missed.recovered:
            return self._resume_with_store(reader, verb, position)
        self._join(reader, verb, missed, recovered=True)
        return None

    async def _resume_with_store(self, reader: Port, verb: Subscribe, position: str) -> None:
        asked_at = time.time()
        missed = await reader.room_for(lambda: self._recover(verb.topic, position))
        if missed.gap is not None and verb.rewind is not None:
            await self._rewind(reader, verb, asked_at, missed.gap)
        else:
            self._join(reader, verb, missed, recovered=missed.recovered, gap=missed.gap)

    async def _recover(self, topic: str, position: str) -> Recalled:
        """Return the missed messages; with a gap, the known ones and the newest of each key."""
        missed = await self.resumer.recover(topic, position)
        if missed.gap is None or not self.table.known(topic).latest:
            return missed
        await self.past.try_to_warm(topic)
        return self.resumer.salvage(topic, position, missed.gap, with_latest=True)

    def _join(
        self,
        reader: Port,
        verb: Subscribe,
        replay: Recalled,
        *,
        recovered: bool,
        gap: Gap | None = None,
    ) -> None:
        """Subscribe right after ``replay`` was made, so that no message is lost or sent twice."""
        fitting = replay.that_fit(self.replay_bytes)
        if recovered and len(fitting) < len(replay.publications):
            recovered, gap = False, Gap.TOO_LARGE
        if verb.position is not None:
            self.resumer.answered(verb.topic, gap, reader.many)
        position: str | None = self.hub.position(time.time())
        if recovered and fitting:
            # The reader doesn't have the replay yet, and must not lose it if it is cut off now.
            position = verb.position
        reader.subscribe(verb, Subscribed(position, recovered, gap), replay)

    def _history(self, reader: Port, verb: History) -> Pending | None:
        found = self.past.recall_history(verb)
        if found is None:
            return self._history_with_store(reader, verb)
        reader.push(_history_push(verb, found, self.replay_bytes))
        return None

    async def _history_with_store(self, reader: Port, verb: History) -> None:
        found = await reader.room_for(lambda: self.past.recover_history(verb))
        reader.push(_history_push(verb, found, self.replay_bytes))

    async def _mark(self, reader: Port, verb: SetMark) -> None:
        mark = UserMark(topic=verb.topic, id=verb.id, kind=verb.kind, at_ms=clock_ms())
        await self.upstream.send(mark)
        push = encode_push("marked", ref=verb.ref, topic=verb.topic, id=verb.id, mark=verb.kind)
        reader.push(push)

    def _log_in(self, reader: Port, verb: LogIn) -> Pending | None:
        verdict = self.gate.decide(reader.auth, verb)
        if verdict is None:
            return self._log_in_later(reader, verb)
        _identify(reader, verb, verdict)
        return None

    async def _log_in_later(self, reader: Port, verb: LogIn) -> None:
        _identify(reader, verb, await self.gate.decide_later(reader.auth, verb))


def refuse(reader: Port, refused: Refusal) -> None:
    """Answer with the error push of ``refused``, and count it."""
    reader.push(_refusal_push(reader, refused))


def _refusal_push(reader: Port, refused: Refusal) -> bytes:
    measures.ERRORS.labels(int(refused.code)).inc(reader.many)
    return error_push(refused)


async def _unless_away(reader: Port, verb: History | Subscribe | SetMark, pending: Pending) -> None:
    try:
        await pending
    except StoreError:
        refuse(reader, _not_now(verb, "the store is away"))
    except LinkError:
        refuse(reader, _not_now(verb, "marks can't be sent now"))


def _history_push(verb: History, found: Selection, most_bytes: int) -> bytes:
    fitting = newest_that_fit(found.publications, push_bytes, most_bytes)
    more = len(found.publications) >= verb.limit or len(fitting) < len(found.publications)
    more = more or found.cut
    messages = [publication.frame(Variant.RAW) for publication in fitting]
    return messages_push(verb.ref, verb.topic, messages, more, found.missing)


def _identify(reader: Port, verb: LogIn, verdict: Verdict) -> None:
    if verdict.refusal is not None:
        push = _refusal_push(reader, verdict.refusal)
    else:
        login = verdict.auth.login
        assert login is not None
        kind = "refreshed" if verb.refresh else "logged_in"
        push = encode_push(kind, ref=verb.ref, user=login.user, expires_at=login.expires_ms)
    reader.identify(verdict.auth, push)
    if verdict.hang_up:
        reader.close(INVALID_TOKEN)


def _not_now(verb: History | Subscribe | SetMark, reason: str) -> Refusal:
    return Refusal(
        code=ErrorCode.INTERNAL, reason=reason, temporary=True, topic=verb.topic, ref=verb.ref
    )
