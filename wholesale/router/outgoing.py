"""Sends letters until the broker has confirmed each, whatever happens to the link.

The same message goes out again, so a letter may arrive twice: the gateways drop the second by its
identity. Letters leave in order; only what has to be sent again comes late, and nothing after its
time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from prometheus_client import Counter

from newsfabric.amqp import Publisher
from newsfabric.backoff import Backoff
from newsfabric.errors import LinkBusy, LinkClosed, LinkError
from wholesale.router.jobs import Letter

# Waits until something may be sent; what it raises, sending raises.
MaySend = Callable[[], Awaitable[None]]


async def always() -> None:
    """For what may be sent at any time."""


async def send(
    publisher: Publisher,
    letter: Letter,
    now: Callable[[], float] = time.monotonic,
    may_send: MaySend = always,
) -> None:
    """Put ``letter`` on the wire, as soon as the link is up and has room for it, or expire it."""
    await may_send()
    while not sent_at_once(publisher, letter, now):
        await publisher.ready()
        await may_send()


def sent_at_once(
    publisher: Publisher, letter: Letter, now: Callable[[], float] = time.monotonic
) -> bool:
    """Put ``letter`` on the wire, or expire it; False if the link is down or has no room."""
    if letter.until <= now():
        letter.expired = True
        return True
    try:
        letter.confirm = publisher.publish_nowait(letter.exchange, letter.message)
    except (LinkBusy, LinkClosed):
        return False
    return True


async def confirmed(
    publisher: Publisher,
    letters: Sequence[Letter],
    retries: Counter,
    now: Callable[[], float] = time.monotonic,
    may_send: MaySend = always,
) -> None:
    """Return when the broker has confirmed all of ``letters``, but for those that have expired.

    They have been sent once.
    """
    backoff = Backoff(base=0.05, cap=2.0)
    while failed := await _failed(letters):
        retries.inc(len(failed))
        await asyncio.sleep(backoff.failed(time.monotonic()))
        for letter in failed:
            letter.fall_back()
            await send(publisher, letter, now, may_send)
        letters = failed


async def _failed(letters: Sequence[Letter]) -> list[Letter]:
    failed = []
    for letter in letters:
        if letter.expired:
            continue
        assert letter.confirm is not None
        try:
            await letter.confirm
        except LinkError:
            failed.append(letter)
    return failed
