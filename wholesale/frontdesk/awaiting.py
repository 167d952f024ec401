"""Publishes for an HTTP request and waits for the router's receipt.

``reply_to`` is one queue of this process; which request a receipt is for says its
``correlation_id``, a secret of 128 random bits, so nobody who can publish can answer for a router.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import secrets

from newsfabric import control, topology
from newsfabric.amqp import ConfirmingPublisher
from newsfabric.amqp.message import Delivery, Message
from newsfabric.control import Receipt
from newsfabric.errors import LinkError
from wholesale.http import RETRY, HttpProblem
from wholesale.progress import Progress

logger = logging.getLogger(__name__)


class Receipts:
    """Requests that wait for their receipts, at most ``most`` at a time."""

    def __init__(
        self,
        publisher: ConfirmingPublisher,
        reply_to: str,
        *,
        most: int,
        timeout: float,
    ) -> None:
        self._publisher = publisher
        self._reply_to = reply_to
        self._most = most
        self._timeout = timeout
        self._pending: dict[str, asyncio.Future[Receipt]] = {}
        self._progress = Progress()

    @property
    def pending(self) -> int:
        """How many requests wait."""
        return len(self._pending)

    async def idle(self) -> None:
        """Return when no request waits."""
        await self._progress.idle()

    def take(self, delivery: Delivery) -> None:
        """A message has come to ``reply_to``: a request's receipt, or of no interest any more."""
        try:
            receipt = control.decode_receipt(delivery.message)
        except ValueError as exc:
            logger.debug("no receipt: %s", exc)
            return
        waiting = self._pending.get(delivery.message.properties.correlation_id or "")
        if waiting is not None and not waiting.done():
            waiting.set_result(receipt)

    async def publish(self, message: Message) -> Receipt:
        """Publish ``message`` and return its receipt; HttpProblem when none can be had now."""
        if len(self._pending) >= self._most:
            raise HttpProblem(
                503, "busy", "too many publications are waiting for receipts", headers=RETRY
            )
        correlation_id = secrets.token_hex(16)
        receipt: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._pending[correlation_id] = receipt
        self._progress.begin()
        try:
            async with asyncio.timeout(self._timeout):
                await self._send(message, correlation_id)
                return await receipt
        except TimeoutError as exc:
            raise _no_receipt(message) from exc
        except LinkError as exc:
            raise _not_taken(message) from exc
        finally:
            del self._pending[correlation_id]
            self._progress.end()

    async def _send(self, message: Message, correlation_id: str) -> None:
        properties = dataclasses.replace(
            message.properties, reply_to=self._reply_to, correlation_id=correlation_id
        )
        addressed = dataclasses.replace(message, properties=properties)
        await self._publisher.publish(topology.PUBLISH, addressed, mandatory=True)


def _no_receipt(message: Message) -> HttpProblem:
    return HttpProblem(
        504,
        "no_receipt",
        "not known to be routed: send it again with the same Idempotency-Key, "
        "and it will be routed once",
        headers=RETRY,
        extra={"message_id": message.properties.message_id},
    )


def _not_taken(message: Message) -> HttpProblem:
    return HttpProblem(
        503,
        "unavailable",
        "the fabric can't take it now: send it again with the same Idempotency-Key",
        headers=RETRY,
        extra={"message_id": message.properties.message_id},
    )
