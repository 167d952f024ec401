"""What a reader who comes back has missed: from the hub's memory, or from the store once for all.

A position (:mod:`gateway.position`) says what the reader has. What it doesn't have is remembered
here, or comes live, unless memory has forgotten, or never knew, something beyond it. That is known
by numbers, log by log (:mod:`gateway.forgotten`). For those logs alone the topic is read, in the
region that wrote them, where a quorum has everything. What was read is kept for a while as a
:class:`_Window`: a crowd that comes back together needs one read for each region, however its
positions differ. Windows and the memory of what has arrived since they were read are everything, as
long as that memory has lost none of it.

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
import collections
import dataclasses
import itertools
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, NamedTuple

from gateway import measures
from gateway.archive import Archive
from gateway.hub import Hub
from gateway.logs import Logs
from gateway.memory import TopicMemory
from gateway.position import (
    MAX_LOGS,
    UNKNOWN,
    Copy,
    Listed,
    Position,
    decode,
    encode,
    log_hash,
)
from gateway.protocol import Gap
from gateway.publication import Publication
from gateway.settings import GatewaySettings
from newsfabric.envelope import ms_of_id
from newsfabric.errors import StoreError
from newsfabric.topics import TopicPolicy

logger = logging.getLogger(__name__)

# A position from later than this isn't ours.
_FUTURE_MS: Final = 3_600_000
# Ages of reads: a minute, and each a quarter longer than the one before.
_SHORTEST_MS: Final = 60_000
_STEP: Final = math.log(1.25)
_WINDOWS: Final = 64
_WINDOW_SECONDS: Final = 60.0
# One that couldn't reach as far as was asked is no reason to read again at once.
_SHORT_SECONDS: Final = 5.0
_ATTEMPTS: Final = 2
# The archive lets the store rest for a second after a failure.
_AGAIN_SECONDS: Final = 1.1
# Two tries that aren't answered take longer; those that are refused at once go on until then: what
# one topic's failure makes others wait for isn't their own.
_PATIENCE_SECONDS: Final = 2.0
_ANSWERS: Final = 256
# What is kept for a minute, in reads of the largest size.
_KEPT: Final = 4
# Gaps come in crowds, when a store dies: one line in so many seconds.
_LINE_SECONDS: Final = 5.0


@dataclasses.dataclass(frozen=True, slots=True, weakref_slot=True)
class Recalled:
    """What a reader has missed, in the order to send it; why that may not be all, if so."""

    publications: list[Publication]
    gap: Gap | None = None

    @property
    def weight(self) -> int:
        """Bytes that keeping it costs, roughly."""
        return sum(publication.weight for publication in self.publications)

    @property
    def recovered(self) -> bool:
        """Whether it is certainly all."""
        return self.gap is None


# (topic, region): what is read of a topic in one region.
_Place = tuple[str, str]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Window:
    """A topic as a region had it from ``asked_ms`` on; it has all from ``reach_ms`` on.

    It was read when ``arrived`` messages had arrived in ``memory``. If ``spoilt``, something that
    the store has is no message.
    """

    messages: list[Publication]
    asked_ms: int
    reach_ms: int
    memory: TopicMemory
    arrived: int
    read_at: float
    spoilt: bool

    @property
    def weight(self) -> int:
        """Bytes that keeping it costs, roughly."""
        return sum(publication.weight for publication in self.messages)

    def holds(self, memory: TopicMemory) -> bool:
        """Whether this and ``memory`` leave nothing out between them."""
        return self.memory is memory and memory.lost <= self.arrived


class _Stamp(NamedTuple):
    """What an answer depends on."""

    memory: TopicMemory
    changes: int
    windows: tuple[_Window, ...]
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
        told: GatewaySettings,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._hub = hub
        self._archive = archive
        self._limit = told.resume_rows
        self._most_bytes = told.resume_bytes
        self._spawn = spawn
        self._now = now
        # The last read of each, oldest first.
        self._windows: collections.OrderedDict[_Place, _Window] = collections.OrderedDict()
        self._reading: dict[_Place, tuple[int, asyncio.Task[None]]] = {}
        # Answers by topic and token, least recently used first, with what they depend on.
        self._answers: collections.OrderedDict[tuple[str, str], tuple[_Stamp, Recalled]] = (
            collections.OrderedDict()
        )
        # Bytes that answers have been given for, with what several of them share counted for each.
        self._answered = 0
        self._line_at = float("-inf")
        self._unsaid = 0

    @property
    def kept_bytes(self) -> int:
        """What is kept for readers who come soon, roughly; shared parts are counted twice."""
        return sum(window.weight for window in self._windows.values()) + self._answered

    def recall(self, topic: str, token: str) -> Recalled | None:
        """What ``topic`` has beyond the position ``token``; None if :meth:`fetch` is needed.

        ``topic`` is one of topics.toml and ``token`` one that can be decoded. The answer holds
        until anything else is offered to the hub.
        """
        now = self._now()
        memory = self._hub.memory(topic)
        windows = self._fitting(topic, memory, now)
        # What is settled, and so counts as had, is known anew with each second at most.
        stamp = _Stamp(memory, memory.changes, windows, len(self._hub.logs), int(now))
        known = self._answers.get((topic, token))
        if known is not None and known[0] == stamp:
            return known[1]
        answer = self._recall(topic, memory, decode(token), now)
        if answer is not None:
            self._forget((topic, token))
            self._answers[topic, token] = (stamp, answer)
            self._answered += answer.weight
            while len(self._answers) > 1 and (
                len(self._answers) > _ANSWERS or self._answered > _KEPT * self._most_bytes
            ):
                self._forget(next(iter(self._answers)))
        return answer

    def _forget(self, asked: tuple[str, str]) -> None:
        _, answer = self._answers.pop(asked, (None, None))
        if answer is not None:
            self._answered -= answer.weight

    def salvage(self, topic: str, token: str, gap: Gap) -> Recalled:
        """What can be had nevertheless; never ``recovered``."""
        memory = self._hub.memory(topic)
        return Recalled(self._beyond(topic, memory, decode(token), self._now()), gap)

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
        memory, now = self._hub.memory(topic), self._now()
        starts = self._starts(memory, decode(token), now)
        reads = [
            self._begun((topic, region), from_ms)
            for region, from_ms in starts.items()
            if not self._answers_from(topic, memory, region, from_ms, now)
        ]
        problems = await asyncio.gather(*map(asyncio.shield, reads), return_exceptions=True)
        for problem in problems:
            if isinstance(problem, BaseException):
                raise problem

    def _begun(self, place: _Place, from_ms: int) -> asyncio.Task[None]:
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
        self, topic: str, memory: TopicMemory, said: Position, now: float
    ) -> Recalled | None:
        now_ms = int(now * 1000)
        if said.time_ms > now_ms + _FUTURE_MS:
            said = UNKNOWN
        too_old = said.time_ms < now_ms - _ttl_ms(memory.policy)
        if too_old or self._hub.logs.forgot_what_lacks(said):
            return Recalled(self._beyond(topic, memory, said, now), Gap.EXPIRED)
        gap = None
        for region, from_ms in self._starts(memory, said, now).items():
            if not self._answers_from(topic, memory, region, from_ms, now):
                return None
            window = self._windows[topic, region]
            if window.reach_ms > from_ms:
                gap = Gap.TOO_MANY
            elif window.spoilt:
                gap = gap or Gap.STORE
        return Recalled(self._beyond(topic, memory, said, now), gap)

    def _starts(self, memory: TopicMemory, told: Position, now: float) -> dict[str, int]:
        """Which regions have to be read for what isn't remembered, and from which time on."""
        oldest = max(0, int(now * 1000) - _ttl_ms(memory.policy))
        starts: dict[str, int] = {}
        for log in memory.forgotten.lacks(told):
            from_ms = max(oldest, told.since_ms(log))
            starts[log.region] = min(starts.get(log.region, from_ms), from_ms)
        return starts

    def _answers_from(
        self, topic: str, memory: TopicMemory, region: str, from_ms: int, now: float
    ) -> bool:
        """Whether a window has all from then on, or would have no more if it were read now."""
        window = self._window((topic, region), memory, now)
        if window is None:
            return False
        lately = window.asked_ms <= from_ms and now < window.read_at + _SHORT_SECONDS
        return window.reach_ms <= from_ms or lately

    def _beyond(
        self, topic: str, memory: TopicMemory, told: Position, now: float
    ) -> list[Publication]:
        """What a reader at ``told`` lacks: from the store in order of id, then as it arrived."""
        read: dict[int, Publication] = {}
        for window in self._fitting(topic, memory, now):
            for one in window.messages:
                if one.envelope.identity not in memory and not one.expired(now):
                    known = read.setdefault(one.envelope.identity, one)
                    for copy in one.copies:
                        known.add_copy(copy)
        wants = self._hub.logs.wants
        older = sorted(read.values(), key=lambda one: one.envelope.id)
        return [one for one in (*older, *memory.recent(now)) if wants(told, one.copies)]

    def _fitting(self, topic: str, memory: TopicMemory, now: float) -> tuple[_Window, ...]:
        """The windows of a topic that leave nothing out between them and ``memory``."""
        places = [place for place in self._windows if place[0] == topic]
        found = (self._window(place, memory, now) for place in places)
        return tuple(window for window in found if window is not None)

    def _window(self, place: _Place, memory: TopicMemory, now: float) -> _Window | None:
        window = self._windows.get(place)
        if window is None or not window.holds(memory):
            return None
        return window if now < window.read_at + _WINDOW_SECONDS else None

    async def _read(self, place: _Place, asked_ms: int) -> None:
        topic, region = place
        until = time.monotonic() + _PATIENCE_SECONDS
        for attempt in itertools.count(1):
            memory = self._hub.memory(topic)
            arrived = memory.arrived
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
        messages = self._hub.recollect(topic, stored.envelopes, now)
        reach_ms = asked_ms
        if stored.cut:
            oldest = stored.envelopes[0].id if stored.envelopes else None
            reach_ms = int(now * 1000) if oldest is None else ms_of_id(oldest) + 1
        window = _Window(messages, asked_ms, reach_ms, memory, arrived, now, stored.spoilt)
        self._keep(place, window)

    def _keep(self, place: _Place, window: _Window) -> None:
        self._drop(place)
        self._windows[place] = window
        held = sum(kept.weight for kept in self._windows.values())
        while len(self._windows) > 1 and (
            len(self._windows) > _WINDOWS or held > _KEPT * self._most_bytes
        ):
            held -= self._drop(next(iter(self._windows)))
        asyncio.get_running_loop().call_later(_WINDOW_SECONDS, self._let_go, place, window.read_at)

    def _let_go(self, place: _Place, read_at: float) -> None:
        window = self._windows.get(place)
        if window is not None and window.read_at == read_at:
            self._drop(place)

    def _drop(self, place: _Place) -> int:
        """Let go of a window, and of the answers that were made of it; returns its weight."""
        window = self._windows.pop(place, None)
        if window is None:
            return 0
        made = [asked for asked, (stamp, _) in self._answers.items() if window in stamp.windows]
        for asked in made:
            self._forget(asked)
        return window.weight

    def _has_read(self, place: _Place, task: asyncio.Task[None]) -> None:
        reading = self._reading.get(place)
        if reading is not None and reading[1] is task:
            del self._reading[place]


