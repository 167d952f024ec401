"""Publishes for an HTTP request and waits for the router's receipt, as any publisher does.

A broker that stands still delays a request only briefly: without a receipt in half a second the
message is also sent by another broker. A receipt is matched to its request by ``correlation_id``, a
secret of 128 random bits, so no other publisher can forge a router's receipt.
"""

from __future__ import annotations

from collections.abc import Sequence

from newsfabric.amqp import Link
from newsfabric.amqp.message import Message
from newsfabric.errors import PublishError, Rejected, Unanswered
from newsfabric.messages.control import Receipt
from newsfabric.publish import AsyncPublisher
from newsfabric.topology import Bounds
from wholesale.common.http import RETRY, HttpProblem
from wholesale.common.progress import PendingOperations

# Old receipts are useless, so their queues keep few of them, and briefly.
_BOUNDS = Bounds(max_length=5000, max_bytes=4 << 20, message_ttl_ms=5000)


class Receipts:
    """Requests that wait for their receipts, at most ``most`` at a time."""

    def __init__(self, publisher: AsyncPublisher, *, most: int) -> None:
        self._publisher = publisher
        self._most = most
        self._progress = PendingOperations()

    @classmethod
    async def over(
        cls, client: Sequence[Link], *, name: str, most: int, seconds: float
    ) -> Receipts:
        """Return receipts for frontdesk ``name``, over links to its region's client brokers.

        A request waits ``seconds`` for its receipt.
        """
        publisher = await AsyncPublisher.over(
            [client],
            app_id=f"frontdesk.{name}",
            arguments=_BOUNDS.arguments(),
            timeout=seconds,
            window=most,
        )
        return cls(publisher, most=most)

    @property
    def pending(self) -> int:
        """The number of requests that wait."""
        return self._progress.under_way

    async def idle(self) -> None:
        """Return when no request waits."""
        await self._progress.idle()

    async def close(self) -> None:
        """Close the links."""
        await self._publisher.close()

    async def publish(self, message: Message) -> Receipt:
        """Publish ``message`` and return its receipt; HttpProblem if there is none in time."""
        if self.pending >= self._most:
            raise HttpProblem(
                503, "busy", "too many publications are waiting for receipts", headers=RETRY
            )
        if not self._publisher.connected:
            raise _not_sent(message)
        self._progress.begin()
        try:
            return await self._publisher.send(message)
        except Unanswered as exc:
            raise (_no_receipt if exc.sent else _not_sent)(message) from exc
        except Rejected as exc:
            return _refused_by_broker(message, exc)
        except PublishError as exc:
            raise _not_taken(message) from exc
        finally:
            self._progress.end()


def _no_receipt(message: Message) -> HttpProblem:
    return HttpProblem(
        504,
        "no_receipt",
        "not known to be routed: send it again with the same Idempotency-Key, "
        "and it will be routed once",
        headers=RETRY,
        extra={"message_id": message.properties.message_id},
    )


def _not_sent(message: Message) -> HttpProblem:
    return _unavailable(message, "nothing was sent: no client broker of this region takes it now")


def _not_taken(message: Message) -> HttpProblem:
    return _unavailable(message, "the fabric can't take it now: its client brokers give it back")


def _unavailable(message: Message, why: str) -> HttpProblem:
    return HttpProblem(
        503,
        "unavailable",
        f"{why}. Send it again with the same Idempotency-Key",
        headers=RETRY,
        extra={"message_id": message.properties.message_id},
    )


def _refused_by_broker(message: Message, why: Rejected) -> Receipt:
    return Receipt(
        status="rejected",
        region="",
        router="",
        topic=message.topic,
        message_id=message.properties.message_id,
        reason=why.reason,
        detail=why.detail,
    )
