"""Publishes until the broker has confirmed each message, whatever happens to the link.

The same message goes out again, so it may arrive twice: gateways drop the second by its identity.
Messages leave in order; only what has to be sent again comes late, and nothing after its time.
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

# Waits until something may be sent; what it raises, sending raises.
MaySend = Callable[[], Awaitable[None]]


@dataclasses.dataclass(slots=True)
class PendingPublish:
    """One publish that the broker must confirm; ``confirm`` is set while it is on its way.

    ``plain`` says the same without anything of the publisher's making but the body; it is what is
    sent after the first failed. From ``until`` (monotonic) on it isn't sent any more: then it is
    ``expired``. ``failed``: it was sent, and the broker hasn't taken it.
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
    """For what may be sent at any time."""


async def send(
    publisher: ConfirmingPublisher,
    pending: PendingPublish,
    now: Callable[[], float] = time.monotonic,
    may_send: MaySend = always,
) -> None:
    """Put ``pending`` on the wire, as soon as the link is up and has room for it, or expire it."""
    await may_send()
    while not sent_at_once(publisher, pending, now):
        await publisher.ready()
        await may_send()


def sent_at_once(
    publisher: ConfirmingPublisher,
    pending: PendingPublish,
    now: Callable[[], float] = time.monotonic,
) -> bool:
    """Put ``pending`` on the wire, or expire it; False if the link is down or has no room."""
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
    """Return when the broker has confirmed all of ``publishes``, but for those that have expired.

    They have been sent once. An error that is ``fatal`` is raised; others mean "send it again". But
    where refusals are counted in ``refused``, PublishNacked means "sent": RabbitMQ says so when one
    queue refuses a message, and puts it into all others.
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
