"""The fan-out of publications to their audiences, one after the other, in chunks.

Publications are sent in the order in which they were offered. A large audience is split, so that
verbs, heartbeats and other topics' readers are served in between. The queue here is bounded by the
consumer's prefetch, because a message is acknowledged to the broker when its fan-out is done.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
from collections.abc import Callable, Iterator

from gateway.memory.kept_topics import Audience, TopicSubscription
from gateway.process import measures
from gateway.wire.publication import Publication
from newsfabric.closing import INTERNAL

logger = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True)
class _Job:
    publication: Publication
    groups: Iterator[tuple[str, tuple[TopicSubscription, ...]]]
    done: Callable[[], None]
    transport: str = ""
    group: tuple[TopicSubscription, ...] = ()
    # The number of members of ``group`` that are done.
    at: int = 0


class Fanout:
    """The queue of publications to send. It belongs to the event loop that made it."""

    def __init__(self, chunk: int) -> None:
        self.deliveries = 0
        self._chunk = chunk
        self._jobs: collections.deque[_Job] = collections.deque()
        self._loop = asyncio.get_running_loop()
        self._scheduled = False

    def publish(
        self, publication: Publication, audience: Audience, done: Callable[[], None]
    ) -> None:
        """Queue ``publication`` for ``audience``, behind all publications queued before."""
        self._jobs.append(_Job(publication, iter(audience), done))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        budget = self._chunk
        while self._jobs and budget > 0:
            job = self._jobs[0]
            if job.at < len(job.group):
                budget -= self._deliver(job, budget)
            elif (group := next(job.groups, None)) is not None:
                job.transport, job.group = group
                job.at = 0
            else:
                self._jobs.popleft()
                job.done()
        self._scheduled = bool(self._jobs)
        if self._scheduled:
            self._loop.call_soon(self._turn)

    def _deliver(self, job: _Job, budget: int) -> int:
        publication = job.publication
        part = job.group[job.at : job.at + budget]
        job.at += len(part)
        frame = publication.frame(part[0].subscriber.framing)
        sent = taken = 0
        for subscription in part:
            if subscription.active:
                try:
                    taken += subscription.subscriber.deliver(frame, publication)
                except Exception:
                    # A bug of ours. It may cost this reader its connection, but no other reader.
                    made = publication.envelope.id
                    logger.exception("delivering %s failed", made, extra={"id": made})
                    subscription.subscriber.close(INTERNAL)
                sent += 1
        self.deliveries += sent
        measures.DELIVERIES.labels(job.transport).inc(sent)
        measures.HELD.inc(sent - taken)
        delay = measures.delay_of(publication)
        if delay is not None and taken:
            delay.observe(measures.age(publication), taken)
        return len(part)
