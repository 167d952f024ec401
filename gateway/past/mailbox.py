"""Reads of users' mailboxes from the store, many at a time. docs/design/0016 has the reasons.

Requests that arrive while reads are under way are in the next batch, and the devices of one user
share a read. The hub's messages that arrived during the read, or were routed up to a minute before,
are added. If the hub has forgotten some of these in the meantime, the mailbox is read again.
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

from gateway.memory.hub import Hub
from gateway.memory.memory import TopicMemory
from gateway.past.archive import Archive
from gateway.past.late import is_late
from gateway.past.replay import Question, Replay
from gateway.process.settings import GatewaySettings
from gateway.process.tasks import SingleFlight, Spawn
from gateway.wire.protocol import Gap
from gateway.wire.publication import Publication
from newsfabric.errors import StoreError, StoreUnavailable
from newsfabric.line_limits import LineLimit
from newsfabric.messages.envelope import Envelope
from newsfabric.messages.mailbox import KeptMessage, announced_again
from newsfabric.store import Store
from newsfabric.store.rules import MAX_MAILBOX
from newsfabric.topics import TopicPolicy

logger = logging.getLogger(__name__)

# More than a region's store lags behind messages of another region, unless it is cut off.
_LAG_MS: Final = 60_000
_ATTEMPTS: Final = 3


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """The store's messages of a topic, read when ``arrived`` messages had arrived in ``memory``."""

    kept: list[KeptMessage]
    memory: TopicMemory
    arrived: int
    began_ms: int

    def holds(self, memory: TopicMemory) -> bool:
        """Return whether ``memory`` still has all messages that arrived since the read began."""
        return self.memory is memory and memory.lost <= self.arrived


