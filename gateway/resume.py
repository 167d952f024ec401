"""What a reader who comes back has missed: from the hub's memory, or from the store once for all.

A position (:mod:`gateway.position`) says what the reader has. What it doesn't have is remembered
here, or comes live, unless memory has forgotten, or never knew, something beyond it. That is known
by numbers, log by log (:mod:`gateway.forgotten`). For those logs alone the topic is read, in the
region that wrote them, where a quorum has everything. What was read is kept for a while as a
:class:`~gateway.windows.Window`: a crowd that comes back together needs one read for each region,
however its positions differ. Windows and the memory of what has arrived since they were read are
everything, as long as that memory has lost none of it.

So ``recovered`` is a fact. Where it can't be had within two seconds that is told
(:class:`~gateway.protocol.Gap`), to the reader, in a metric and now and then in the log. While
the store is read, the topic's memory forgets nothing: else a burst, such as a broker's backlog,
would break the chain whenever the store is slow.

Example. Memory began at number 7 of ``r1``, a log of Dublin, and the reader's position covers 4 of
it. So the topic is read in Dublin since the time that the position has for ``r1``. That finds 5 and
6, and number 3 again, which the reader has.

The decision that one would question: the start of a read is put back to one of a few ages, up to
a quarter longer than needed, so that the positions of a quiet topic's readers, who all
came at different times, share reads too.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from gateway import measures
from gateway.archive import Archive
from gateway.bounded import BoundedMap
from gateway.hub import Hub
from gateway.memory import TopicMemory
from gateway.position import UNKNOWN, Position, decode
from gateway.protocol import Gap
from gateway.publication import Publication
from gateway.recalled import Recalled
from gateway.settings import GatewaySettings
from gateway.single_flight import SingleFlight
from gateway.tasks import Spawn
from gateway.windows import Place, Window, Windows
from newsfabric.envelope import ms_of_id
from newsfabric.errors import StoreError
from newsfabric.topics import TopicPolicy

logger = logging.getLogger(__name__)

# A position from later than this isn't ours.
_FUTURE_MS: Final = 3_600_000
# Ages of reads: a minute, and each a quarter longer than the one before.
_SHORTEST_MS: Final = 60_000
_STEP: Final = math.log(1.25)
_ATTEMPTS: Final = 2
# The archive lets the store rest for a second after a failure.
_AGAIN_SECONDS: Final = 1.1
# Two tries that aren't answered take longer; those that are refused at once go on until then: what
# one topic's failure makes others wait for isn't their own.
_TRY_SECONDS: Final = 2.0
_ANSWERS: Final = 256
# What is kept for a minute, in reads of the largest size.
_KEPT: Final = 4
# Gaps come in crowds, when a store dies: one line in so many seconds.
_LINE_SECONDS: Final = 5.0


class _Asked(NamedTuple):
    """What was asked: beyond a position, or what can be had of that when there is a ``gap``."""

    topic: str
    token: str
    gap: Gap | None = None
    with_latest: bool = False


class _Stamp(NamedTuple):
    """What an answer depends on. It keeps no memory alive."""

    memory: int
    changes: int
    windows: tuple[Window, ...]
    logs: int
    second: int


class Resumer:
    """Answers for all readers of one gateway. Lives on the loop that made it.

    ``now`` is a clock in seconds since the epoch.
    """

    def __init__(
        self,
        *,
        hub: Hub,
        archive: Archive,
        settings: GatewaySettings,
        spawn: Spawn,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._hub = hub
        self._archive = archive
        self._limit = settings.resume_rows
        self._most_bytes = settings.resume_bytes
        self._spawn = spawn
        self._now = now
        self._windows = Windows(_KEPT * settings.resume_bytes, self._forget_made_of)
        self._reading: dict[Place, tuple[int, asyncio.Task[None]]] = {}
        # What readers of a topic with a token wait for.
        self._fetching: SingleFlight[tuple[str, str], None] = SingleFlight(spawn)
        # With what they depend on; None if a read was needed. What several share counts for each.
        self._answers: BoundedMap[_Asked, tuple[_Stamp, Recalled | None]]
        self._answers = BoundedMap(_ANSWERS, _KEPT * settings.resume_bytes)
        self._line_at = float("-inf")
        self._unsaid = 0

    @property
    def kept_bytes(self) -> int:
        """What is kept for readers who come soon, roughly; shared parts are counted twice."""
        return self._windows.bytes + self._answers.bytes

    def recall(self, topic: str, token: str) -> Recalled | None:
        """What ``topic`` has beyond the position ``token``; None if :meth:`fetch` is needed.

        ``topic`` is one of topics.toml and ``token`` one that can be decoded. The answer holds
        until anything else is offered to the hub.
        """
        now = self._now()
        memory = self._hub.memory(topic)
        windows = self._windows.fitting(topic, memory, now)
        asked, stamp = _Asked(topic, token), self._stamp(memory, windows, now)
        known = self._answers.get(asked)
        if known is not None and known[0] == stamp:
            return known[1]
        answer = self._recall(memory, windows, decode(token), now)
        self._note(asked, stamp, answer)
        return answer

    def _stamp(self, memory: TopicMemory, windows: Mapping[str, Window], now: float) -> _Stamp:
        # What is settled, and so counts as had, is known anew with each second at most.
        kept = tuple(windows.values())
        return _Stamp(memory.serial, memory.changes, kept, len(self._hub.logs), int(now))

    def _note(self, asked: _Asked, stamp: _Stamp, answer: Recalled | None) -> None:
        self._answers.set(asked, (stamp, answer), 0 if answer is None else answer.weight)

    def _forget_made_of(self, window: Window) -> None:
        for asked in list(self._answers):
            made = self._answers.get(asked)
            if made is not None and window in made[0].windows:
                self._answers.drop(asked)

    def salvage(self, topic: str, token: str, gap: Gap, *, with_latest: bool = False) -> Recalled:
        """What can be had nevertheless, and the newest of each key if that is wanted; never
        ``recovered``. Who comes with the same position at the same time is given the same object.
        """
        memory, now = self._hub.memory(topic), self._now()
        windows = self._windows.fitting(topic, memory, now)
        asked = _Asked(topic, token, gap, with_latest)
        stamp = self._stamp(memory, windows, now)
        known = self._answers.get(asked)
        if known is not None and known[0] == stamp and known[1] is not None:
            return known[1]
        found = self._beyond(memory, windows, decode(token), now)
        answer = Recalled(memory.with_latest(found, now) if with_latest else found, gap)
        self._note(asked, stamp, answer)
        return answer

    def answered(self, topic: str, gap: Gap | None) -> None:
        """A reader has been told so: count it, and say it now and then."""
        if gap is None:
            measures.RESUMES.labels("recovered", "").inc()
            return
        measures.RESUMES.labels("gap", gap.value).inc()
        now = self._now()
        if now < self._line_at:
            self._unsaid += 1
            return
        logger.info(
            "a reader who came back to %.80s may have missed something: %s (%d more such answers)",
            topic, gap.value, self._unsaid,
        )  # fmt: skip
        self._line_at, self._unsaid = now + _LINE_SECONDS, 0

    async def fetch(self, topic: str, token: str) -> None:
        """Read from the store what :meth:`recall` lacks: once, however many wait for it.

        StoreError if it can't be read, also when tried again.
        """
        # A crowd that was cut off together has one position, and needs one task.
        await self._fetching.do((topic, token), lambda: self._fetch(topic, token))

    async def _fetch(self, topic: str, token: str) -> None:
        memory, now = self._hub.memory(topic), self._now()
        starts = self._starts(memory, decode(token), now)
        windows = self._windows.fitting(topic, memory, now)
        reads = [
            self._begun((topic, region), from_ms)
            for region, from_ms in starts.items()
            if not (region in windows and windows[region].answers(from_ms, now))
        ]
        problems = await asyncio.gather(*map(asyncio.shield, reads), return_exceptions=True)
        for problem in problems:
            if isinstance(problem, BaseException):
                raise problem

    def _begun(self, place: Place, from_ms: int) -> asyncio.Task[None]:
        """The read of this that is under way, or begins now."""
        reading = self._reading.get(place)
        if reading is None or reading[0] > from_ms:
            asked_ms = _rounded(from_ms, self._now())
            task = self._spawn(self._read(place, asked_ms))
            reading = self._reading[place] = (asked_ms, task)
            task.add_done_callback(lambda task: self._has_read(place, task))
        return reading[1]

    async def recover(self, topic: str, token: str) -> Recalled:
        """:meth:`recall`, reading the store where that is needed. Join at once afterwards."""
        with self._hub.memory(topic).held(self._limit):
            for _ in range(_ATTEMPTS):
                answer = self.recall(topic, token)
                if answer is not None:
                    return answer
                try:
                    await self.fetch(topic, token)
                except StoreError:
                    return self.salvage(topic, token, Gap.STORE)
            return self.recall(topic, token) or self.salvage(topic, token, Gap.BUSY)

    def _recall(
        self, memory: TopicMemory, windows: Mapping[str, Window], said: Position, now: float
    ) -> Recalled | None:
        now_ms = int(now * 1000)
        if said.time_ms > now_ms + _FUTURE_MS:
            said = UNKNOWN
        too_old = said.time_ms < now_ms - _ttl_ms(memory.policy)
        if too_old or self._hub.logs.forgot_what_lacks(said):
            return Recalled(self._beyond(memory, windows, said, now), Gap.EXPIRED)
        gap = None
        for region, from_ms in self._starts(memory, said, now).items():
            window = windows.get(region)
            if window is None or not window.answers(from_ms, now):
                return None
            if window.reach_ms > from_ms:
                gap = Gap.TOO_MANY
            elif window.spoilt:
                gap = gap or Gap.STORE
        return Recalled(self._beyond(memory, windows, said, now), gap)

    def _starts(self, memory: TopicMemory, position: Position, now: float) -> dict[str, int]:
        """Which regions have to be read for what isn't remembered, and from which time on."""
        oldest = max(0, int(now * 1000) - _ttl_ms(memory.policy))
        starts: dict[str, int] = {}
        for log in memory.forgotten.lacks(position):
            from_ms = max(oldest, position.since_ms(log))
            starts[log.region] = min(starts.get(log.region, from_ms), from_ms)
        return starts

    def _beyond(
        self, memory: TopicMemory, windows: Mapping[str, Window], position: Position, now: float
    ) -> list[Publication]:
        """What a reader at ``position`` lacks: of the store in order of id, then as it arrived."""
        read: dict[int, Publication] = {}
        for window in windows.values():
            for one in window.messages.values():
                known = memory.find(one.envelope.identity)
                if known is None and not one.expired(now):
                    known = read.setdefault(one.envelope.identity, one)
                if known is not None:
                    # Also of one that is remembered: it may be known by a void number alone.
                    for copy in one.copies:
                        known.add_copy(copy)
        wants = self._hub.logs.wants
        older = sorted(read.values(), key=lambda one: one.envelope.id)
        return [one for one in (*older, *memory.recent(now)) if wants(position, one.copies)]

    async def _read(self, place: Place, asked_ms: int) -> None:
        topic, region = place
        until = time.monotonic() + _TRY_SECONDS
        for attempt in itertools.count(1):
            memory = self._hub.memory(topic)
            arrived, copies = memory.arrived, memory.new_copies
            memory.read_at = arrived
            try:
                stored = await self._archive.since(
                    topic,
                    from_ms=asked_ms,
                    limit=self._limit,
                    most_bytes=self._most_bytes,
                    region=region,
                )
                break
            except StoreError as exc:
                self._archive.failed(exc)
                if attempt >= _ATTEMPTS and time.monotonic() >= until:
                    raise
                await asyncio.sleep(_AGAIN_SECONDS)
        now = self._now()
        found = self._hub.recollect(topic, stored.envelopes, now)
        messages = {one.envelope.identity: one for one in found}
        reach_ms = asked_ms
        if stored.cut:
            oldest = stored.envelopes[0].id if stored.envelopes else None
            reach_ms = int(now * 1000) if oldest is None else ms_of_id(oldest) + 1
        window = Window(
            region, messages, asked_ms, reach_ms, memory, arrived, copies, now, stored.spoilt
        )
        self._windows.keep(place, window)

    def _has_read(self, place: Place, task: asyncio.Task[None]) -> None:
        reading = self._reading.get(place)
        if reading is not None and reading[1] is task:
            del self._reading[place]


def _rounded(from_ms: int, now: float) -> int:
    """``from_ms`` or earlier: one of the ages that reads have."""
    now_ms = int(now * 1000)
    steps = math.ceil(math.log(max(1.0, (now_ms - from_ms) / _SHORTEST_MS)) / _STEP)
    return max(0, min(from_ms, now_ms - int(_SHORTEST_MS * math.exp(steps * _STEP))))


def _ttl_ms(policy: TopicPolicy) -> int:
    return int(policy.ttl * 1000)
