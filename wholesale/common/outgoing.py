"""Publishing with retries until the broker has confirmed each message, over any loss of the link.

A message that is sent again may arrive twice: gateways drop the duplicate by its identity. Messages
leave in order. Only retries come late, and no message is sent after its expiry.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
from collections.abc import Awaitable, Callable, Sequence

from prometheus_client import Counter

from newsfabric.amqp import ConfirmingPublisher
from newsfabric.amqp.message import Message
from newsfabric.backoff import Backoff
from newsfabric.errors import LinkBusy, LinkClosed, LinkError, PublishNacked

# Return when a message may be sent; its exceptions are raised by the sending functions.
MaySend = Callable[[], Awaitable[None]]


@dataclasses.dataclass(slots=True)
class PendingPublish:
    """A publish that the broker must confirm; ``confirm`` is set while it is under way.

    ``plain`` is the same message with only the body taken from the publisher; retries send it. From
    ``until`` (monotonic) on the message isn't sent any more: then it is ``expired``. ``failed``:
    the message was sent, and the broker hasn't accepted it.
    """

    exchange: str
    message: Message
    plain: Message | None = None
    confirm: Awaitable[None] | None = None
    until: float = math.inf
    expired: bool = False
    failed: bool = False

    def fall_back(self) -> None:
        """Send ``plain`` from now on, if there is one."""
        self.message = self.plain or self.message


async def always() -> None:
    """Return at once: messages may be sent at any time."""


async def send(
    publisher: ConfirmingPublisher,
    pending: PendingPublish,
    now: Callable[[], float] = time.monotonic,
    may_send: MaySend = always,
) -> None:
    """Send ``pending``, as soon as the link is up and has room for it, or mark it as expired."""
    await may_send()
    while not sent_at_once(publisher, pending, now):
        await publisher.ready()
        await may_send()


def sent_at_once(
    publisher: ConfirmingPublisher,
    pending: PendingPublish,
    now: Callable[[], float] = time.monotonic,
) -> bool:
    """Send ``pending``, or mark it as expired. Return False if the link is down or has no room."""
    if pending.until <= now():
        pending.expired = True
        return True
    try:
        pending.confirm = publisher.publish_nowait(pending.exchange, pending.message)
    except (LinkBusy, LinkClosed):
        return False
    return True


async def confirmed(
    publisher: ConfirmingPublisher,
    publishes: Sequence[PendingPublish],
    retries: Counter,
    now: Callable[[], float] = time.monotonic,
    may_send: MaySend = always,
    fatal: tuple[type[LinkError], ...] = (),
    refused: Counter | None = None,
) -> None:
    """Return when the broker has confirmed all of ``publishes``, except those that have expired.

    Each has been sent once. An error in ``fatal`` is raised; after any other error the message is
    sent again. But where refusals are counted in ``refused``, PublishNacked counts as sent:
    RabbitMQ nacks a message that one queue refuses, and puts it into all others.
    """
    backoff = Backoff(base=0.05, cap=2.0)
    while failed := await _failed(publishes, fatal, refused):
        retries.inc(len(failed))
        await asyncio.sleep(backoff.failed(time.monotonic()))
        for pending in failed:
            pending.fall_back()
            await send(publisher, pending, now, may_send)
        publishes = failed


async def _failed(
    publishes: Sequence[PendingPublish],
    fatal: tuple[type[LinkError], ...],
    refused: Counter | None,
) -> list[PendingPublish]:
    failed = []
    for pending in publishes:
        if pending.expired:
            continue
        assert pending.confirm is not None
        try:
            await pending.confirm
            pending.failed = False
        except fatal:
            raise
        except LinkError as exc:
            if refused is not None and isinstance(exc, PublishNacked):
                refused.inc()
                pending.failed = False
                continue
            pending.failed = True
            failed.append(pending)
    return failed
