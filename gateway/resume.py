"""What a reader who comes back has missed: from the hub's memory, or from the store once for all.

A position (:mod:`gateway.position`) says what the reader has. Whether what it doesn't have is
remembered here is decided by numbers (:mod:`gateway.forgotten`, :meth:`Streams.vouches`). If it
isn't certain, the topic is read from the store from the position's time on, and what was read is
kept for a while as a :class:`_Window`: a crowd that comes back together needs one read, however
its positions differ. A window and the memory of what has arrived since it was read are
everything, as long as that memory has lost none of it.

The claim ``recovered`` is made only when that chain holds. Where it breaks is told
(:class:`~gateway.protocol.Gap`), to the reader, in a metric and now and then in the log. While
the store is read, the topic's memory forgets nothing: else a burst, such as a broker's backlog
or our own catching up, would break the chain whenever the store is slow.

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
from gateway.memory import TopicMemory
from gateway.position import MAX_STREAMS, UNKNOWN, Copy, Position, decode, encode, entry
from gateway.protocol import Gap
from gateway.publication import Publication
from gateway.settings import GatewaySettings
from newsfabric.envelope import ms_of_id
from newsfabric.errors import StoreError
from newsfabric.topics import TopicPolicy

logger = logging.getLogger(__name__)

# By so much a router's clock may step back, or a number be given out before another's time.
_MARGIN_MS: Final = 60_000
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


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Window:
    """A topic as the store had it from ``asked_ms`` on; it has all from ``reach_ms`` on.

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
    window: _Window | None
    streams: int
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
        publish: Callable[[Publication], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._hub = hub
        self._archive = archive
        self._limit = told.resume_rows
        self._most_bytes = told.resume_bytes
        self._spawn = spawn
        self._publish = publish
        self._now = now
        # The last read of each topic, oldest first.
        self._windows: collections.OrderedDict[str, _Window] = collections.OrderedDict()
        self._reading: dict[str, tuple[int, asyncio.Task[None]]] = {}
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
        window = self._window(topic, memory)
        stamp = _Stamp(memory, memory.changes, window, len(self._hub.streams), int(now))
        known = self._answers.get((topic, token))
        if known is not None and known[0] == stamp:
            return known[1]
        answer = self._recall(memory, window, decode(token), now)
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
        window = self._window(topic, memory)
        return Recalled(_beyond(memory, window, decode(token), self._now()), gap)

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
        policy = self._hub.memory(topic).policy
        told = self._hub.streams.trusted(decode(token))
        from_ms = _start(told, policy, self._now())
        reading = self._reading.get(topic)
        if reading is None or reading[0] > from_ms:
            asked_ms = _rounded(from_ms, self._now())
            task = self._spawn(self._read(topic, asked_ms))
            reading = self._reading[topic] = (asked_ms, task)
            task.add_done_callback(lambda task: self._has_read(topic, task))
        await asyncio.shield(reading[1])

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
        self, memory: TopicMemory, window: _Window | None, said: Position, now: float
    ) -> Recalled | None:
        now_ms = int(now * 1000)
        streams = self._hub.streams
        if said.since_ms > now_ms + _FUTURE_MS:
            said = UNKNOWN
        told = streams.trusted(said)
        if said.since_ms < now_ms - _ttl_ms(memory.policy):
            return Recalled(_beyond(memory, window, told, now), Gap.EXPIRED)
        if memory.forgotten.is_covered_by(told) and streams.vouches(told, now):
            return Recalled(memory.beyond(told, now))
        if window is None:
            return None
        start = _start(told, memory.policy, now)
        if window.reach_ms <= start:
            gap = Gap.GIVEN_UP if streams.lacks(told) else Gap.STORE if window.spoilt else None
            return Recalled(_beyond(memory, window, told, now), gap)
        if window.asked_ms <= start and now < window.read_at + _SHORT_SECONDS:
            return Recalled(_beyond(memory, window, told, now), Gap.TOO_MANY)
        return None

    def _window(self, topic: str, memory: TopicMemory) -> _Window | None:
        window = self._windows.get(topic)
        if window is None or not window.holds(memory):
            return None
        return window if self._now() < window.read_at + _WINDOW_SECONDS else None

    async def _read(self, topic: str, asked_ms: int) -> None:
        until = time.monotonic() + _PATIENCE_SECONDS
        for attempt in itertools.count(1):
            memory = self._hub.memory(topic)
            arrived = memory.arrived
            try:
                stored = await self._archive.since(
                    topic, from_ms=asked_ms, limit=self._limit, most_bytes=self._most_bytes
                )
                break
            except StoreError as exc:
                self._archive.failed(exc)
                if attempt >= _ATTEMPTS and time.monotonic() >= until:
                    raise
                await asyncio.sleep(_AGAIN_SECONDS)
        now = self._now()
        messages, fresh = self._hub.recollect(topic, stored.envelopes, now)
        for publication in fresh:
            self._publish(publication)
        reach_ms = asked_ms
        if stored.cut:
            oldest = stored.envelopes[0].id if stored.envelopes else None
            reach_ms = int(now * 1000) if oldest is None else ms_of_id(oldest) + 1
        window = _Window(messages, asked_ms, reach_ms, memory, arrived, now, stored.spoilt)
        self._keep(topic, window)

    def _keep(self, topic: str, window: _Window) -> None:
        self._drop(topic)
        self._windows[topic] = window
        held = sum(kept.weight for kept in self._windows.values())
        while len(self._windows) > 1 and (
            len(self._windows) > _WINDOWS or held > _KEPT * self._most_bytes
        ):
            held -= self._drop(next(iter(self._windows)))
        asyncio.get_running_loop().call_later(_WINDOW_SECONDS, self._let_go, topic, window.read_at)

    def _let_go(self, topic: str, read_at: float) -> None:
        window = self._windows.get(topic)
        if window is not None and window.read_at == read_at:
            self._drop(topic)

    def _drop(self, topic: str) -> int:
        """Let go of a window, and of the answers that were made of it; returns its weight."""
        window = self._windows.pop(topic, None)
        if window is None:
            return 0
        made = [asked for asked, (stamp, _) in self._answers.items() if stamp.window is window]
        for asked in made:
            self._forget(asked)
        return window.weight

    def _has_read(self, topic: str, task: asyncio.Task[None]) -> None:
        reading = self._reading.get(topic)
        if reading is not None and reading[1] is task:
            del self._reading[topic]


