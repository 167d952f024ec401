"""The fourth stage: numbers what waits and writes it to the store, one write at a time.

While the store is away or slow, deliveries wait here, up to the prefetch, and after that in the
broker's queues; bronze only while there is room (waiting.py), then its oldest go. What has waited
for too long goes too, whatever its class (jobs.py, HOLD_SECONDS).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from newsfabric.store import Store
from wholesale.patience import Patience
from wholesale.router import counters
from wholesale.router.jobs import Job
from wholesale.router.settling import Settling
from wholesale.router.stream import Stream
from wholesale.router.waiting import Waiting

# Long enough to share one transaction, short enough that the last of it isn't late: 256 SQLite
# rows take a few ms.
MAX_BATCH: Final = 256

HandOn = Callable[[list[Job]], Awaitable[None]]


class Storing:
    """Takes jobs with :meth:`put`; :meth:`run` stores them and hands them on."""

    def __init__(
        self,
        *,
        store: Store,
        stream: Stream,
        settling: Settling,
        hand_on: HandOn,
        now_ms: Callable[[], int],
        now: Callable[[], float],
        bronze_room: int,
    ) -> None:
        self._store = store
        self._stream = stream
        self._settling = settling
        self._hand_on = hand_on
        self._now_ms = now_ms
        self._now = now
        self._waiting = Waiting(bronze_room=bronze_room)
        self._wake = asyncio.Event()
        self._writing: list[Job] = []
        self._patience = Patience(store, counters.STORE_RETRIES)
        # Asked for, not told: while a write waits for the store nothing else here goes on.
        counters.WAITING.set_function(lambda: len(self._writing) + len(self._waiting))

    @property
    def store_answers(self) -> bool:
        """Whether the last write worked (True before the first)."""
        return self._patience.store_answers

    def put(self, job: Job, *, under_way: int) -> None:
        """Store ``job`` in its turn, or drop bronze as there are ``under_way`` with it."""
        dropped = self._waiting.put(job, under_way=under_way)
        if dropped is not None:
            self._settling.shed(dropped)
        self._wake.set()

    def forget_unclaimed(self) -> None:
        """Drop the jobs that wait for nobody; those that have a number go their way."""
        for job in self._waiting.remove_unclaimed():
            self._settling.abandoned(job)

    def void_unstored(self) -> None:
        """The router stops: numbers given out and not stored come to nothing.

        What was stored without being routed isn't void: gateways find it in the journal.
        """
        for job in self._writing:
            self._settling.void(job)

    async def run(self) -> None:
        """Store and hand on, batch by batch, until cancelled."""
        while True:
            if self._waiting:
                await self._store_some()
            else:
                self._wake.clear()
                await self._wake.wait()

    async def _store_some(self) -> None:
        self._writing = self._in_time(self._waiting.take(MAX_BATCH))
        counters.STORE.entered(len(self._writing))
        stored = await self._number_and_write(self._writing)
        self._writing = []
        stored_ms = self._now_ms()
        for job in stored:
            job.stored_ms = stored_ms
        counters.STORE.left(len(stored))
        await self._hand_on(stored)

    async def _number_and_write(self, jobs: list[Job]) -> list[Job]:
        for job in jobs:
            job.envelope = self._stream.number(job.submission, now_ms=self._now_ms())
        counters.SEQ.set(self._stream.seq)
        try:
            return await self._write(jobs)
        except Exception:
            # One of them is the fault, so the others must not share its fate.
            return await self._write_each(jobs)

    async def _write_each(self, jobs: Sequence[Job]) -> list[Job]:
        stored = []
        for job in jobs:
            try:
                stored += await self._write([job])
            except Exception as exc:
                self._settling.failed(job, exc)
        return stored

    async def _write(self, jobs: list[Job]) -> list[Job]:
        """Write until the store takes it; those that waited for too long leave ``jobs``.

        Raises when the envelopes are at fault, not the store.
        """

        async def write() -> list[Job]:
            jobs[:] = self._in_time(jobs)
            envelopes = [job.envelope for job in jobs if job.envelope is not None]
            if envelopes:
                began = self._now()
                await self._store.write(envelopes)
                counters.STORE_SECONDS.observe(self._now() - began)
            return jobs

        return await self._patience.ask(write)

    def _in_time(self, jobs: list[Job]) -> list[Job]:
        """Those of ``jobs`` that may still go out; the others are given up."""
        now = self._now()
        in_time = []
        for job in jobs:
            if now < job.until:
                in_time.append(job)
            else:
                self._settling.expired(job)
        return in_time