# Topics, and the futures of the requests that wait for them.
_Batch = Sequence[tuple[str, asyncio.Future[_Read]]]


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class Mailboxes:
    """The mailbox reads of one gateway (:class:`.Source`). Lives on the event loop that made it.

    ``archive`` has the copies of kept messages, and is notified when the store fails. ``now`` is a
    clock in seconds since the epoch, ``clock`` a monotonic one.
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
        # By topic, in the order of the requests. Topics that are being read aren't here any more.
        self._waiting: dict[str, asyncio.Future[_Read]] = {}
        self._reads = 0
        # Requests that share a read share its lookup of other copies.
        self._given: SingleFlight[_Read, list[KeptMessage]] = SingleFlight(self.spawn)
        # A mailbox that can't be read fails at each login of its user.
        self._failing = LineLimit()

    def answer_from_memory(self, question: Question) -> None:
        """Return None: a mailbox is always read from the store."""

    async def answer_from_store(self, question: Question) -> Replay:
        """Return the messages kept on a topic, a user's own; StoreError if they can't be read."""
        topic = question.topic
        for _ in range(_ATTEMPTS):
            read = await self._read(topic)
            void = [one.envelope for one in read.kept if self.hub.is_void(one.envelope)]
            if void:
                work = functools.partial(self._replace_void_copies, topic, read.kept, void)
                read = dataclasses.replace(read, kept=await self._given.do(read, work))
            if read.holds(self.hub.memory(topic)):
                return self._merge_with_memory(topic, read)
        # Memory loses this user's new messages before the store has answered.
        raise StoreUnavailable(f"{topic} can't be read as fast as it grows")

    async def _replace_void_copies(
        self, topic: str, kept: list[KeptMessage], void: Sequence[Envelope]
    ) -> list[KeptMessage]:
        """Return ``kept``, for which the store gives the newest copy of each message.

        A copy whose number is ``void`` here is replaced by another copy of its message.
        """
        try:
            spread_ms = self.hub.spread_ms(self.now())
            copies = await self.archive.copies(topic, void, spread_ms=spread_ms)
        except StoreError as exc:
            self.archive.failed(exc)
            raise
        newest = {one.identity: one for one in copies if not self.hub.is_void(one)}
        counting = (
            KeptMessage(newest.get(one.envelope.identity, one.envelope), one.marks) for one in kept
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
        # Others may wait for the same read: a request that is cancelled must not cancel it.
        return await asyncio.shield(waiting)

    async def _read_all(self) -> None:
        """Read the waiting mailboxes batch by batch, until none waits."""
        # Requests of the same turn of the event loop join the first batch.
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
        """Read ``batch`` and resolve its futures. No answer: StoreUnavailable or TimeoutError."""
        topics = [topic for topic, _ in batch]
        memories = [self.hub.memory(topic) for topic in topics]
        arrived = [memory.arrived for memory in memories]
        times = self.hub.logs.times
        # The earliest time by any router's clock. The store may lack messages of a moment ago, and
        # a router whose clock is behind gave them earlier times.
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
                # One mailbox is damaged: read each alone, so that the others don't fail.
                for one in batch:
                    await self._read_batch([one])
                return
            skipped_lines = self._failing.may_log(self.clock())
            if skipped_lines is not None:
                logger.warning("a mailbox can't be read (and %d more): %s", skipped_lines, exc)
            self._fail(batch, exc)
            return
        for (_, waiting), kept, memory, count in zip(batch, found, memories, arrived, strict=True):
            if not waiting.done():
                waiting.set_result(_Read(kept, memory, count, began_ms))

    def _fail(self, batch: _Batch, why: StoreError) -> None:
        for _, waiting in batch:
            if not waiting.done():
                waiting.set_exception(why)
                # The waiter may be gone: mark the exception as retrieved.
                waiting.exception()

    def _merge_with_memory(self, topic: str, read: _Read) -> Replay:
        now = self.now()
        # A message that has only void numbers arrives later, under another number.
        not_void = [one for one in read.kept if not self.hub.is_void(one.envelope)]
        self._publish_new(not_void, now)
        self.hub.take_past(topic, (one.envelope for one in not_void), now)
        memory = self.hub.memory(topic)
        lately = memory.arrived_or_routed_since(read.arrived, read.began_ms - _LAG_MS, now)
        marks = [one.mark for one in lately if one.mark is not None]
        dismissed = {mark.identity for mark in marks if mark.kind == "dismiss"}
        kept = [one for one in not_void if one.envelope.identity not in dismissed]
        known = {one.envelope.identity for one in kept}
        stored_marks = {(mark.identity, mark.kind) for one in kept for mark in one.marks}
        policy = memory.policy
        found = [publication for one in kept for publication in _publications(one, policy)]
        for publication in lately:
            mark, identity = publication.mark, publication.envelope.identity
            if mark is not None:
                wanted = mark.identity in known and (mark.identity, mark.kind) not in stored_marks
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
        # A message whose number is missing here is sent to all readers when it is found.
        has_unpublished = not all(self.hub.was_given(one.envelope) for one in not_void)
        return Replay(found, gap, has_unpublished)

    def _publish_new(self, kept: Sequence[KeptMessage], now: float) -> None:
        """Publish kept messages that the feed hasn't brought yet; their later copies are dropped.

        A message too old to be offered at once (:mod:`gateway.past.late`) is sent only to the
        reader who asks. After its number was read and looked up, it is sent to all, to that reader
        once more.
        """
        time_ms = self.hub.logs.times.latest_ms(int(now * 1000), self.clock())
        for one in kept:
            if is_late(one.envelope, time_ms) or self.hub.was_given(one.envelope):
                continue
            publication = self.hub.offer(one.envelope, now)
            if publication is not None:
                self.publish(publication)


def _publications(kept: KeptMessage, policy: TopicPolicy) -> Iterable[Publication]:
    """Yield a message and its marks, as if the marks had been announced after it."""
    yield Publication(kept.envelope, policy, None)
    for mark in kept.marks:
        yield Publication(announced_again(mark, kept.envelope), policy, None)
