"""Deliveries that a service failed with twice: out of its queue, into exchange ``rejected``.

A bug, whatever it is, must not make a message come round for ever. The first failure gives the
delivery back to its queue, for another service of the kind may do better (newsfabric.amqp); the
second one ends here. ``redelivered`` alone is no failure: a lost connection redelivers a thousand
innocents, and each of them is tried as any other.
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
    """Takes deliveries with :meth:`reject_later`; :meth:`run` publishes them and acknowledges.

    Each is unacknowledged until then, so the broker's prefetch bounds how many wait here.
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
        """``delivery`` of ``source`` failed for the second time, with ``problem``."""
        FAILED.inc()
        unsaid = self._failing.may_log(time.monotonic())
        if unsaid is not None:
            text = "failed twice with a message (and %d more)"
            about = {"message_id": delivery.message.properties.message_id}
            logger.error(text, unsaid, exc_info=problem, extra=about)
        self._waiting.put_nowait((source, delivery))

    async def run(self) -> None:
        """Publish them one by one, until cancelled."""
        while True:
            await self._reject(*await self._waiting.get())

    async def _reject(self, source: QueueSource, delivery: Delivery) -> None:
        """Until the broker has it, or has taken ``delivery`` back."""
        # Nothing of its properties: they may be what we failed with.
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
