"""Rejecting deliveries that made a service fail twice: they go to exchange ``rejected``.

A bug must not make a message circulate for ever. After the first failure the delivery is put back
into its queue, for another service of the kind may succeed (newsfabric.amqp). The second failure
ends in ``rejected``. ``redelivered`` alone is no failure: a lost connection redelivers a thousand
innocent messages, and each of them is processed like any other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from newsfabric import metrics, topology
from newsfabric.amqp import ConfirmingPublisher
from newsfabric.amqp.message import Delivery, Message, Properties
from newsfabric.errors import LinkError
from newsfabric.line_limits import LineLimit
from newsfabric.store.rules import clock_ms
from wholesale.common.source import QueueSource

logger = logging.getLogger(__name__)

REASON: Final = "failed"
FAILED = metrics.counter(
    "amqp_rejected_deliveries", "Deliveries that failed twice; they are in rejected"
)


class Failed:
    """Deliveries to reject, from :meth:`reject_later`; :meth:`run` publishes and acknowledges them.

    Each delivery is unacknowledged until then, so the broker's prefetch bounds how many wait here.
    """

    def __init__(
        self, publisher: ConfirmingPublisher, *, name: str, now_ms: Callable[[], int] = clock_ms
    ) -> None:
        self._publisher = publisher
        self._name = name
        self._now_ms = now_ms
        self._waiting: asyncio.Queue[tuple[QueueSource, Delivery]] = asyncio.Queue()
        self._failing = LineLimit()

    def reject_later(self, source: QueueSource, delivery: Delivery, problem: Exception) -> None:
        """Take ``delivery`` of ``source``, which failed for the second time, with ``problem``."""
        FAILED.inc()
        suppressed = self._failing.may_log(time.monotonic())
        if suppressed is not None:
            text = "failed twice with a message (and %d more)"
            about = {"message_id": delivery.message.properties.message_id}
            logger.error(text, suppressed, exc_info=problem, extra=about)
        self._waiting.put_nowait((source, delivery))

    async def run(self) -> None:
        """Publish the waiting deliveries one by one, until cancelled."""
        while True:
            await self._reject(*await self._waiting.get())

    async def _reject(self, source: QueueSource, delivery: Delivery) -> None:
        """Publish ``delivery`` to ``rejected`` until the broker confirms, or until it is stale."""
        # None of the delivery's own properties are copied: they may be the cause of the failure.
        headers = {
            "reason": REASON,
            "detail": f"{self._name} failed with it twice",
            "topic": delivery.message.topic.encode("utf-8", "backslashreplace").decode(),
            "router": self._name,
            "rejected_at": self._now_ms(),
        }
        evidence = Message(REASON, delivery.message.body, Properties(headers=headers))
        while not source.is_stale(delivery):
            await self._publisher.ready()
            try:
                await self._publisher.publish(topology.REJECTED, evidence)
            except LinkError:
                continue
            source.ack(delivery)
            return
