"""The last stage: receipts and rejections are confirmed, then deliveries are acknowledged.

Acknowledging is last. If the router dies before it, the broker delivers the message again and the
receipt is sent again.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import time
from typing import Final

from newsfabric import topology
from newsfabric.amqp import ConfirmingPublisher
from newsfabric.line_limits import LineLimit
from wholesale.common.outgoing import PendingPublish, confirmed, send
from wholesale.common.progress import PendingOperations
from wholesale.router import counters
from wholesale.router.jobs import PendingAck

logger = logging.getLogger(__name__)

_MAX_BATCH: Final = 256


class Acknowledger:
    """Pending acknowledgements, added with :meth:`add_ack` and done by :meth:`run`.

    Each belongs to at least one unacknowledged delivery, so the broker's prefetch bounds how many
    wait here.
    """

    def __init__(self, publisher: ConfirmingPublisher, progress: PendingOperations) -> None:
        self._publisher = publisher
        self._progress = progress
        self._waiting: collections.deque[PendingAck] = collections.deque()
        self._wake = asyncio.Event()
        self._confirming: list[PendingPublish] = []
        self._failing = LineLimit()

    @property
    def gets_through(self) -> bool:
        """False if the broker has failed a publish of the batch that is being confirmed now."""
        return not any(pending.failed for pending in self._confirming)

    def add_ack(self, ack: PendingAck) -> None:
        """Do ``ack`` in its turn; at once if it has nothing to publish."""
        if not ack.publishes:
            _acknowledge(ack)
            return
        self._progress.begin()
        self._waiting.append(ack)
        self._wake.set()

    def forget_stale(self) -> None:
        """Drop acknowledgements of stale deliveries only: the broker delivers those again."""
        owed = [ack for ack in self._waiting if not all(claim.is_stale for claim in ack.claims)]
        for _ in range(len(self._waiting) - len(owed)):
            self._progress.end()
        self._waiting = collections.deque(owed)

    async def run(self) -> None:
        """Acknowledge batch by batch, until cancelled."""
        while True:
            if self._waiting:
                count = min(len(self._waiting), _MAX_BATCH)
                await self._acknowledge_all([self._waiting.popleft() for _ in range(count)])
            else:
                self._wake.clear()
                await self._wake.wait()

    async def _acknowledge_all(self, acks: list[PendingAck]) -> None:
        publishes = [pending for ack in acks for pending in ack.publishes]
        sent = self._confirming = [pending for pending in publishes if await self._send(pending)]
        await confirmed(self._publisher, sent, counters.PUBLISH_RETRIES)
        self._confirming = []
        counters.RECEIPTS.inc(sum(pending.exchange == topology.RECEIPTS for pending in sent))
        for ack in acks:
            _acknowledge(ack)
            self._progress.end()

    async def _send(self, pending: PendingPublish) -> bool:
        """Return whether ``pending`` could be sent, if necessary in its plain form."""
        try:
            await send(self._publisher, pending)
        except Exception as exc:
            # Some value of the message can't be encoded. The delivery is acknowledged without this
            # publish: waiting for it would stop all others.
            suppressed = self._failing.may_log(time.monotonic())
            if suppressed is not None:
                text = "can't publish to %s: %r (and %d more)"
                logger.error(text, pending.exchange, exc, suppressed)
            if pending.plain is None or pending.message is pending.plain:
                return False
            pending.fall_back()
            return await self._send(pending)
        return True


def _acknowledge(ack: PendingAck) -> None:
    for claim in ack.claims:
        claim.ack()
