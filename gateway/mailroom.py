"""What is kept for users who come: their mailboxes, read from the store, many at a time.

docs/design/0016 says why. Whoever waits while reads are under way goes into the next one, and the
devices of one user share a read. To what was read the last minute of what the hub remembers of the
topic is added. When it has forgotten some of that in the meantime, the mailbox is read again.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gateway.archive import Archive
from gateway.hub import Hub
from gateway.late import is_late
from gateway.memory import TopicMemory
from gateway.protocol import Gap
from gateway.publication import Publication
from gateway.recalled import Recalled
from gateway.settings import GatewaySettings
from gateway.tasks import SingleFlight, Spawn
from newsfabric.errors import StoreError, StoreUnavailable
from newsfabric.line_limits import LineLimit
from newsfabric.messages.envelope import Envelope
from newsfabric.messages.mailbox import Kept, announced_again
from newsfabric.store import Store
from newsfabric.store.rules import MAX_MAILBOX
from newsfabric.topics import TopicPolicy

logger = logging.getLogger(__name__)

# More than a region's store lags behind the messages of another, unless it is cut off.
_LAG_MS: Final = 60_000
_ATTEMPTS: Final = 3


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """What the store had of a topic when ``arrived`` messages had arrived in ``memory``."""

    kept: list[Kept]
    memory: TopicMemory
    arrived: int
    began_ms: int

    def holds(self, memory: TopicMemory) -> bool:
        """Whether nothing that has arrived since is forgotten."""
        return self.memory is memory and memory.lost <= self.arrived


# Topics, and those who wait for them.
_Batch = Sequence[tuple[str, asyncio.Future[_Read]]]


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class Mailroom:
    """Reads mailboxes for all readers of one gateway. Lives on the loop that made it.

    ``archive`` has the copies of what is kept, and is told when the store itself failed. ``now`` is
    a clock in seconds since the epoch, ``clock`` one that only goes on.
    """

    hub: Hub
    store: Store
    archive: Archive
    settings: GatewaySettings
    spawn: Spawn
    publish: Callable[[Publication], None]
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        # By topic, in the order in which they were asked for. Those that are being read are gone.
        self._waiting: dict[str, asyncio.Future[_Read]] = {}
        self._reads = 0
        # Those who share a read share what it needs beside.
        self._given: SingleFlight[_Read, list[Kept]] = SingleFlight(self.spawn)
        # Each login of its user reads it again.
        self._failing = LineLimit()

    async def collect(self, topic: str) -> Recalled:
        """What is kept on ``topic``, a user's own, in the order to send it. Join at once after.

        StoreError if it can't be read.
        """
        for _ in range(_ATTEMPTS):
            read = await self._read(topic)
            void = [one.envelope for one in read.kept if self.hub.is_void(one.envelope)]
            if void:
                work = functools.partial(self._as_given, topic, read.kept, void)
                read = dataclasses.replace(read, kept=await self._given.do(read, work))
            if read.holds(self.hub.memory(topic)):
                return self._sorted_out(topic, read)
        # So much arrives for this user that memory loses it before the store has answered.
        raise StoreUnavailable(f"{topic} can't be read as fast as it grows")

    async def _as_given(self, topic: str, kept: list[Kept], void: Sequence[Envelope]) -> list[Kept]:
        """What is ``kept`` on ``topic``, of which the store gives the newest copy each.

        Where that one's number is ``void`` here, another one counts.
        """
        try:
            spread_ms = self.hub.spread_ms(self.now())
            copies = await self.archive.copies(topic, void, spread_ms=spread_ms)
        except StoreError as exc:
            self.archive.failed(exc)
            raise
        newest = {one.identity: one for one in copies if not self.hub.is_void(one)}
        counting = (
            Kept(newest.get(one.envelope.identity, one.envelope), one.marks) for one in kept
        )
        return sorted(counting, key=lambda one: one.envelope.id)

    async def _read(self, topic: str) -> _Read:
        waiting = self._waiting.get(topic)
        if waiting is None:
            if len(self._waiting) >= self.settings.mailboxes_waiting:
                raise StoreUnavailable(f"{len(self._waiting)} mailboxes wait to be read")
            waiting = self._waiting[topic] = asyncio.get_running_loop().create_future()
            if self._reads < self.settings.mailbox_reads:
                self._reads += 1
                self.spawn(self._read_all())
        # Others may wait for the same: who is cancelled must not take it with them.
        return await asyncio.shield(waiting)

    async def _read_all(self) -> None:
        """Read what waits, batch by batch, until nothing does."""
        # A moment later: who asks in the same turn of the loop comes along.
        await asyncio.sleep(0)
        try:
            while self._waiting:
                topics = list(itertools.islice(self._waiting, self.settings.mailbox_batch))
                batch = [(topic, self._waiting.pop(topic)) for topic in topics]
                try:
                    await self._read_batch(batch)
                except (StoreUnavailable, TimeoutError) as exc:
                    away = StoreUnavailable(str(exc) or "the store doesn't answer")
                    self.archive.failed(away)
                    self._fail(batch, away)
                finally:
                    self._fail(batch, StoreUnavailable("the gateway ends"))
        finally:
            self._reads -= 1

    async def _read_batch(self, batch: _Batch) -> None:
        """Answer those who wait for ``batch``. StoreUnavailable or TimeoutError: it is away."""
        topics = [topic for topic, _ in batch]
        memories = [self.hub.memory(topic) for topic in topics]
        arrived = [memory.arrived for memory in memories]
        times = self.hub.logs.times
        # By any clock of a router's it was no earlier: what one was behind had routed a moment ago
        # the store may lack as well.
        now = self.now()
        certain_ms = times.certain_ms(int(now * 1000), self.clock())
        began_ms = certain_ms - self.hub.spread_ms(now)
        try:
            async with asyncio.timeout(self.settings.store_timeout):
                found = await self.store.mailboxes(topics, limit=MAX_MAILBOX)
        except StoreUnavailable:
            raise
        except StoreError as exc:
            if len(batch) > 1:
                # One of them is spoilt, which is nothing to the others.
                for one in batch:
                    await self._read_batch([one])
                return
            unsaid = self._failing.may_log(self.clock())
            if unsaid is not None:
                logger.warning("a mailbox can't be read (and %d more): %s", unsaid, exc)
            self._fail(batch, exc)
            return
        for (_, waiting), kept, memory, count in zip(batch, found, memories, arrived, strict=True):
            if not waiting.done():
                waiting.set_result(_Read(kept, memory, count, began_ms))

    def _fail(self, batch: _Batch, why: StoreError) -> None:
        for _, waiting in batch:
            if not waiting.done():
                waiting.set_exception(why)
                # Who waited may be gone: then nobody has to be told.
                waiting.exception()

    def _sorted_out(self, topic: str, read: _Read) -> Recalled:
        now = self.now()
        # What has no other number than a void one comes under one.
        there = [one for one in read.kept if not self.hub.is_void(one.envelope)]
        self._hear_of(there, now)
        self.hub.past(topic, (one.envelope for one in there), now)
        memory = self.hub.memory(topic)
        lately = memory.recent(now).lately(read.arrived, read.began_ms - _LAG_MS)
        marks = [one.mark for one in lately if one.mark is not None]
        dismissed = {mark.identity for mark in marks if mark.kind == "dismiss"}
        kept = [one for one in there if one.envelope.identity not in dismissed]
        known = {one.envelope.identity for one in kept}
        told = {(mark.identity, mark.kind) for one in kept for mark in one.marks}
        policy = memory.policy
        found = [publication for one in kept for publication in _publications(one, policy)]
        for publication in lately:
            mark, identity = publication.mark, publication.envelope.identity
            if mark is not None:
                wanted = mark.identity in known and (mark.identity, mark.kind) not in told
            else:
                wanted = identity not in known and identity not in dismissed
                known |= {identity} if wanted else set()
            if wanted:
                found.append(publication)
        if found:
            last = found[-1]
            position = self.hub.position(now)
            found[-1] = Publication(last.envelope, policy, position)
        gap = None if len(read.kept) < MAX_MAILBOX else Gap.TOO_MANY
        # Its number is missing here: when it is found everybody is given it.
        is_ahead = not all(self.hub.was_given(one.envelope) for one in there)
        return Recalled(found, gap, is_ahead)

    def _hear_of(self, kept: Sequence[Kept], now: float) -> None:
        """What the feed hasn't brought yet goes to everyone, and its copy is dropped later.

        What is too old to be offered unseen (:mod:`gateway.late`) goes to the one who asks, and to
        everyone, once more to that one, when its number was read and looked up.
        """
        time_ms = self.hub.logs.times.latest_ms(int(now * 1000), self.clock())
        for one in kept:
            if is_late(one.envelope, time_ms) or self.hub.was_given(one.envelope):
                continue
            publication = self.hub.offer(one.envelope, now)
            if publication is not None:
                self.publish(publication)


def _publications(kept: Kept, policy: TopicPolicy) -> Iterable[Publication]:
    """A message and its marks, as if they had been announced after it."""
    yield Publication(kept.envelope, policy, None)
    for mark in kept.marks:
        yield Publication(announced_again(mark, kept.envelope), policy, None)
