"""The fourth stage: numbers what waits and writes it to the store, one write at a time.

While the store is away or slow, deliveries wait here, up to the prefetch, and after that in the
broker's queues; bronze only while there is room (waiting.py), then its oldest go. What has waited
for too long goes too, whatever its class (jobs.py, HOLD_SECONDS), unless it has a number: a write
that wasn't confirmed may have happened, or happen yet, so it is repeated until it is confirmed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from newsfabric.store import Store
from wholesale.common.store_retry import StoreRetry
from wholesale.router import counters
from wholesale.router.jobs import Job
from wholesale.router.listing import Listing, LogClosed
from wholesale.router.settling import Settling
from wholesale.router.stream import Stream
from wholesale.router.waiting import Waiting

# Long enough to share one transaction, short enough that the last of it isn't late: 256 SQLite
# rows take a few ms.
MAX_BATCH: Final = 256
# A log has as many unsettled numbers as it may have: only a broker that confirms nothing does that.
_FULL_SECONDS: Final = 0.1
# How often it is looked for what has waited for too long.
_LOOK_SECONDS: Final = 1.0

HandOn = Callable[[list[Job]], Awaitable[None]]


class Storing:
    """Takes jobs with :meth:`store_later`; :meth:`run` stores them and hands them on.

    ``clock_ms`` is the time that messages are given, ``now_ms`` the machine's.
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
        self._waiting = Waiting(bronze_room=bronze_room)
        self._wake = asyncio.Event()
        self._writing: list[Job] = []
        self._retry = StoreRetry(store, counters.STORE_RETRIES)
        # Asked for, not told: while a write waits for the store nothing else here goes on.
        counters.WAITING.set_function(lambda: len(self._writing) + len(self._waiting))

    @property
    def store_answers(self) -> bool:
        """Whether the last write worked (True before the first)."""
        return self._retry.store_answers

    def store_later(self, job: Job, *, under_way: int) -> None:
        """Store ``job`` in its turn, or drop bronze as there are ``under_way`` with it."""
        dropped = self._waiting.queue_job(job, under_way=under_way)
        if dropped is not None:
            self._settling.shed(dropped)
        self._wake.set()

    def forget_unclaimed(self) -> None:
        """Drop the jobs that wait for nobody; those that have a number go their way."""
        for job in self._waiting.remove_unclaimed():
            self._settling.abandoned(job)

    def give_back(self) -> None:
        """Give back what isn't numbered yet: the broker delivers it to whoever takes more."""
        for job in self._waiting.take(len(self._waiting)):
            self._settling.given_back(job)

    async def give_up_old(self) -> None:
        """Give up what has waited for too long, also while the store keeps us waiting; until
        cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for job in self._waiting.remove_old(self._now()):
                self._settling.expired(job)

    async def run(self) -> None:
        """Store and hand on, batch by batch, until cancelled."""
        while True:
            if self._waiting:
                await self._store_some()
            else:
                self._wake.clear()
                await self._wake.wait()

    async def _store_some(self) -> None:
        stream = self._listing.stream
        with contextlib.suppress(LogClosed):
            await self._listing.may_number(stream)
            await self._settled_some(stream)
            jobs = self._in_time(self._waiting.take(min(MAX_BATCH, stream.numbering.room)))
            if jobs:
                await self._number_and_store(jobs, stream)

    async def _settled_some(self, stream: Stream) -> None:
        """Return when ``stream`` has room for one more number."""
        while stream.numbering.room <= 0:
            await asyncio.sleep(_FULL_SECONDS)
            await self._listing.may_number(stream)

    async def _number_and_store(self, jobs: list[Job], stream: Stream) -> None:
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

    async def _written(self, jobs: list[Job], stream: Stream) -> list[Job]:
        """Those that are in the store now; the others have ended."""
        try:
            await self._write(jobs, stream)
        except LogClosed:
            for job in jobs:
                self._settling.given_back(job)
            return []
        except Exception as exc:
            if len(jobs) > 1:
                # One of them is the fault, so the others must not share its fate.
                parts = [await self._written([job], stream) for job in jobs]
                return [job for part in parts for job in part]
            self._settling.failed(jobs[0], exc)
            assert jobs[0].envelope is not None
            stream.make_void(jobs[0].envelope.seq)
            return []
        return jobs

    async def _write(self, jobs: Sequence[Job], stream: Stream) -> None:
        """Write until the store takes it.

        LogClosed if it needn't any more; other errors when the envelopes are at fault, not the
        store.
        """
        envelopes = [job.envelope for job in jobs if job.envelope is not None]

        async def write() -> None:
            if stream.numbering.is_closed:
                raise LogClosed
            began = self._now()
            await self._store.write(envelopes)
            counters.STORE_SECONDS.observe(self._now() - began)

        await self._retry.until_answered(write)

    def _in_time(self, jobs: list[Job]) -> list[Job]:
        """Those of ``jobs`` that may be numbered yet; the others are given up."""
        now = self._now()
        in_time = []
        for job in jobs:
            if now < job.until:
                in_time.append(job)
            else:
                self._settling.expired(job)
        return in_time
