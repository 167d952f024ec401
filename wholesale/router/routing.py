"""The fifth stage: publishes what is stored to ``postoffice`` and ``outbound``, in seq order.

Two loops: while one batch waits for the broker's confirms the next is already on its way. Two
batches may wait before each, so seven are unsettled at most with those in hand (one is with the
store), of at most 256 jobs each.

What the link keeps here for too long isn't routed any more (jobs.py, HOLD_SECONDS), though it is
stored: readers who look find it, but nobody is told that it was routed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from newsfabric import topology
from newsfabric.amqp import Publisher
from newsfabric.envelope import encode
from wholesale.router import counters
from wholesale.router.jobs import Job, Letter
from wholesale.router.outgoing import confirmed, send, sent_at_once
from wholesale.router.settling import Settling

_BATCHES_BETWEEN = 2


class Routing:
    """Takes stored batches with :meth:`put`; :meth:`publish` and :meth:`confirm` are its loops."""

    def __init__(
        self, *, publisher: Publisher, settling: Settling, now: Callable[[], float]
    ) -> None:
        self._publisher = publisher
        self._now = now
        self._settling = settling
        self._stored: asyncio.Queue[list[Job]] = asyncio.Queue(_BATCHES_BETWEEN)
        self._sent: asyncio.Queue[list[tuple[Job, Letter, Letter]]] = asyncio.Queue(
            _BATCHES_BETWEEN
        )

    async def put(self, jobs: list[Job]) -> None:
        """Route stored ``jobs`` in their turn; waits while two batches are before them."""
        await self._stored.put(jobs)

    async def publish(self) -> None:
        """Publish batch by batch until cancelled."""
        while True:
            jobs = await self._stored.get()
            counters.ROUTE.entered(len(jobs))
            sent = []
            for job in jobs:
                try:
                    sent.append(await self._publish(job))
                except Exception as exc:
                    self._settling.failed(job, exc)
            await self._sent.put(sent)

    async def confirm(self) -> None:
        """Settle batch by batch, as the broker confirms, until cancelled."""
        while True:
            sent = await self._sent.get()
            letters = [letter for _, *pair in sent for letter in pair]
            await confirmed(self._publisher, letters, counters.PUBLISH_RETRIES, self._now)
            for job, here, elsewhere in sent:
                if here.expired or elsewhere.expired:
                    self._settling.expired(job)
                else:
                    self._settling.routed(job)
                    counters.ROUTE.left()

    async def _publish(self, job: Job) -> tuple[Job, Letter, Letter]:
        assert job.envelope is not None
        message = encode(job.envelope)
        here = Letter(topology.POSTOFFICE, message, until=job.until)
        elsewhere = Letter(topology.OUTBOUND, message, until=job.until)
        for letter in (here, elsewhere):
            if not sent_at_once(self._publisher, letter, self._now):
                await send(self._publisher, letter, self._now)
        return job, here, elsewhere
