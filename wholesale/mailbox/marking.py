"""Carries user marks out: look the message up, write the mark, announce it, acknowledge it.

This module knows no broker and no socket, so tests run it over stubs; service.py gives it real
ones.

Marks that arrive while a batch is worked on form the next batch. The decision that a reader would
question: a mark that is in the store already is announced again, with the time of the first one.
Receivers drop the repeat by its identity. It is needed if a service died after writing the mark and
before announcing it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from newsfabric import topology
from newsfabric.amqp import ConfirmingPublisher
from newsfabric.amqp.message import Delivery, Message
from newsfabric.errors import LinkRefused
from newsfabric.line_limits import LineLimit
from newsfabric.messages.mailbox import KeptMessage, UserMark, announcement, decode_mark, tool_note
from newsfabric.store import Store, rules
from newsfabric.topics import TopicTable
from newsfabric.topology.roles import is_of
from wholesale.common.outgoing import PendingPublish, confirmed, send
from wholesale.common.progress import PendingOperations
from wholesale.common.source import QueueSource
from wholesale.common.store_retry import StoreRetry
from wholesale.mailbox import counters
from wholesale.mailbox.waiting import MarkJob, WaitingMarks

logger = logging.getLogger(__name__)

MAX_BATCH: Final = 64


@dataclasses.dataclass(frozen=True, slots=True)
class _Known:
    """A job whose message was found. ``mark``: a ``new`` mark, or the one stored before."""

    job: MarkJob
    kept: KeptMessage
    mark: UserMark
    new: bool


class Marking:
    """The worker: it takes deliveries with :meth:`take_delivery` while :meth:`run` is running."""

    def __init__(
        self,
        *,
        store: Store,
        topics: TopicTable,
        publisher: ConfirmingPublisher,
        now_ms: Callable[[], int] = rules.clock_ms,
    ) -> None:
        self._store = store
        self._topics = topics
        self._publisher = publisher
        self._now_ms = now_ms
        self._retry = StoreRetry(store, counters.STORE_RETRIES)
        self._waiting = WaitingMarks()
        # The gauge calls a function: while a batch waits for the store, no code here could set it.
        counters.WAITING.set_function(lambda: len(self._waiting))
        self._progress = PendingOperations()
        self._wake = asyncio.Event()
        self._failing = LineLimit()

    @property
    def store_answers(self) -> bool:
        """True if the store answered the last request, and before the first."""
        return self._retry.store_answers

    @property
    def under_way(self) -> int:
        """The number of marks that are neither carried out nor given up."""
        return self._progress.under_way

    async def settled(self) -> None:
        """Return when all marks taken so far are carried out or given up."""
        await self._progress.idle()

    def take_delivery(self, source: QueueSource, delivery: Delivery) -> None:
        """Take ``delivery`` of ``source``; it is acknowledged when it is settled."""
        if source.saw(delivery):
            # The broker delivers unacknowledged messages again. Without this removal each
            # reconnection while the store is away would add one prefetch of jobs to the memory.
            for _ in range(self._waiting.remove_if(lambda job: job.is_stale)):
                self._progress.end()
        # A broker has validated the user_id of the box. The routing key proves nothing: topic
        # permissions don't apply to messages that a queue dead-letters.
        if not is_of("box", delivery.message.properties.user_id):
            counters.FORGED.inc()
            source.ack(delivery)
            return
        try:
            mark = self._checked(decode_mark(delivery.message))
        except ValueError as exc:
            counters.BAD.inc()
            logger.debug("not a mark: %s", exc)
            source.ack(delivery)
            return
        self._progress.begin()
        self._waiting.add_job(MarkJob(mark, delivery, source, time.monotonic()))
        self._wake.set()

    async def run(self) -> None:
        """Carry marks out, batch by batch, until cancelled."""
        while True:
            jobs = self._waiting.take_jobs(MAX_BATCH, time.monotonic())
            if jobs:
                await self._carry_out(jobs)
                continue
            self._wake.clear()
            try:
                async with asyncio.timeout(self._waiting.due_in(time.monotonic())):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _checked(self, mark: UserMark) -> UserMark:
        policy = self._topics.find(mark.topic)
        if policy is None or policy.access != "owner":
            raise ValueError(f"nobody owns {mark.topic}")
        # A gateway whose clock is ahead must not date marks in the future.
        return dataclasses.replace(mark, at_ms=min(mark.at_ms, self._now_ms()))

    async def _carry_out(self, jobs: Sequence[MarkJob]) -> None:
        try:
            found = await self._written_down(jobs)
            known = [one for one in found if isinstance(one, _Known)]
            await self._announce([message for one in known for message in self._announcements(one)])
        except Exception as exc:
            # Either the store is well and can't do one of these jobs, or this code has a bug. The
            # process must not end: it would meet the same job again. Other jobs must not fail with
            # it.
            if len(jobs) == 1:
                self._give_up(jobs[0], exc)
                return
            for job in jobs:
                await self._carry_out([job])
            return
        for one in found:
            if isinstance(one, _Known):
                self._settle(one)
            else:
                self._look_again(one)

    async def _written_down(self, jobs: Sequence[MarkJob]) -> list[_Known | MarkJob]:
        """Return the result of :meth:`_look_up`, after the new marks were written."""
        found = await self._retry.until_answered(lambda: self._look_up(jobs))
        marks = [one.mark for one in found if isinstance(one, _Known) and one.new]
        await self._retry.until_answered(lambda: self._store.mark(marks))
        return found

    async def _look_up(self, jobs: Sequence[MarkJob]) -> list[_Known | MarkJob]:
        """Return each job with its message; a job without a message is returned as it is."""
        found = await asyncio.gather(
            *(self._store.kept(job.mark.topic, job.mark.id) for job in jobs)
        )
        return [
            job if kept is None else _known(job, kept)
            for job, kept in zip(jobs, found, strict=True)
        ]

    def _look_again(self, job: MarkJob) -> None:
        if self._waiting.retry_later(job, time.monotonic()):
            counters.LATER.inc()
        else:
            counters.UNKNOWN.inc()
            self._end(job)

    def _give_up(self, job: MarkJob, exc: Exception) -> None:
        counters.FAILED.inc()
        suppressed = self._failing.may_log(time.monotonic())
        if suppressed is not None:
            logger.warning("mark failed (and %d more): %r", suppressed, exc)
        self._end(job)

    def _announcements(self, known: _Known) -> list[Message]:
        marked = known.kept.envelope
        left_ms = max(0, rules.lifetime(marked, self._topics).readable_until - self._now_ms())
        messages = [announcement(known.mark, left_ms=left_ms)]
        for_tools = tool_note(known.mark, marked, left_ms=left_ms)
        if for_tools is not None and self._topics.find(for_tools.topic) is not None:
            messages.append(for_tools)
        return messages

    async def _announce(self, messages: Sequence[Message]) -> None:
        """Return when the broker has confirmed all ``messages``.

        Raise LinkRefused if this service may not publish one of them: waiting doesn't help then.
        """
        publishes = [PendingPublish(topology.INTAKE, message) for message in messages]
        for pending in publishes:
            await send(self._publisher, pending)
        await confirmed(self._publisher, publishes, counters.PUBLISH_RETRIES, fatal=(LinkRefused,))

    def _settle(self, known: _Known) -> None:
        if known.new:
            counters.WRITTEN[known.mark.kind].inc()
        else:
            counters.REPEATED.inc()
        counters.SECONDS.observe(time.monotonic() - known.job.started)
        self._end(known.job)

    def _end(self, job: MarkJob) -> None:
        job.source.ack(job.delivery)
        self._progress.end()


def _known(job: MarkJob, kept: KeptMessage) -> _Known:
    first = kept.mark(job.mark.kind)
    if first is not None and first.at_ms <= job.mark.at_ms:
        return _Known(job, kept, first, new=False)
    return _Known(job, kept, job.mark, new=True)
