"""Messages that a returning reader missed: from the hub's memory, or from one read of the store.

Rules and an example are in docs/design/0011. Windows (:mod:`gateway.memory.windows`), and the
memory of messages that arrived since their reads, hold all messages, unless that memory has lost
some. While the store is read it forgets nothing. So ``recovered`` is a fact. If reads fail for two
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

from gateway.logs.logs import Logs, ReaderAt
from gateway.memory.hub import Hub
from gateway.memory.memory import TopicMemory
from gateway.memory.windows import WINDOW_SECONDS, Window, fitting
from gateway.past.archive import Archive
from gateway.past.bounded import BoundedMap
from gateway.past.recalled import Answers, Recalled
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
_WINDOWS: Final = 64
# Memory for results, which are kept for a minute, in reads of the largest size.
_KEPT: Final = 4
# Gaps come in crowds when a store fails: at most one log line in this time.
_LINE_SECONDS: Final = 5.0


#: The (topic, region) of a read.
_Place: TypeAlias = tuple[str, str]


class _Asked(NamedTuple):
    """A question: messages beyond a position, or as many as are available if there is a ``gap``."""

    topic: str
    token: str
    gap: Gap | None = None
    with_latest: bool = False


class _Here(NamedTuple):
    """The local state of a topic at ``now``: its memory, and its windows by region. Pure."""

    memory: TopicMemory
    windows: Mapping[str, Window]
    logs: Logs
    now: float
    #: The same moment, by a monotonic clock.
    at: float

    @property
    def stamp(self) -> tuple[int, ...]:
        """All that answers depend on besides the time. Keeps nothing alive."""
        numbers = (window.number for window in self.windows.values())
        return (self.memory.version, len(self.logs), *sorted(numbers))

    @property
    def oldest_ms(self) -> int:
        """The time of the oldest messages that the topic's ttl keeps."""
        return int(self.now * 1000) - int(self.memory.policy.ttl * 1000)

    def answer(self, said: Position) -> Recalled | None:
        """Return all messages beyond ``said``, with a gap if not all; None if a read is needed."""
        if said.time_ms > int(self.now * 1000) + _FUTURE_MS:
            said = UNKNOWN
        reader = ReaderAt(said, self.logs)
        if said.time_ms < self.oldest_ms or reader.may_lack_forgotten():
            return Recalled(self.beyond(reader), Gap.EXPIRED)
        gap = None
        for region, from_ms in self.starts(reader).items():
            window = self.windows.get(region)
            if window is None or not window.answers(from_ms, self.at):
                return None
            if window.reach_ms > from_ms:
                gap = Gap.TOO_MANY
            elif window.spoilt:
                gap = gap or Gap.STORE
        return Recalled(self.beyond(reader), gap)

    def salvage(self, asked: _Asked) -> Recalled:
        """Return the available part of the messages that were ``asked`` for."""
        found = self.beyond(ReaderAt(decode(asked.token), self.logs))
        if asked.with_latest:
            found = self.memory.with_latest(found, self.now)
        return Recalled(found, asked.gap)

    def starts(self, reader: ReaderAt) -> dict[str, int]:
        """Return the time to read from, for each region with messages that are forgotten here."""
        starts: dict[str, int] = {}
        for log in self.memory.forgotten.lacks(reader.has_all):
            from_ms = max(0, self.oldest_ms, reader.position.since_ms(log))
            starts[log.region] = min(starts.get(log.region, from_ms), from_ms)
        return starts

    def beyond(self, reader: ReaderAt) -> list[Publication]:
        """Return messages that ``reader`` lacks: the store's by id, then others as they arrived."""
        read: dict[int, Publication] = {}
        for window in self.windows.values():
            for one in window.messages.values():
                known = self.memory.find(one.envelope.identity)
                if known is None and not one.expired(self.now):
                    known = read.setdefault(one.envelope.identity, one)
                if known is not None:
                    # For a remembered message too: memory may know it by a void number alone.
                    for copy in one.copies:
                        known.add_copy(copy)
        for window in self.windows.values():
            for identity, copy in window.lacking:
                # Another region's window has the message, and may have been read later.
                known = self.memory.find(identity) or read.get(identity)
                if known is not None:
                    known.add_copy(copy)
        older = sorted(read.values(), key=lambda one: one.envelope.id)
        both = (*older, *self.memory.recent(self.now))
        return [one for one in both if reader.lacks(one.copies)]


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class Resumer:
    """Answers for all readers of one gateway who resume. Lives on the event loop that made it.

    ``now`` is a clock in seconds since the epoch, ``clock`` a monotonic one.
    """

    hub: Hub
    archive: Archive
    settings: GatewaySettings
    spawn: Spawn
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        kept_bytes = _KEPT * self.settings.resume_bytes
        self._windows: BoundedMap[_Place, Window] = BoundedMap(_WINDOWS, kept_bytes)
        self._answers: Answers[_Asked] = Answers(_ANSWERS, kept_bytes)
        # By place, the time from which it is being read, and the read.
        self._reading: dict[_Place, tuple[int, asyncio.Task[None]]] = {}
        # By topic and token, the reads that readers wait for.
        self._fetching: SingleFlight[tuple[str, str], None] = SingleFlight(self.spawn)
        self._lines = LineLimit(every=_LINE_SECONDS)

    def recall(self, topic: str, token: str) -> Recalled | None:
        """Return the messages of ``topic`` beyond the position ``token``; None if the store has to
        be asked (:meth:`recover`).

        ``topic`` is one of topics.toml and ``token`` one that can be decoded. The answer holds
        until anything else is offered to the hub.
        """
        here, asked = self._here(topic), _Asked(topic, token)
        return self._answers.get(asked, here.stamp, here.now, lambda: here.answer(decode(token)))

    async def recover(self, topic: str, token: str) -> Recalled:
        """Return :meth:`recall`, reading the store if needed. Join at once afterwards."""
        with self.hub.memory(topic).held(self.settings.resume_rows):
            for _ in range(_ATTEMPTS):
                answer = self.recall(topic, token)
                if answer is not None:
                    return answer
                try:
                    # A crowd that was cut off together has one position, and needs one task.
                    await self._fetching.do((topic, token), lambda: self._fetch(topic, token))
                except StoreError:
                    return self.salvage(topic, token, Gap.STORE)
            return self.recall(topic, token) or self.salvage(topic, token, Gap.BUSY)

    def salvage(self, topic: str, token: str, gap: Gap, *, with_latest: bool = False) -> Recalled:
        """Return the available messages, with the newest of each key if wanted; never
        ``recovered``. Readers with the same position at the same time are given the same object."""
        here, asked = self._here(topic), _Asked(topic, token, gap, with_latest)
        answer = self._answers.get(asked, here.stamp, here.now, lambda: here.salvage(asked))
        assert answer is not None
        return answer

    def answered(self, topic: str, gap: Gap | None, many: int = 1) -> None:
        """Count ``many`` readers who were sent this answer, and log gaps now and then."""
        if gap is None:
            measures.RESUMES.labels("recovered", "").inc(many)
            return
        measures.RESUMES.labels("gap", gap.value).inc(many)
        unsaid = self._lines.may_log(self.clock())
        if unsaid is not None:
            logger.info(
                "a reader who came back to %.80s may have missed something: %s"
                " (%d more such answers)", topic, gap.value, unsaid,
            )  # fmt: skip

    def _here(self, topic: str) -> _Here:
        memory, at = self.hub.memory(topic), self.clock()
        windows = fitting(memory.windows, memory.lost, at)
        return _Here(memory, windows, self.hub.logs, self.now(), at)

    async def _fetch(self, topic: str, token: str) -> None:
        """Read from the store all that :meth:`recall` lacks; StoreError if the retries fail too."""
        reads = map(asyncio.shield, self._reads(topic, token))
        for problem in await asyncio.gather(*reads, return_exceptions=True):
            if isinstance(problem, BaseException):
                raise problem

    def _reads(self, topic: str, token: str) -> list[asyncio.Task[None]]:
        """Return the reads that are needed. A caller that awaits them holds no window meanwhile."""
        here = self._here(topic)
        return [
            self._begun((topic, region), from_ms)
            for region, from_ms in here.starts(ReaderAt(decode(token), here.logs)).items()
            if region not in here.windows or not here.windows[region].answers(from_ms, here.at)
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
        window = self.hub.memory(topic).begin_read(region, asked_ms)
        stored = await self.archive.since(topic, from_ms=asked_ms, region=region)
        messages = self.hub.recollect(topic, stored.envelopes)
        window.was_read(messages, stored.reach_ms, self.clock(), spoilt=stored.spoilt)
        weight = sum(publication.weight for publication in messages.values())
        self._windows.set(place, window, weight)
        loop = asyncio.get_running_loop()
        loop.call_later(WINDOW_SECONDS, self._let_go, place, window.number)

    def _let_go(self, place: _Place, number: int) -> None:
        window = self._windows.get(place)
        if window is not None and window.number == number:
            self._windows.drop(place)
            # Answers made from the window would keep its messages until the next question.
            self._answers.clear()


def _rounded(from_ms: int, now: float) -> int:
    """Return ``from_ms`` or an earlier time: one of the ages at which reads begin."""
    now_ms = int(now * 1000)
    steps = math.ceil(math.log(max(1.0, (now_ms - from_ms) / _SHORTEST_MS)) / _STEP)
    return max(0, min(from_ms, now_ms - int(_SHORTEST_MS * math.exp(steps * _STEP))))