def page(
    recalled: Recalled, token: str | None, hub: Hub, *, limit: int, most_bytes: int
) -> tuple[list[Publication], str]:
    """The first of what was recalled, and the position of a reader who has those.

    They are in the order in which they were routed: only so can a position stand between two of
    them. That position stands for this topic alone: it says nothing of others' messages, which
    have numbers in the same logs.
    """
    publications = sorted(recalled.publications, key=lambda one: min(map(_routed, one.copies)))
    count = _that_fit(publications[:limit], most_bytes)
    told = UNKNOWN if token is None else decode(token)
    if not all(any(_is_up_to_mark(copy, hub.logs) for copy in one.copies) for one in publications):
        # A number is missing here that lies before: no position stands between two of these.
        count = len(publications)
    while count < len(publications):
        taken, rest = publications[:count], publications[count:]
        reached = _after(told, taken, rest, hub.logs)
        covered = (any(reached.covers(*copy[:2]) for copy in one.copies) for one in taken)
        if len(reached.listed) <= MAX_LOGS and all(covered):
            return taken, encode(reached)
        # A router's clock was set back between the two.
        count += 1
    return publications, hub.position(time.time())


def _is_up_to_mark(copy: Copy, logs: Logs) -> bool:
    known = logs.find(copy.log)
    return known is None or copy.seq <= known.mark