def page(
    recalled: Recalled, token: str | None, hub: Hub, *, limit: int, most_bytes: int
) -> tuple[list[Publication], str]:
    """The first of what was recalled, and the position of a reader who has those.

    They are in the order in which they were routed: only so can a position stand between two of
    them. That position stands for this topic alone: it says nothing of others' messages, which
    have numbers in the same streams.
    """
    publications = sorted(recalled.publications, key=lambda one: min(map(_routed, one.copies)))
    count = _that_fit(publications[:limit], most_bytes)
    said = UNKNOWN if token is None else decode(token)
    told = hub.streams.trusted(said)
    while count < len(publications):
        taken, rest = publications[:count], publications[count:]
        reached = _after(told, said.since_ms, taken, rest)
        if all(reached.covers(publication.copies) for publication in taken):
            entries = [entry(stream, seq) for stream, seq in reached.seen.items()]
            if len(entries) <= MAX_STREAMS:
                return taken, encode(reached.time_ms, reached.since_ms, entries)
        # A router's clock was set back between the two.
        count += 1
    return publications, hub.streams.position(time.time())


def _after(
    told: Position, since_ms: int, taken: list[Publication], rest: list[Publication]
) -> Position:
    """Beyond ``told`` there are these two, and the reader has the first."""
    seen = dict(told.seen)
    for copy in _copies(taken):
        seen[copy.stream] = max(seen.get(copy.stream, 0), copy.seq)
    for copy in _copies(rest):
        seen[copy.stream] = max(0, min(seen.get(copy.stream, copy.seq), copy.seq - 1))
        since_ms = min(since_ms, copy.routed_ms)
    return Position(told.time_ms, since_ms, seen)


def _routed(copy: Copy) -> tuple[int, bytes, int]:
    return (copy.routed_ms, copy.stream, copy.seq)


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


def _beyond(
    memory: TopicMemory, window: _Window | None, told: Position, now: float
) -> list[Publication]:
    """What ``told`` doesn't cover: from the store in order of id, then in that of arrival."""
    older: list[Publication] = []
    for publication in () if window is None else window.messages:
        identity = publication.envelope.identity
        if identity not in memory and not told.covers(publication.copies):
            older.append(publication)
    alive = [publication for publication in older if not publication.expired(now)]
    return alive + memory.beyond(told, now)


def _start(told: Position, policy: TopicPolicy, now: float) -> int:
    """From when on something may be stored that ``told`` doesn't cover."""
    oldest = int(now * 1000) - _ttl_ms(policy)
    return max(0, oldest, min(told.time_ms, told.since_ms) - _MARGIN_MS)


def _rounded(from_ms: int, now: float) -> int:
    """``from_ms`` or earlier: one of the ages that reads have."""
    now_ms = int(now * 1000)
    steps = math.ceil(math.log(max(1.0, (now_ms - from_ms) / _SHORTEST_MS)) / _STEP)
    return max(0, min(from_ms, now_ms - int(_SHORTEST_MS * math.exp(steps * _STEP))))


def _ttl_ms(policy: TopicPolicy) -> int:
    return int(policy.ttl * 1000)
