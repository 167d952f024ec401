"""A topic's past for a reader: its last messages, its messages since a time, or a history.

Memory is asked first, then the store. A topic is *seeded* when the first reader asks for its past:
the store is read once, however many readers wait for it, and memory begins with the result.

Readers who ask the same in the same second are given the same object. So a crowd costs one look
into memory, and the data plane is sent the messages once. For that, the look begins at a whole
second, and messages that are too old are left out afterwards. ``rewind: "90s"`` at 12:00:30.7 looks
from 11:59:00 on and leaves out messages routed before 11:59:00.7: none for most topics.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from gateway.memory.hub import Hub
from gateway.memory.memory import Selection, TopicMemory
from gateway.past.archive import Archive
from gateway.past.replay import AnswerCache, Question, Replay
from gateway.process.settings import GatewaySettings
from gateway.process.tasks import SingleFlight, Spawn
from gateway.wire.publication import Publication
from newsfabric.errors import StoreError
from newsfabric.messages.envelope import Envelope
from newsfabric.store.sound import Sound

# Answers kept for readers who ask the same in the same second, and their weight in all.
_ANSWERS: Final = 64
_ANSWERS_BYTES: Final = 32 << 20
# Number of tries, if memory is forgotten and made anew during a read.
_ATTEMPTS: Final = 2
NOTHING: Final = Replay([])


class _Part(NamedTuple):
    """A part of a topic's past: its ``last`` messages, its messages since a second, or neither."""

    topic: str
    last: int | None
    since: int | None


