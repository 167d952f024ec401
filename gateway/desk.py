"""Carries readers' intents out: subscribes, replays, reads the store where memory ends.

A topic is warmed from the store when the first reader asks for it, by one read however many
wait for it; what a reader missed who comes back is :mod:`gateway.resume`'s. The store may fail:
a subscribe then goes on with what is remembered (news that comes now matters more than news
that went), and a history is refused with a temporary error.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from gateway import measures
from gateway.access import refusal
from gateway.connection import Connection, State
from gateway.frames import Variant, messages_push
from gateway.gate import Verdict
from gateway.memory import Selection
from gateway.protocol import (
    Gap,
    History,
    Intent,
    LogIn,
    Ping,
    Refusal,
    Rewind,
    SetMark,
    Subscribe,
    Unsubscribe,
    asked_ago,
    logged_in_push,
    marked_push,
    pong_push,
    subscribed_push,
    unsubscribed_push,
)
from gateway.publication import Publication
from newsfabric.closing import INVALID_TOKEN, ErrorCode
from newsfabric.envelope import Envelope
from newsfabric.errors import LinkError, StoreError
from newsfabric.mailbox import Mark
from newsfabric.store.rules import clock_ms
from newsfabric.topics import TopicPolicy

if TYPE_CHECKING:
    from gateway.core import Core

Pending = Coroutine[Any, Any, None]


class Desk:
    """Obeys one intent at a time per connection; any number of connections at once."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._warming: dict[str, asyncio.Task[None]] = {}

    def obey(self, connection: Connection, intent: Intent) -> Pending | None:
        """Carry ``intent`` out now, or return what must be awaited before the next one."""
        if isinstance(intent, Refusal):
            connection.refuse(intent)
            return None
        measures.VERBS.labels(type(intent).__name__.lower()).inc()
        if isinstance(intent, LogIn):
            return self._log_in(connection, intent)
        if isinstance(intent, Subscribe | History | SetMark):
            login = connection.standing.login
            denied = refusal(intent, self._core.policy(intent.topic), login)
            if denied is not None:
                connection.refuse(denied)
                return None
        if isinstance(intent, Subscribe):
            return self._subscribe(connection, intent)
        if isinstance(intent, History):
            return self._history(connection, intent)
        if isinstance(intent, SetMark):
            return self._mark(connection, intent)
        if isinstance(intent, Unsubscribe):
            self._unsubscribe(connection, intent)
        elif isinstance(intent, Ping):
            connection.push(pong_push(intent))
        return None

    def _log_in(self, connection: Connection, verb: LogIn) -> Pending | None:
        verdict = self._core.gate.decide(connection.standing, verb)
        if verdict is None:
            return self._log_in_later(connection, verb)
        self._sentence(connection, verb, verdict)
        return None

    async def _log_in_later(self, connection: Connection, verb: LogIn) -> None:
        verdict = await self._core.gate.decide_later(connection.standing, verb)
        self._sentence(connection, verb, verdict)

    def _sentence(self, connection: Connection, verb: LogIn, verdict: Verdict) -> None:
        if verdict.standing != connection.standing:
            connection.stand(verdict.standing)
        login = verdict.standing.login
        if verdict.refusal is not None:
            connection.refuse(verdict.refusal)
        elif login is not None:
            connection.push(logged_in_push(verb, login.user, login.expires_ms))
        if verdict.hang_up:
            connection.close(INVALID_TOKEN)

    def _subscribe(self, connection: Connection, verb: Subscribe) -> Pending | None:
        clash = connection.session.clash(verb, connection.subscriptions)
        if clash is not None:
            connection.refuse(clash)
        elif verb.position is not None:
            return self._resume(connection, verb, verb.position)
        elif wants_mailbox(verb, self._core.policy(verb.topic)):
            return self._open_mailbox(connection, verb)
        elif not self._is_warm(verb.topic) or not self._rewound(verb, time.time()).covered:
            return self._subscribe_with_store(connection, verb)
        else:
            self._join(connection, verb, [])
        return None

    async def _open_mailbox(self, connection: Connection, verb: Subscribe) -> None:
        try:
            kept = await self._core.mailroom.collect(verb.topic)
        except StoreError:
            connection.refuse(store_away(verb))
        else:
            replay, gap = kept.publications, kept.gap
            self._join_with(connection, verb, replay, recovered=kept.recovered, gap=gap)

    async def _mark(self, connection: Connection, verb: SetMark) -> None:
        try:
            await self._core.upstream.send(mark_of(verb))
        except LinkError:
            connection.refuse(upstream_away(verb))
        else:
            connection.push(marked_push(verb))

    async def _subscribe_with_store(
        self, connection: Connection, verb: Subscribe, gap: Gap | None = None
    ) -> None:
        older: list[Publication] = []
        asked = time.time()
        try:
            await self._warm(verb.topic)
            late = asked_ago(verb, time.time() - asked)
            if not self._rewound(late, time.time()).covered:
                older = self._core.hub.past(verb.topic, await self._stored(late), time.time())
        except StoreError as exc:
            self._core.archive.failed(exc)
        self._join(connection, asked_ago(verb, time.time() - asked), older, gap)

    def _join(
        self,
        connection: Connection,
        verb: Subscribe,
        older: list[Publication],
        gap: Gap | None = None,
    ) -> None:
        """Reply, replay and subscribe without a pause, so that nothing is lost or sent twice."""
        replay = [*older, *self._rewound(verb, time.time()).publications]
        if verb.rewind is not None and verb.rewind.count is not None:
            replay = replay[-verb.rewind.count :]
        self._join_with(connection, verb, replay, recovered=False, gap=gap)

    def _resume(self, connection: Connection, verb: Subscribe, position: str) -> Pending | None:
        missed = self._core.resumer.recall(verb.topic, position)
        if missed is None or not missed.recovered:
            return self._resume_with_store(connection, verb, position)
        self._join_with(connection, verb, missed.publications, recovered=True)
        return None

    async def _resume_with_store(
        self, connection: Connection, verb: Subscribe, position: str
    ) -> None:
        resumer, asked = self._core.resumer, time.time()
        missed = await resumer.recover(verb.topic, position)
        if missed.gap is None:
            self._join_with(connection, verb, missed.publications, recovered=True)
        elif verb.rewind is not None:
            late = asked_ago(verb, time.time() - asked)
            await self._subscribe_with_store(connection, late, missed.gap)
        else:
            if self._core.hub.memory(verb.topic).policy.latest:
                with contextlib.suppress(StoreError):
                    await self._warm(verb.topic)
            missed = resumer.salvage(verb.topic, position, missed.gap)
            replay = missed.publications
            self._join_with(connection, verb, replay, recovered=False, gap=missed.gap)

    def _join_with(
        self,
        connection: Connection,
        verb: Subscribe,
        publications: list[Publication],
        *,
        recovered: bool,
        gap: Gap | None = None,
    ) -> None:
        if connection.state is not State.OPEN:
            return
        now = time.time()
        hub = self._core.hub
        memory = hub.memory(verb.topic)
        if memory.policy.latest and verb.rewind is None and not recovered:
            publications = memory.with_latest(publications, now)
        fitting = self._newest_that_fit(publications, connection.variant)
        if recovered and len(fitting) < len(publications):
            recovered, gap = False, Gap.TOO_LARGE
        if verb.position is not None:
            self._core.resumer.answered(verb.topic, gap)
        position: str | None = hub.position(now)
        if recovered and fitting:
            # The reader doesn't have these yet: it must not lose them if it is cut off now.
            position = verb.position
        connection.subscriptions[verb.topic] = hub.subscribe(verb.topic, connection)
        connection.push(subscribed_push(verb, position, recovered=recovered, gap=gap))
        connection.replay(fitting)

    def _unsubscribe(self, connection: Connection, verb: Unsubscribe) -> None:
        subscription = connection.subscriptions.pop(verb.topic, None)
        if subscription is not None:
            self._core.hub.unsubscribe(subscription)
        connection.push(unsubscribed_push(verb))

    def _history(self, connection: Connection, verb: History) -> Pending | None:
        if self._is_warm(verb.topic) and (found := self._remembered(verb)).covered:
            self._send_history(connection, verb, found.publications)
            return None
        return self._history_with_store(connection, verb)

    async def _history_with_store(self, connection: Connection, verb: History) -> None:
        try:
            await self._warm(verb.topic)
            found = self._remembered(verb)
            if not found.covered:
                found = await self._history_from_store(verb)
        except StoreError as exc:
            self._core.archive.failed(exc)
            connection.refuse(store_away(verb))
            return
        self._send_history(connection, verb, found.publications)

    async def _history_from_store(self, verb: History) -> Selection:
        stored = await self._core.archive.history(verb.topic, limit=verb.limit, before=verb.before)
        policy = self._core.hub.memory(verb.topic).policy
        return Selection([Publication(e, policy, None) for e in stored], covered=True)

    def _send_history(
        self, connection: Connection, verb: History, found: list[Publication]
    ) -> None:
        fitting = self._newest_that_fit(found, Variant.RAW)
        messages = [publication.frame(Variant.RAW) for publication in fitting]
        more = len(found) >= verb.limit or len(messages) < len(found)
        connection.push(messages_push(verb.ref, verb.topic, messages, more))

    def _remembered(self, verb: History) -> Selection:
        memory, now = self._core.hub.memory(verb.topic), time.time()
        if verb.before is None:
            return memory.last(verb.limit, now)
        return memory.before(verb.before, verb.limit, now)

    def _rewound(self, verb: Subscribe, now: float) -> Selection:
        """What memory has of a subscribe's rewind."""
        memory = self._core.hub.memory(verb.topic)
        rewind = verb.rewind or Rewind()
        if rewind.count is not None:
            return memory.last(rewind.count, now)
        if rewind.seconds is not None:
            return memory.since(int((now - rewind.seconds) * 1000), now)
        return Selection([], covered=True)

    async def _stored(self, verb: Subscribe) -> list[Envelope]:
        """What the store has of a subscribe's rewind."""
        rewind = verb.rewind or Rewind()
        limit = rewind.count or self._core.settings.reader.rewind
        since = 0.0 if rewind.seconds is None else time.time() - rewind.seconds
        return await self._core.archive.history(verb.topic, limit=limit, since_ms=int(since * 1000))

    def _is_warm(self, topic: str) -> bool:
        return self._core.hub.is_warm(topic)

    async def _warm(self, topic: str) -> None:
        """Ask the store for a topic's past, once however many wait for it."""
        if self._is_warm(topic):
            return
        task = self._warming.get(topic)
        if task is None:
            task = self._warming[topic] = self._core.spawn(self._read_past(topic))
            task.add_done_callback(lambda _: self._warming.pop(topic, None))
        await asyncio.shield(task)

    async def _read_past(self, topic: str) -> None:
        policy = self._core.hub.memory(topic).policy
        history, latest = await self._core.archive.past(topic, policy)
        self._core.hub.warm(
            topic, history, latest, complete=len(history) < policy.keep, now=time.time()
        )

    def _newest_that_fit(
        self, publications: list[Publication], variant: Variant
    ) -> list[Publication]:
        size, start = 0, len(publications)
        while start > 0:
            size += len(publications[start - 1].frame(variant))
            if size > self._core.settings.replay_bytes:
                break
            start -= 1
        return publications[start:]


def wants_mailbox(verb: Subscribe, policy: TopicPolicy) -> bool:
    """Whether ``verb`` asks for all that is kept for a user, and not for a part of the topic."""
    return policy.access == "owner" and verb.position is None and verb.rewind is None


def mark_of(verb: SetMark) -> Mark:
    """What ``verb`` asks for, now."""
    return Mark(topic=verb.topic, id=verb.id, kind=verb.kind, at_ms=clock_ms())


def store_away(verb: History | Subscribe) -> Refusal:
    """The answer to what the store can't give now."""
    return _not_now(verb, "the store is away")


def starting(verb: History | Subscribe) -> Refusal:
    """The answer of a gateway that doesn't know yet where it begins."""
    return _not_now(verb, "the gateway is starting")


def upstream_away(verb: SetMark) -> Refusal:
    """The answer to a mark that can't be sent now, or isn't known to be."""
    return _not_now(verb, "marks can't be sent now")


def _not_now(verb: History | Subscribe | SetMark, reason: str) -> Refusal:
    return Refusal(
        code=ErrorCode.INTERNAL, reason=reason, temporary=True, topic=verb.topic, ref=verb.ref
    )
