"""Decides what readers on the data plane ask for, and gives it what its memory lacks.

Every text is answered by exactly one command. Whoever asked is a handle in that command, when
the data plane's memory doesn't reach as far as a verb asks, it says the verb again (what was
found out about it meanwhile is in the command's token), and who a reader is comes along as its
badge: nothing is kept of a reader here.

The data plane's memory is warmed as the hub's is: by one read for each topic, however many wait
for it, when the first reader asks for the past. A subscribe that asks for none doesn't wait.

A reader who resumes is judged here, by the hub's own memory and :mod:`gateway.resume`: the
data plane understands no positions. It is given exactly what to replay; commands are obeyed in
their order, so that is up to date when it is obeyed.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import orjson

from gateway import measures
from gateway.access import refusal
from gateway.archive import Archive
from gateway.desk import mark_of, starting, store_away, upstream_away, wants_mailbox
from gateway.frames import Variant, encode_push, messages_push
from gateway.gate import Gate, Verdict
from gateway.hub import Hub
from gateway.mailroom import Mailroom
from gateway.native import commands
from gateway.native.commands import Replay
from gateway.native.events import Uncovered
from gateway.native.plane import Plane
from gateway.native.said import Said, Sayings
from gateway.native.wire import MAX_MESSAGE, Connection
from gateway.protocol import (
    Gap,
    History,
    Intent,
    LogIn,
    Ping,
    Refusal,
    Rewind,
    Session,
    SetMark,
    Subscribe,
    Unsubscribe,
    asked_ago,
    error_push,
    logged_in_push,
    marked_push,
    pong_push,
    subscribed_push,
    unsubscribed_push,
)
from gateway.publication import Publication
from gateway.resume import Recalled, Resumer
from gateway.settings import GatewaySettings
from gateway.standing import STRANGER, Standing, decode_badge
from gateway.upstream import Upstream
from newsfabric.closing import INTERNAL, INVALID_TOKEN
from newsfabric.envelope import Envelope, ms_of_id
from newsfabric.errors import LinkError, StoreError
from newsfabric.topics import TopicPolicy, TopicTable

# In tokens: hundredths of seconds in the upper 28 bits, then a gap's number, then whether warmed.
_TICKS: Final = 100
_TICK_BITS: Final = 28
_GAPS: Final = (None, *Gap)
_SUBSCRIBES: Final = measures.VERBS.labels("subscribe")
_LOGINS: Final = measures.VERBS.labels("login")
# Of a topic's history, and of its newest versions, in one seed.
_SEED_BYTES: Final = MAX_MESSAGE // 4


@dataclasses.dataclass(frozen=True, slots=True)
class _Asking:
    """What a verb comes back with when the data plane's memory isn't enough for its answer.

    It was first read at ``asked`` (seconds since the epoch): from there its rewind counts.
    ``gap`` is why it can't be resumed from its position. Its topic was ``warmed`` for it.
    """

    asked: float
    gap: Gap | None = None
    warmed: bool = False

    @property
    def token(self) -> int:
        """All of it in 32 bits; the time is good for a month."""
        ticks = int(self.asked * _TICKS) % (1 << _TICK_BITS)
        return ticks << 4 | _GAPS.index(self.gap) << 1 | self.warmed

    @staticmethod
    def of(token: int, now: float) -> _Asking:
        """What was packed into ``token`` within the last month."""
        ago = (int(now * _TICKS) - (token >> 4)) % (1 << _TICK_BITS)
        gap = token >> 1 & 7
        return _Asking(now - ago / _TICKS, _GAPS[gap] if gap < len(_GAPS) else None, token & 1 == 1)

    def now(self, verb: Subscribe) -> Subscribe:
        """``verb`` with its rewind counted from now."""
        return asked_ago(verb, max(0.0, time.time() - self.asked))


class NativeDesk:
    """Answers the data plane's readers."""

    def __init__(
        self,
        *,
        told: GatewaySettings,
        table: TopicTable,
        hub: Hub,
        archive: Archive,
        resumer: Resumer,
        plane: Plane,
        mailroom: Mailroom,
        upstream: Upstream,
        gate: Gate,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        can_serve: Callable[[], bool],
    ) -> None:
        self._told = told
        self._table = table
        self._hub = hub
        self._archive = archive
        self._resumer = resumer
        self._plane = plane
        self._mailroom = mailroom
        self._upstream = upstream
        self._gate = gate
        self._spawn = spawn
        self._can_serve = can_serve
        # Shared by all: rates and subscriptions are counted by the data plane.
        self._session = Session(table, told.reader, 0.0)
        self._said = Sayings()
        # Those that the data plane has.
        self._batch_numbers: collections.deque[int] = collections.deque(
            maxlen=commands.MOST_BATCHES
        )
        self._batches = 0
        self._warming: dict[str, asyncio.Task[None]] = {}

    def answer(self, connection: Connection, badge: bytes, text: bytes) -> None:
        """A reader with ``badge`` has said ``text``."""
        said = self._said.find(text) or self._learn(text)
        intent = said.intent
        if isinstance(intent, Subscribe | History) and not self._can_serve():
            # Of readers that the data plane had before us.
            self._refuse(connection, starting(intent))
            return
        if said.plain:
            assert isinstance(intent, Subscribe)
            _SUBSCRIBES.inc()
            self._plane.send(self._joined(connection, said, intent))
            return
        if isinstance(intent, LogIn):
            self._log_in(connection, _standing(badge), intent)
            return
        if isinstance(intent, Subscribe | History | SetMark):
            policy = self._policy(intent.topic)
            if policy.access != "public":
                denied = refusal(intent, policy, _standing(badge).login)
                if denied is not None:
                    self._refuse(connection, denied)
                    return
        if isinstance(intent, Subscribe) and intent.position is not None:
            _SUBSCRIBES.inc()
            self._resume(connection, said, intent, intent.position)
        elif isinstance(intent, Subscribe) and wants_mailbox(intent, self._policy(intent.topic)):
            _SUBSCRIBES.inc()
            self._spawn(self._open_mailbox(connection, intent))
        elif isinstance(intent, Subscribe) and intent.rewind is None:
            _SUBSCRIBES.inc()
            self._plane.send(self._joined(connection, said, intent))
        else:
            self._obey(connection, said.intent)

    def uncovered(self, event: Uncovered) -> None:
        """The data plane's memory doesn't reach as far as a verb asks."""
        said = self._said.find(event.text) or self._learn(event.text)
        verb, connection = said.intent, event.connection
        asking = _Asking.of(event.token, time.time())
        warm = event.cold and not asking.warmed
        if isinstance(verb, Subscribe) and verb.position is not None:
            if asking.gap is None:
                # It named a batch that isn't there any more.
                self._spawn(self._resume_with_store(connection, said, verb, verb.position))
                return
            missed = self._resumer.salvage(verb.topic, verb.position, asking.gap)
            verb = _from_the_first_of(verb, missed, asking)
        if isinstance(verb, Subscribe | History):
            self._spawn(self._answer_with_store(connection, verb, asking, warm=warm))
        else:
            # Nobody asked memory for that, and the reader would wait for ever.
            self._plane.send(commands.close(connection, INTERNAL))

    def attached(self) -> None:
        """An attachment has begun: it has none of the batches of the one before."""
        self._said.clear()
        self._batch_numbers.clear()

    def _learn(self, text: bytes) -> Said:
        intent = self._session.read(text)
        said = Said(text, intent, plain=isinstance(intent, Subscribe) and self._is_plain(intent))
        if self._is_said_by_many(said.intent):
            self._said.keep(said)
        return said

    def _is_plain(self, verb: Subscribe) -> bool:
        """Most readers are nobody in particular, read what is everybody's, and begin now."""
        public = self._policy(verb.topic).access == "public"
        return public and verb.position is None and verb.rewind is None

    def _is_said_by_many(self, intent: Intent) -> bool:
        """A token, and what is about a topic of one's own, is nobody else's business."""
        if isinstance(intent, Subscribe | History):
            return self._policy(intent.topic).access != "owner"
        return not isinstance(intent, LogIn | SetMark)

    async def _open_mailbox(self, connection: Connection, verb: Subscribe) -> None:
        attachment = self._plane.attachment
        await self._plane.room()
        kept: Recalled | None = None
        with contextlib.suppress(StoreError):
            kept = await self._mailroom.collect(verb.topic)
        if attachment != self._plane.attachment:
            # The verb comes again.
            return
        if kept is None:
            self._refuse(connection, store_away(verb))
            return
        fitting = commands.that_fit(kept.publications, self._told.replay_bytes)
        whole = len(fitting) == len(kept.publications)
        gap = kept.gap if whole else kept.gap or Gap.TOO_LARGE
        # The last of them has the position: until then the reader doesn't have them all.
        position = None if gap is None and fitting else self._hub.position(time.time())
        self._plane.send(
            commands.subscribe(
                connection,
                verb.topic,
                self._policy(verb.topic),
                token=None,
                replay=Replay(3, 0),
                ref=_ref(verb),
                push=subscribed_push(verb, position, recovered=gap is None, gap=gap),
                older=fitting,
            )
        )

    async def _mark(self, connection: Connection, verb: SetMark) -> None:
        attachment = self._plane.attachment
        refusal: Refusal | None = None
        try:
            await self._upstream.send(mark_of(verb))
        except LinkError:
            refusal = upstream_away(verb)
        if attachment != self._plane.attachment:
            # The verb comes again, and a mark that is made twice is made once.
            return
        if refusal is not None:
            self._refuse(connection, refusal)
        else:
            self._plane.send(commands.reply(connection, marked_push(verb)))

    def _log_in(self, connection: Connection, standing: Standing, verb: LogIn) -> None:
        _LOGINS.inc()
        verdict = self._gate.decide(standing, verb)
        if verdict is None:
            self._spawn(self._log_in_later(connection, standing, verb))
        else:
            self._sentence(connection, verb, verdict)

    async def _log_in_later(self, connection: Connection, standing: Standing, verb: LogIn) -> None:
        attachment = self._plane.attachment
        verdict = await self._gate.decide_later(standing, verb)
        # Else the verb comes again.
        if attachment == self._plane.attachment:
            self._sentence(connection, verb, verdict)

    def _sentence(self, connection: Connection, verb: LogIn, verdict: Verdict) -> None:
        login = verdict.standing.login
        if verdict.refusal is not None:
            measures.ERRORS.labels(int(verdict.refusal.code)).inc()
            push = error_push(verdict.refusal)
        else:
            assert login is not None
            push = logged_in_push(verb, login.user, login.expires_ms)
        self._plane.send(commands.badge(connection, verdict.standing, push))
        if verdict.hang_up:
            self._plane.send(commands.close(connection, INVALID_TOKEN))

    def _joined(self, connection: Connection, said: Said, verb: Subscribe) -> bytes:
        """The answer to a subscribe without rewind: almost the same to all who say the same."""
        position = self._hub.position(time.time())
        if said.position != position:
            said.position = position
            said.answer = commands.subscribe(
                connection,
                verb.topic,
                self._policy(verb.topic),
                # Without a rewind it doesn't matter when it was asked for.
                token=_Asking(0.0).token if self._wants_the_past(verb) else None,
                replay=Replay(),
                ref=_ref(verb),
                push=subscribed_push(verb, position),
            )
            self._said.weigh(said)
        return commands.subscribe_again(said.answer, connection)

    def _resume(self, connection: Connection, said: Said, verb: Subscribe, position: str) -> None:
        missed = self._resumer.recall(verb.topic, position)
        if missed is not None and missed.recovered:
            self._resumed(connection, said, verb, missed)
        else:
            self._spawn(self._resume_with_store(connection, said, verb, position))

    async def _resume_with_store(
        self,
        connection: Connection,
        said: Said,
        verb: Subscribe,
        position: str,
    ) -> None:
        attachment, asked = self._plane.attachment, time.time()
        missed = await self._resumer.recover(verb.topic, position)
        while self._plane.full:
            # What was missed holds only until something else arrives.
            await self._plane.room()
            missed = await self._resumer.recover(verb.topic, position)
        if attachment != self._plane.attachment:
            # The verb comes again.
            return
        if missed.recovered or not self._wants_the_past(verb):
            self._resumed(connection, said, verb, missed)
        else:
            self._resumer.answered(verb.topic, missed.gap)
            asking = _Asking(asked, missed.gap)
            self._subscribe(connection, _from_the_first_of(verb, missed, asking), asking)

    def _resumed(
        self, connection: Connection, said: Said, verb: Subscribe, missed: Recalled
    ) -> None:
        """Answer a subscribe with what was missed: the same to all who say the same."""
        position = self._hub.position(time.time())
        answer = said.answer
        if not said.misses(missed) or said.position != position or not self._has_batch(said):
            fitting = commands.that_fit(missed.publications, self._told.replay_bytes)
            whole = len(fitting) == len(missed.publications)
            said.gap = missed.gap if whole else missed.gap or Gap.TOO_LARGE
            # As long as the reader doesn't have these, it must not lose them if it is cut off.
            echoed = verb.position if said.gap is None and fitting else None
            if not said.misses(missed):
                # Most who say so are the only ones: they are given it, and it isn't kept.
                said.batch = 0
            elif not self._has_batch(said):
                said.batch = self._send_batch(verb.topic, fitting)
            said.note_missed(missed)
            said.position = position
            answer = commands.subscribe(
                connection,
                verb.topic,
                self._policy(verb.topic),
                token=None,
                replay=Replay(3, said.batch),
                ref=_ref(verb),
                push=subscribed_push(
                    verb, echoed or position, recovered=said.gap is None, gap=said.gap
                ),
                older=() if said.batch else fitting,
            )
            said.answer = answer if said.batch else b""
            self._said.weigh(said)
        self._resumer.answered(verb.topic, said.gap)
        self._plane.send(commands.subscribe_again(answer, connection))

    def _has_batch(self, said: Said) -> bool:
        return said.batch in self._batch_numbers

    def _send_batch(self, topic: str, messages: Sequence[Publication]) -> int:
        self._batches += 1
        self._plane.send(commands.batch(self._batches, topic, self._policy(topic), messages))
        self._batch_numbers.append(self._batches)
        return self._batches

    def _wants_the_past(self, verb: Subscribe) -> bool:
        return verb.rewind is not None or self._policy(verb.topic).latest

    def _obey(self, connection: Connection, intent: Intent) -> None:
        if isinstance(intent, Refusal):
            self._refuse(connection, intent)
            return
        measures.VERBS.labels(type(intent).__name__.lower()).inc()
        if isinstance(intent, Subscribe):
            self._subscribe(connection, intent, _Asking(time.time()))
        elif isinstance(intent, History):
            self._history(connection, intent, _Asking(time.time()))
        elif isinstance(intent, SetMark):
            self._spawn(self._mark(connection, intent))
        elif isinstance(intent, Unsubscribe):
            push = unsubscribed_push(intent)
            self._plane.send(commands.unsubscribe(connection, intent.topic, push))
        elif isinstance(intent, Ping):
            self._plane.send(commands.reply(connection, pong_push(intent)))

    def _refuse(self, connection: Connection, refusal: Refusal) -> None:
        measures.ERRORS.labels(int(refusal.code)).inc()
        self._plane.send(commands.reply(connection, error_push(refusal)))

    def _subscribe(self, connection: Connection, verb: Subscribe, asking: _Asking) -> None:
        self._join(connection, verb, asking, [], only_if_covered=self._wants_the_past(verb))

    def _join(
        self,
        connection: Connection,
        verb: Subscribe,
        asking: _Asking,
        older: list[Publication],
        *,
        only_if_covered: bool,
    ) -> None:
        now = time.time()
        fitting = len(commands.that_fit(older, self._told.replay_bytes))
        self._plane.send(
            commands.subscribe(
                connection,
                verb.topic,
                self._policy(verb.topic),
                token=asking.token if only_if_covered else None,
                replay=_replay(asking.now(verb).rewind, now),
                ref=_ref(verb),
                push=subscribed_push(verb, self._hub.position(now), gap=asking.gap),
                # One more than fits: where the data plane meets it, the replay begins after it,
                # and no newest version of a key from before comes in its stead.
                older=older[-fitting - 1 :],
            )
        )

    def _history(self, connection: Connection, verb: History, asking: _Asking) -> None:
        head = encode_push({"type": "history", "ref": verb.ref, "topic": verb.topic})
        self._plane.send(
            commands.history(
                connection,
                verb.topic,
                self._policy(verb.topic),
                token=asking.token,
                limit=verb.limit,
                before=verb.before,
                head=head[:-1] + b',"more":',
            )
        )

    async def _answer_with_store(
        self, connection: Connection, verb: Subscribe | History, asking: _Asking, *, warm: bool
    ) -> None:
        attachment = self._plane.attachment
        await self._plane.room()
        stored: list[Envelope] = []
        refusal: Refusal | None = None
        try:
            if warm:
                await self._warm(verb.topic)
            else:
                stored = await self._stored(verb, asking)
        except StoreError as exc:
            self._archive.failed(exc)
            warm = False
            refusal = store_away(verb) if isinstance(verb, History) else None
        if attachment != self._plane.attachment:
            # The verb comes again.
            return
        if refusal is not None:
            self._refuse(connection, refusal)
        elif isinstance(verb, History):
            if warm:
                self._history(connection, verb, dataclasses.replace(asking, warmed=True))
            else:
                self._send_history(connection, verb, stored)
        elif warm:
            self._subscribe(connection, verb, dataclasses.replace(asking, warmed=True))
        else:
            older = self._older(verb.topic, stored)
            self._join(connection, verb, asking, older, only_if_covered=False)

    def _send_history(self, connection: Connection, verb: History, stored: list[Envelope]) -> None:
        policy = self._policy(verb.topic)
        found = [Publication(envelope, policy, None) for envelope in stored]
        fitting = commands.that_fit(found, self._told.replay_bytes)
        more = len(found) >= verb.limit or len(fitting) < len(found)
        pushes = [publication.frame(Variant.RAW) for publication in fitting]
        push = messages_push(verb.ref, verb.topic, pushes, more)
        self._plane.send(commands.reply(connection, push))

    async def _stored(self, verb: Subscribe | History, asking: _Asking) -> list[Envelope]:
        """What the store has of what ``verb`` asks for."""
        if isinstance(verb, History):
            return await self._archive.history(verb.topic, limit=verb.limit, before=verb.before)
        rewind = asking.now(verb).rewind
        if rewind is None:
            return []
        since = 0 if rewind.seconds is None else _ms_ago(rewind.seconds, time.time())
        limit = rewind.count or self._told.reader.rewind
        return await self._archive.history(verb.topic, limit=limit, since_ms=since)

    async def _warm(self, topic: str) -> None:
        """Seed a topic, once however many wait for it."""
        task = self._warming.get(topic)
        if task is None:
            task = self._warming[topic] = self._spawn(self._seed(topic))
            task.add_done_callback(lambda _: self._warming.pop(topic, None))
        await asyncio.shield(task)

    async def _seed(self, topic: str) -> None:
        policy = self._policy(topic)
        history, latest = await self._archive.past(topic, policy)
        older = self._older(topic, history)
        versions = [
            Publication(envelope, policy, None)
            for envelope in latest
            if self._hub.was_given(envelope)
        ]
        fitting = commands.that_fit(older, _SEED_BYTES)
        complete = len(history) < policy.keep and len(fitting) == len(older)
        newest = commands.that_fit(versions, _SEED_BYTES)
        self._plane.send(commands.seed(topic, policy, fitting, newest, complete=complete))

    def _older(self, topic: str, stored: list[Envelope]) -> list[Publication]:
        """The past among ``stored``: what the data plane remembers of it is its affair."""
        return self._hub.past(topic, stored, time.time(), remembered=True)

    def _policy(self, topic: str) -> TopicPolicy:
        policy = self._table.find(topic)
        # The session lets nothing else through, and the table doesn't change.
        assert policy is not None
        return policy


def _standing(badge: bytes) -> Standing:
    try:
        return decode_badge(badge)
    except ValueError:
        # Another release made it: the reader has to log in again.
        return STRANGER


def _ref(verb: Subscribe) -> bytes:
    return b"" if verb.ref is None else orjson.dumps(verb.ref)


def _from_the_first_of(verb: Subscribe, missed: Recalled, asking: _Asking) -> Subscribe:
    """``verb`` with a rewind that has all of ``missed``, if it doesn't say how far itself."""
    if verb.rewind is not None or not missed.publications:
        return verb
    first_ms = min(ms_of_id(one.envelope.id) for one in missed.publications)
    seconds = max(1.0, asking.asked - first_ms / 1000 + 1)
    return dataclasses.replace(verb, rewind=Rewind(seconds=seconds, latest=True))


def _replay(rewind: Rewind | None, now: float) -> Replay:
    if rewind is None:
        return Replay()
    if rewind.seconds is not None:
        return Replay(4 if rewind.latest else 2, _ms_ago(rewind.seconds, now))
    return Replay(1, rewind.count or 0)


def _ms_ago(seconds: float, now: float) -> int:
    return max(0, int((now - seconds) * 1000))
