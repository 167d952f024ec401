"""The fourth stage: numbers what waits and writes it to the store, one write at a time.

While the store is away or slow, deliveries wait here, up to the prefetch, and after that in the
broker's queues; bronze only while there is room (waiting.py), then its oldest go.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from newsfabric.backoff import Backoff
from newsfabric.errors import StoreError, StoreUnavailable
from newsfabric.store import Store
from wholesale.router import counters
from wholesale.router.jobs import Job
from wholesale.router.settling import Settling
from wholesale.router.stream import Stream
from wholesale.router.waiting import Waiting

logger = logging.getLogger(__name__)

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
        bronze_room: int,
    ) -> None:
        self._store = store
        self._stream = stream
        self._settling = settling
        self._hand_on = hand_on
        self._now_ms = now_ms
        self._waiting = Waiting(bronze_room=bronze_room)
        self._wake = asyncio.Event()
        self._writing: list[Job] = []
        self.store_answers = True

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
        self._writing = self._waiting.take(MAX_BATCH)
        counters.WAITING.set(len(self._waiting))
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
            await self._write(jobs)
        except Exception:
            # One of them is the fault, so the others must not share its fate.
            return await self._write_each(jobs)
        return jobs

    async def _write_each(self, jobs: Sequence[Job]) -> list[Job]:
        stored = []
        for job in jobs:
            try:
                await self._write([job])
            except Exception as exc:
                self._settling.failed(job, exc)
            else:
                stored.append(job)
        return stored

    async def _write(self, jobs: Sequence[Job]) -> None:
        """Write until the store takes it; raises when the envelopes are at fault, not the store."""
        envelopes = [job.envelope for job in jobs if job.envelope is not None]
        backoff = Backoff(base=0.1, cap=5.0)
        while True:
            try:
                await self._store.write(envelopes)
            except StoreError as exc:
                if not isinstance(exc, StoreUnavailable) and await self._store_is_well():
                    raise
                self._note_failure(exc)
                await asyncio.sleep(backoff.failed(time.monotonic()))
            else:
                self._note_success()
                return

    async def _store_is_well(self) -> bool:
        try:
            await self._store.check()
        except StoreError:
            return False
        return True

    def _note_failure(self, exc: StoreError) -> None:
        counters.STORE_RETRIES.inc()
        if self.store_answers:
            logger.warning("the store is away: %s; trying again", exc)
        self.store_answers = False

    def _note_success(self) -> None:
        if not self.store_answers:
            logger.info("the store is back")
        self.store_answers = True
