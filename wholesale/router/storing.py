"""The fourth stage: numbers the waiting jobs and writes them to the store, one write at a time.

While the store is away or slow, deliveries wait here up to the prefetch, and after that in the
broker's queues. Bronze waits only while there is room (waiting.py); then its oldest is dropped. A
job that has waited for too long is given up, whatever its class (jobs.py, HOLD_SECONDS). A job with
a number is kept: its unconfirmed write may happen yet, so it is repeated until it is confirmed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from newsfabric.store import Store
from wholesale.common.store_retry import StoreRetry
from wholesale.router import counters
from wholesale.router.jobs import RoutingJob
from wholesale.router.listing import Listing, LogClosed
from wholesale.router.settling import Settling
from wholesale.router.stream import Stream
from wholesale.router.waiting import WaitingJobs

# Enough to share the cost of a transaction, and few enough that the last one isn't late: 256 SQLite
# rows take a few ms.
MAX_BATCH: Final = 256
# Seconds to wait while a log has as many unsettled numbers as allowed: brokers confirm nothing.
_FULL_SECONDS: Final = 0.1
# Seconds between two searches for jobs that have waited for too long.
_LOOK_SECONDS: Final = 1.0

HandOn = Callable[[list[RoutingJob]], Awaitable[None]]


class Storing:
    """Takes jobs with :meth:`store_later`; :meth:`run` stores them and passes them to ``hand_on``.

    ``clock_ms`` is the clock that dates messages, ``now_ms`` the machine's.
    """

    def __init__(
        self,
        *,
        store: Store,
        listing: Listing,
        settling: Settling,
        hand_on: HandOn,
        clock_ms: Callable[[], int],
        now_ms: Callable[[], int],
        now: Callable[[], float],
        bronze_room: int,
    ) -> None:
        self._store = store
        self._listing = listing
        self._settling = settling
        self._hand_on = hand_on
        self._clock_ms = clock_ms
        self._now_ms = now_ms
        self._now = now
        self._waiting = WaitingJobs(bronze_room=bronze_room)
        self._wake = asyncio.Event()
        self._writing: list[RoutingJob] = []
        self._retry = StoreRetry(store, counters.STORE_RETRIES)
        # The gauge calls a function: while a write waits for the store, no code here could set it.
        counters.WAITING.set_function(lambda: len(self._writing) + len(self._waiting))

    @property
    def store_answers(self) -> bool:
        """True if the last write succeeded, and before the first."""
        return self._retry.store_answers

    def store_later(self, job: RoutingJob, *, under_way: int) -> None:
        """Store ``job`` in its turn; drop the oldest bronze if ``under_way`` jobs are too many."""
        dropped = self._waiting.queue_job(job, under_way=under_way)
        if dropped is not None:
            self._settling.shed(dropped)
        self._wake.set()

    def forget_unclaimed(self) -> None:
        """Drop waiting jobs that have no claims; those that have a number go on."""
        for job in self._waiting.remove_unclaimed():
            self._settling.abandoned(job)

    def requeue(self) -> None:
        """Give back jobs without a number: the broker delivers them to another router."""
        for job in self._waiting.take_jobs(len(self._waiting)):
            self._settling.requeued(job)

    async def give_up_old(self) -> None:
        """Give up jobs that have waited for too long, also during a write; until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for job in self._waiting.remove_old(self._now()):
                self._settling.expired(job)

    async def run(self) -> None:
        """Store and pass on, batch by batch, until cancelled."""
        while True:
            if self._waiting:
                await self._store_some()
            else:
                self._wake.clear()
                await self._wake.wait()

    async def _store_some(self) -> None:
        stream = self._listing.stream
        with contextlib.suppress(LogClosed):
            await self._listing.wait_may_number(stream)
            await self._settled_some(stream)
            jobs = self._in_time(self._waiting.take_jobs(min(MAX_BATCH, stream.numbering.room)))
            if jobs:
                await self._number_and_store(jobs, stream)

    async def _settled_some(self, stream: Stream) -> None:
        """Return when ``stream`` has room for one more number."""
        while stream.numbering.room <= 0:
            await asyncio.sleep(_FULL_SECONDS)
            await self._listing.wait_may_number(stream)

    async def _number_and_store(self, jobs: list[RoutingJob], stream: Stream) -> None:
        counters.STORE.entered(len(jobs))
        for job in jobs:
            job.stream = stream
            job.envelope = stream.number(job.submission, now_ms=self._clock_ms())
        counters.SEQ.set(stream.seq)
        self._writing = jobs
        stored = await self._written(jobs, stream)
        self._writing = []
        stored_ms = self._now_ms()
        for job in stored:
            job.stored_ms = stored_ms
        counters.STORE.left(len(stored))
        await self._hand_on(stored)

    async def _written(self, jobs: list[RoutingJob], stream: Stream) -> list[RoutingJob]:
        """Return the jobs that are in the store now; the others have ended."""
        try:
            await self._write(jobs, stream)
        except LogClosed:
            for job in jobs:
                self._settling.requeued(job)
            return []
        except Exception as exc:
            if len(jobs) > 1:
                # One of them is at fault; the others must not fail with it.
                parts = [await self._written([job], stream) for job in jobs]
                return [job for part in parts for job in part]
            self._settling.failed(jobs[0], exc)
            assert jobs[0].envelope is not None
            stream.make_void(jobs[0].envelope.seq)
            return []
        return jobs

    async def _write(self, jobs: Sequence[RoutingJob], stream: Stream) -> None:
        """Write until the store accepts it.

        Raise LogClosed if the log was closed meanwhile; other errors if the envelopes are at fault,
        not the store.
        """
        envelopes = [job.envelope for job in jobs if job.envelope is not None]

        async def write() -> None:
            if stream.numbering.is_closed:
                raise LogClosed
            began = self._now()
            await self._store.write(envelopes)
            counters.STORE_SECONDS.observe(self._now() - began)

        await self._retry.until_answered(write)

    def _in_time(self, jobs: list[RoutingJob]) -> list[RoutingJob]:
        """Return those of ``jobs`` that may still be numbered; the others are given up."""
        now = self._now()
        in_time = []
        for job in jobs:
            if now < job.until:
                in_time.append(job)
            else:
                self._settling.expired(job)
        return in_time
