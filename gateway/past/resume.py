"""Messages that a returning reader missed: from the hub's memory, or from one read of the store.

Rules and an example are in docs/design/0011. Reads of the store (:mod:`.memory.store_reads`), and
the memory of messages that arrived since, hold all messages, unless that memory has lost some.
While the store is read it forgets nothing. So ``recovered`` is a fact. If reads fail for two
seconds, a :class:`~gateway.wire.protocol.Gap` is reported: to the reader, in a metric, and now and
then in the log.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from gateway.logs.logs import Logs, ReturningReader
from gateway.memory.hub import Hub
from gateway.memory.memory import TopicMemory
from gateway.memory.store_reads import KEPT_SECONDS, StoreRead, usable_reads
from gateway.past.archive import Archive
from gateway.past.bounded import BoundedMap
from gateway.past.replay import AnswerCache, Question, Replay
from gateway.past.rewind import Rewinds
from gateway.process import measures
from gateway.process.settings import GatewaySettings
from gateway.process.tasks import SingleFlight, Spawn
from gateway.wire.position import UNKNOWN, Position, decode
from gateway.wire.protocol import Gap
from gateway.wire.publication import Publication
from newsfabric.errors import StoreError
from newsfabric.line_limits import LineLimit

logger = logging.getLogger(__name__)

# A position further in the future than this isn't ours.
_FUTURE_MS: Final = 3_600_000
# Ages at which reads begin: a minute, and each next age a quarter longer. Readers of a quiet topic,
# who all left at different times, share reads too.
_SHORTEST_MS: Final = 60_000
_STEP: Final = math.log(1.25)
_ATTEMPTS: Final = 2
# After a failure, the archive doesn't ask the store for a second.
_AGAIN_SECONDS: Final = 1.1
# Two unanswered tries take longer. Tries that are refused at once are repeated until then: a
# refusal may be due to another topic's failure.
_TRY_SECONDS: Final = 2.0
_ANSWERS: Final = 256
_STORE_READS: Final = 64
# Memory for results, which are kept for a minute, in reads of the largest size.
_KEPT: Final = 4
# Gaps come in crowds when a store fails: at most one log line in this time.
_LINE_SECONDS: Final = 5.0


#: The (topic, region) of a read.
_Place: TypeAlias = tuple[str, str]


class _Missed(NamedTuple):
    """A question: messages beyond a position, or as many as are available if there is a ``gap``."""

    topic: str
    token: str
    gap: Gap | None = None
    with_latest: bool = False


class _LocalState(NamedTuple):
    """The local state of a topic at ``now``: its memory, and the reads of it by region. Pure."""

    memory: TopicMemory
    store_reads: Mapping[str, StoreRead]
    logs: Logs
    now: float
    #: The same moment, by a monotonic clock.
    at: float

    @property
    def stamp(self) -> tuple[int, ...]:
        """All that answers depend on besides the time. Keeps nothing alive."""
        numbers = (store_read.number for store_read in self.store_reads.values())
        return (self.memory.version, len(self.logs), *sorted(numbers))

    @property
    def oldest_ms(self) -> int:
        """The time of the oldest messages that the topic's ttl keeps."""
        return int(self.now * 1000) - int(self.memory.policy.ttl * 1000)

    def answer(self, position: Position) -> Replay | None:
        """Return all messages beyond ``position``, with a gap if not all; None: read the store."""
        if position.time_ms > int(self.now * 1000) + _FUTURE_MS:
            position = UNKNOWN
        reader = ReturningReader(position, self.logs)
        if position.time_ms < self.oldest_ms or reader.may_lack_forgotten():
            return Replay(self.beyond(reader), Gap.EXPIRED)
        gap = None
        for region, from_ms in self.starts(reader).items():
            store_read = self.store_reads.get(region)
            if store_read is None or not store_read.answers(from_ms, self.at):
                return None
            if store_read.reach_ms > from_ms:
                gap = Gap.TOO_MANY
            elif store_read.damaged:
                gap = gap or Gap.STORE
        return Replay(self.beyond(reader), gap)

    def partial_answer(self, asked: _Missed) -> Replay:
        """Return the available part of the messages that were ``asked`` for."""
        found = self.beyond(ReturningReader(decode(asked.token), self.logs))
        if asked.with_latest:
            found = self.memory.with_latest(found, self.now)
        return Replay(found, asked.gap)

    def starts(self, reader: ReturningReader) -> dict[str, int]:
        """Return the time to read from, for each region with messages that are forgotten here."""
        starts: dict[str, int] = {}
        for log in self.memory.forgotten.incomplete_logs(reader.has_all):
            from_ms = max(0, self.oldest_ms, reader.position.since_ms(log))
            starts[log.region] = min(starts.get(log.region, from_ms), from_ms)
        return starts

    def beyond(self, reader: ReturningReader) -> list[Publication]:
        """Return messages that ``reader`` lacks: the store's by id, then others as they arrived."""
        read: dict[int, Publication] = {}
        for store_read in self.store_reads.values():
            for one in store_read.messages.values():
                known = self.memory.find(one.envelope.identity)
                if known is None and not one.expired(self.now):
                    known = read.setdefault(one.envelope.identity, one)
                if known is not None:
                    # For a remembered message too: memory may know it by a void number alone.
                    for copy in one.copies:
                        known.add_copy(copy)
        for store_read in self.store_reads.values():
            for identity, copy in store_read.missing_copies:
                # Another region's read has the message, and may have been read later.
                known = self.memory.find(identity) or read.get(identity)
                if known is not None:
                    known.add_copy(copy)
        older = sorted(read.values(), key=lambda one: one.envelope.id)
        both = (*older, *self.memory.messages(self.now))
        return [one for one in both if reader.may_lack(one.copies)]


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class Resumes:
    """Answers for all readers of one gateway who resume (:class:`.Source`).

    Lives on the event loop that made it. ``now`` is a clock in seconds since the epoch, ``clock`` a
    monotonic one.
    """

    hub: Hub
    archive: Archive
    rewinds: Rewinds
    settings: GatewaySettings
    spawn: Spawn
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        kept_bytes = _KEPT * self.settings.resume_bytes
        self._store_reads: BoundedMap[_Place, StoreRead] = BoundedMap(_STORE_READS, kept_bytes)
        self._answers: AnswerCache[_Missed] = AnswerCache(_ANSWERS, kept_bytes)
        # By place, the time from which it is being read, and the read.
        self._reading: dict[_Place, tuple[int, asyncio.Task[None]]] = {}
        # By topic and token, the reads that readers wait for.
        self._fetching: SingleFlight[tuple[str, str], None] = SingleFlight(self.spawn)
        self._lines = LineLimit(every=_LINE_SECONDS)

    def answer_from_memory(self, question: Question) -> Replay | None:
        """See :meth:`.Source.answer_from_memory`. With a gap the store has to be asked, too."""
        missed = self.missed_in_memory(question.topic, _token(question))
        return missed if missed is not None and missed.gap is None else None

    async def answer_from_store(self, question: Question) -> Replay:
        """See :meth:`.Source.answer_from_store`.

        With a gap these are the messages of the rewind; without a rewind the available ones, with
        the newest of each key.
        """
        topic, token = question.topic, _token(question)
        missed = await self.missed(topic, token)
        if missed.gap is None:
            return missed
        if question.rewind is not None:
            return (await self.rewinds.answer_from_store(question)).with_gap(missed.gap)
        if self.hub.table.known(topic).latest:
            await self.rewinds.try_to_seed(topic)
            return self._partial_answer(topic, token, missed.gap, with_latest=True)
        return missed

    def missed_in_memory(self, topic: str, token: str) -> Replay | None:
        """Return the messages of ``topic`` beyond the position ``token``; None if the store has to
        be asked (:meth:`missed`)."""
        here, asked = self._local_state(topic), _Missed(topic, token)
        return self._answers.get(asked, here.stamp, here.now, lambda: here.answer(decode(token)))

    async def missed(self, topic: str, token: str) -> Replay:
        """Return :meth:`missed_in_memory`, reading the store if needed; use it at once."""
        with self.hub.memory(topic).keep_more(self.settings.resume_rows):
            for _ in range(_ATTEMPTS):
                answer = self.missed_in_memory(topic, token)
                if answer is not None:
                    return answer
                try:
                    # A crowd that was cut off together has one position, and needs one task.
                    await self._fetching.do((topic, token), lambda: self._fetch(topic, token))
                except StoreError:
                    return self._partial_answer(topic, token, Gap.STORE)
            answer = self.missed_in_memory(topic, token)
            return answer or self._partial_answer(topic, token, Gap.BUSY)

    def _partial_answer(
        self, topic: str, token: str, gap: Gap, *, with_latest: bool = False
    ) -> Replay:
        """Return the available messages, with the newest of each key if wanted; never
        ``recovered``. Readers with the same position at the same time are given the same object."""
        here, asked = self._local_state(topic), _Missed(topic, token, gap, with_latest)
        answer = self._answers.get(asked, here.stamp, here.now, lambda: here.partial_answer(asked))
        assert answer is not None
        return answer

    def count_answer(self, topic: str, gap: Gap | None, many: int = 1) -> None:
        """Count ``many`` readers who were sent this answer, and log gaps now and then."""
        if gap is None:
            measures.RESUMES.labels("recovered", "").inc(many)
            return
        measures.RESUMES.labels("gap", gap.value).inc(many)
        skipped_lines = self._lines.may_log(self.clock())
        if skipped_lines is not None:
            logger.info(
                "a reader who came back to %.80s may have missed something: %s"
                " (%d more such answers)", topic, gap.value, skipped_lines,
            )  # fmt: skip

    def _local_state(self, topic: str) -> _LocalState:
        memory, at = self.hub.memory(topic), self.clock()
        store_reads = usable_reads(memory.store_reads, memory.lost, at)
        return _LocalState(memory, store_reads, self.hub.logs, self.now(), at)

    async def _fetch(self, topic: str, token: str) -> None:
        """Read from the store all that memory lacks; StoreError if the retries fail too."""
        reads = map(asyncio.shield, self._reads(topic, token))
        for problem in await asyncio.gather(*reads, return_exceptions=True):
            if isinstance(problem, BaseException):
                raise problem

    def _reads(self, topic: str, token: str) -> list[asyncio.Task[None]]:
        """Return the reads that are needed. A caller that awaits them holds no read meanwhile."""
        here = self._local_state(topic)
        return [
            self._begun((topic, region), from_ms)
            for region, from_ms in here.starts(ReturningReader(decode(token), here.logs)).items()
            if region not in here.store_reads
            or not here.store_reads[region].answers(from_ms, here.at)
        ]

    def _begun(self, place: _Place, from_ms: int) -> asyncio.Task[None]:
        """Return the read of ``place`` that is under way, or one that begins now."""
        reading = self._reading.get(place)
        if reading is None or reading[0] > from_ms:
            asked_ms = _rounded(from_ms, self.now())
            task = self.spawn(self._read(place, asked_ms))
            reading = self._reading[place] = (asked_ms, task)
            task.add_done_callback(lambda task: self._has_read(place, task))
        return reading[1]

    def _has_read(self, place: _Place, task: asyncio.Task[None]) -> None:
        reading = self._reading.get(place)
        if reading is not None and reading[1] is task:
            del self._reading[place]

    async def _read(self, place: _Place, asked_ms: int) -> None:
        until = self.clock() + _TRY_SECONDS
        for attempt in itertools.count(1):
            try:
                await self._read_once(place, asked_ms)
                return
            except StoreError as exc:
                self.archive.failed(exc)
                if attempt >= _ATTEMPTS and self.clock() >= until:
                    raise
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _read_once(self, place: _Place, asked_ms: int) -> None:
        topic, region = place
        store_read = self.hub.memory(topic).begin_read(region, asked_ms)
        stored = await self.archive.since(topic, from_ms=asked_ms, region=region)
        messages = self.hub.past_with_copies(topic, stored.envelopes)
        damaged = bool(stored.missing)
        store_read.was_read(messages, stored.reach_ms, self.clock(), damaged=damaged)
        weight = sum(publication.weight for publication in messages.values())
        self._store_reads.set(place, store_read, weight)
        loop = asyncio.get_running_loop()
        loop.call_later(KEPT_SECONDS, self._let_go, place, store_read.number)

    def _let_go(self, place: _Place, number: int) -> None:
        store_read = self._store_reads.get(place)
        if store_read is not None and store_read.number == number:
            self._store_reads.drop(place)
            # Answers made from the read would keep its messages until the next question.
            self._answers.clear()


def _token(question: Question) -> str:
    assert question.position is not None
    return question.position


def _rounded(from_ms: int, now: float) -> int:
    """Return ``from_ms`` or an earlier time: one of the ages at which reads begin."""
    now_ms = int(now * 1000)
    steps = math.ceil(math.log(max(1.0, (now_ms - from_ms) / _SHORTEST_MS)) / _STEP)
    return max(0, min(from_ms, now_ms - int(_SHORTEST_MS * math.exp(steps * _STEP))))