@dataclasses.dataclass(slots=True)
class _Older:
    """Messages of the store, read while ``memory`` was the topic's; the last result with them."""

    memory: TopicMemory
    publications: list[Publication]
    stamp: tuple[int, int] | None = None
    found: Replay = NOTHING


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class Rewinds:
    """Rewinds and histories for all readers of one gateway (:class:`.Source`).

    ``now`` is a clock in seconds since the epoch.
    """

    hub: Hub
    archive: Archive
    settings: GatewaySettings
    spawn: Spawn
    now: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._seeding: SingleFlight[str, None] = SingleFlight(self.spawn)
        self._reading: SingleFlight[_Part, _Older] = SingleFlight(self.spawn)
        self._answers: AnswerCache[_Part] = AnswerCache(_ANSWERS, _ANSWERS_BYTES)

    def answer_from_memory(self, question: Question) -> Replay | None:
        """See :meth:`.Source.answer_from_memory`."""
        policy = self.hub.table.known(question.topic)
        if question.rewind is None and not policy.latest:
            return NOTHING
        memory = self.hub.memory(question.topic)
        if not memory.seeded:
            return None
        asked = _part(question)
        if policy.access == "owner":
            # Only its owner asks for this topic: the answer isn't shared.
            found = self._answer_from_memory(asked)
        else:
            version, now = memory.version, self.now()
            found = self._answers.get(asked, version, now, lambda: self._answer_from_memory(asked))
        return None if found is None else found.since(_since_ms(question))

    async def answer_from_store(self, question: Question) -> Replay:
        """See :meth:`.Source.answer_from_store`.

        Messages that can't be read are left out: new messages matter more than old ones.
        """
        asked, topic = _part(question), question.topic
        older = _Older(self.hub.memory(topic), [])
        try:
            await self._seed(topic)
            found = self.answer_from_memory(question)
            if found is not None:
                return found
            for _ in range(_ATTEMPTS if question.rewind is not None else 0):
                with self.hub.memory(topic).keep_more(self.settings.reader.rewind):
                    older = await self._reading.do(asked, lambda: self._read(asked))
                if older.memory is self.hub.memory(topic):
                    break
                # Messages that arrived meanwhile may be in neither memory nor the read.
        except StoreError as exc:
            self.archive.failed(exc)
        return self._with_older(asked, older).since(_since_ms(question))

    async def try_to_seed(self, topic: str) -> None:
        """Seed ``topic``, unless it is seeded; a store that can't be read is no error here."""
        try:
            await self._seed(topic)
        except StoreError as exc:
            self.archive.failed(exc)

    def history_from_memory(self, topic: str, limit: int, before: str | None) -> Selection | None:
        """Return the answer to ``history``; None if the store has to be asked."""
        memory, now = self.hub.memory(topic), self.now()
        if not memory.seeded:
            return None
        found = memory.newest(limit, now, before=before)
        return found if found.covered else None

    async def history_from_store(self, topic: str, limit: int, before: str | None) -> Selection:
        """Return the answer to ``history``, reading the store if needed; StoreError if it fails."""
        try:
            await self._seed(topic)
            found = self.history_from_memory(topic, limit, before)
            if found is not None:
                return found
            stored = await self.archive.history(topic, limit=limit, before=before)
        except StoreError as exc:
            self.archive.failed(exc)
            raise
        policy = self.hub.memory(topic).policy
        read = [Publication(e, policy, None) for e in stored.envelopes]
        return Selection(read, covered=True, missing=stored.missing, cut=stored.cut)

    def _answer_from_memory(self, asked: _Part) -> Replay | None:
        selected = self._remembered(asked)
        return Replay(selected.publications) if selected.covered else None

    def _remembered(self, asked: _Part) -> Selection:
        memory, now = self.hub.memory(asked.topic), self.now()
        if asked.last is not None:
            return memory.newest(asked.last, now)
        if asked.since is not None:
            return memory.routed_since(asked.since * 1000, now)
        return Selection(memory.with_latest([], now), covered=True)

    def _with_older(self, asked: _Part, older: _Older) -> Replay:
        memory = self.hub.memory(asked.topic)
        stamp = memory.version, int(self.now())
        if older.stamp != stamp:
            before = [p for p in older.publications if memory.find(p.envelope.identity) is None]
            found = [*before, *self._remembered(asked).publications]
            if asked.last is not None:
                found = found[-asked.last :]
            older.stamp, older.found = stamp, Replay(found)
        return older.found

    async def _read(self, asked: _Part) -> _Older:
        memory = self.hub.memory(asked.topic)
        limit = asked.last or self.settings.reader.rewind
        since_ms = (asked.since or 0) * 1000
        stored = await self.archive.history(asked.topic, limit=limit, since_ms=since_ms)
        given = await self._replace_void_copies(asked.topic, stored.envelopes)
        past = self.hub.take_past(asked.topic, given, self.now())
        return _Older(memory, past)

    async def _replace_void_copies(self, topic: str, stored: list[Envelope]) -> list[Envelope]:
        """Return the ``stored`` messages, one copy of each as the store gives them, oldest first.

        A copy whose number is void here is replaced by one that was given here.
        """
        void = [one for one in stored if self.hub.is_void(one)]
        if not void:
            return stored
        spread_ms = self.hub.spread_ms(self.now())
        newest_first = reversed(await self.archive.copies(topic, void, spread_ms=spread_ms))
        given = {one.identity: one for one in newest_first if self.hub.was_given(one)}
        return sorted((given.get(one.identity, one) for one in stored), key=lambda one: one.id)

    async def _seed(self, topic: str) -> None:
        if not self.hub.memory(topic).seeded:
            await self._seeding.do(topic, lambda: self._read_past(topic))

    async def _read_past(self, topic: str) -> None:
        policy = self.hub.memory(topic).policy
        stored = Sound([])
        if policy.keep:
            stored = await self.archive.history(topic, limit=policy.keep)
        history = await self._replace_void_copies(topic, stored.envelopes)
        latest = await self.archive.latest(topic) if policy.latest else []
        latest = await self._replace_void_copies(topic, latest)
        complete = len(history) < policy.keep and not stored.cut
        self.hub.seed(topic, history, latest, complete=complete, now=self.now())


def _part(question: Question) -> _Part:
    rewind = question.rewind
    if rewind is None:
        return _Part(question.topic, None, None)
    since = None if rewind.seconds is None else _since_ms(question) // 1000
    return _Part(question.topic, rewind.count, since)


def _since_ms(question: Question) -> int:
    """Return the time since which messages are asked for; 0 if the question names none."""
    if question.rewind is None or question.rewind.seconds is None:
        return 0
    return max(0, int((question.asked_at - question.rewind.seconds) * 1000))
