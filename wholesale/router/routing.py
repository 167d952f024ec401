"""The fifth stage: publishes stored messages to ``postoffice`` and ``outbound``, in seq order.

Two loops: while one batch waits for the broker's confirms, the next one is already sent. Two
batches may wait before each loop, each loop has one in hand, and one is in the store: at most seven
unsettled batches of at most 256 jobs each.

A stored message that the link delays for too long isn't routed any more (jobs.py, HOLD_SECONDS): a
reader of the store finds it, but its publisher gets no receipt. No message is sent without a lease;
if other routers have closed the log, the broker gets all deliveries back.

A message that some queue refuses counts as published: all other queues have it. The gateway behind
that queue finds the missing number in the store. Otherwise one box whose queue refuses everything
would make every router of its region send the same message again and again.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

from newsfabric import topology
from newsfabric.amqp import ConfirmingPublisher
from newsfabric.messages.envelope import encode
from wholesale.common.outgoing import MaySend, PendingPublish, confirmed, send, sent_at_once
from wholesale.router import counters
from wholesale.router.jobs import RoutingJob
from wholesale.router.listing import Listing, LogClosed
from wholesale.router.settling import Settling

_BATCHES_BETWEEN = 2

# A job, and its publishes to both exchanges.
_Sent = tuple[RoutingJob, PendingPublish, PendingPublish]


class Routing:
    """Routes batches, from :meth:`route_stored`, in the loops :meth:`publish`, :meth:`confirm`."""

    def __init__(
        self,
        *,
        publisher: ConfirmingPublisher,
        listing: Listing,
        settling: Settling,
        now: Callable[[], float],
    ) -> None:
        self._publisher = publisher
        self._listing = listing
        self._now = now
        self._settling = settling
        self._stored: asyncio.Queue[list[RoutingJob]] = asyncio.Queue(_BATCHES_BETWEEN)
        self._sent: asyncio.Queue[list[_Sent]] = asyncio.Queue(_BATCHES_BETWEEN)
        self._confirming: list[PendingPublish] = []

    @property
    def gets_through(self) -> bool:
        """False if the broker has failed a publish of the batch that is being confirmed now."""
        return not any(pending.failed for pending in self._confirming)

    async def route_stored(self, jobs: list[RoutingJob]) -> None:
        """Route stored ``jobs`` in their turn; wait while two batches are before them."""
        await self._stored.put(jobs)

    async def publish(self) -> None:
        """Publish batch by batch, until cancelled."""
        while True:
            jobs = await self._stored.get()
            if jobs:
                counters.ROUTE.entered(len(jobs))
                await self._publish_all(jobs)

    async def _publish_all(self, jobs: list[RoutingJob]) -> None:
        may_send = self._lease_of(jobs)
        sent: list[_Sent] = []
        failed: set[RoutingJob] = set()
        try:
            await may_send()
            for job in jobs:
                try:
                    sent.append(await self._publish(job, may_send))
                except LogClosed:
                    raise
                except Exception as exc:
                    self._settling.failed(job, exc)
                    failed.add(job)
        except LogClosed:
            self._requeue([job for job in jobs if job not in failed])
            return
        await self._sent.put(sent)

    async def confirm(self) -> None:
        """Settle batch by batch, as the broker confirms, until cancelled."""
        while True:
            sent = await self._sent.get()
            if sent:
                await self._confirm_all(sent)

    async def _confirm_all(self, sent: list[_Sent]) -> None:
        publishes = self._confirming = [pending for _, *pair in sent for pending in pair]
        jobs = [job for job, *_ in sent]
        may_send = self._lease_of(jobs)
        try:
            await confirmed(
                self._publisher,
                publishes,
                counters.PUBLISH_RETRIES,
                self._now,
                may_send,
                refused=counters.REFUSED,
            )
        except LogClosed:
            self._requeue(jobs)
            return
        finally:
            self._confirming = []
        for job, here, elsewhere in sent:
            if here.expired or elsewhere.expired:
                self._settling.expired(job)
            else:
                self._settling.routed(job)
                counters.ROUTE.left()

    def _lease_of(self, jobs: list[RoutingJob]) -> MaySend:
        """Return a function that waits until ``jobs``, all of one log, may be published."""
        stream = jobs[0].stream
        assert stream is not None
        return functools.partial(self._listing.lease, stream)

    def _requeue(self, jobs: list[RoutingJob]) -> None:
        """Give ``jobs`` back. Copies that the exchanges may have are repeats by their identity."""
        for job in jobs:
            self._settling.requeued(job)

    async def _publish(self, job: RoutingJob, may_send: MaySend) -> _Sent:
        assert job.envelope is not None
        assert job.stream is not None
        message = encode(job.envelope, low=job.stream.numbering.low)
        here = PendingPublish(topology.POSTOFFICE, message, until=job.until)
        elsewhere = PendingPublish(topology.OUTBOUND, message, until=job.until)
        for pending in (here, elsewhere):
            if not sent_at_once(self._publisher, pending, self._now):
                await send(self._publisher, pending, self._now, may_send)
        return job, here, elsewhere