def _after(
    told: Position, taken: list[Publication], rest: list[Publication], logs: Logs
) -> Position:
    """Beyond ``told`` there are these two, and the reader has the first.

    Nobody has what is missing here: it comes later, though others of its log that were routed after
    it are taken now.
    """
    listed = dict(told.listed)
    for copy in _copies(taken):
        known = listed.get(hash_ := log_hash(copy.log), Listed(0, copy.log.epoch))
        here = logs.find(copy.log)
        seq = copy.seq if here is None else min(copy.seq, here.mark)
        listed[hash_] = Listed(max(known.mark, seq), known.whole_ms)
    for copy in _copies(rest):
        known = listed.get(hash_ := log_hash(copy.log), Listed(copy.seq, copy.routed_ms))
        mark = max(0, min(known.mark, copy.seq - 1))
        listed[hash_] = Listed(mark, min(known.whole_ms, copy.routed_ms))
    return Position(told.time_ms, listed)


def _routed(copy: Copy) -> tuple[int, bytes, int]:
    return (copy.routed_ms, log_hash(copy.log), copy.seq)


def _copies(publications: Iterable[Publication]) -> Iterable[Copy]:
    return (copy for publication in publications for copy in publication.copies)


def _that_fit(publications: list[Publication], most_bytes: int) -> int:
    """How many of the first are within ``most_bytes``, at least one."""
    size = 0
    for count, publication in enumerate(publications):
        size += publication.weight
        if size > most_bytes and count > 0:
            return count
    return len(publications)


def _rounded(from_ms: int, now: float) -> int:
    """``from_ms`` or earlier: one of the ages that reads have."""
    now_ms = int(now * 1000)
    steps = math.ceil(math.log(max(1.0, (now_ms - from_ms) / _SHORTEST_MS)) / _STEP)
    return max(0, min(from_ms, now_ms - int(_SHORTEST_MS * math.exp(steps * _STEP))))


def _ttl_ms(policy: TopicPolicy) -> int:
    return int(policy.ttl * 1000)
