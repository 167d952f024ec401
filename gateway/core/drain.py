"""The sending of readers to other boxes, a few at a time: in a drain, or without a feed.

All at once, they would connect to the other boxes in the same second.

A box that has had no feed for ``feed_timeout_seconds`` reads ``endpoints.json`` of its own region
and of the others, as a reader does. If another gateway is listed, its readers are better served
there. docs/design/0018 has the reasons.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from newsfabric.backoff import Backoff
from newsfabric.closing import DRAIN
from newsfabric.errors import Disconnected
from newsfabric.reader import fetch_endpoints

if TYPE_CHECKING:
    from gateway.core.core import Core

logger = logging.getLogger(__name__)

_STEP: Final = 0.05
# Upper bound of a reader's delay before it reconnects: full jitter around the reason's own time.
_AGAIN_MS: Final = 2 * DRAIN.retry_after_ms
# Seconds beyond the linger time in which lingering connections are cut off.
_GRACE: Final = 0.2
_LOOK_SECONDS: Final = 1.0
# Seconds for which a frontdesk's answer is used; then other gateways may be ready.
_ASK_AGAIN: Final = 5.0
# URLs that are read at most: more regions than a fabric has.
_MOST_ASKED: Final = 16


@dataclasses.dataclass(frozen=True, slots=True)
class DrainSchedule:
    """A schedule: ``readers`` evenly over ``seconds``, or longer if that exceeds ``per_second``."""

    readers: int
    seconds: float
    per_second: int

    @property
    def duration(self) -> float:
        """The length of the schedule, in seconds."""
        return max(self.seconds, self.readers / self.per_second)

    def due(self, elapsed: float) -> int:
        """Return how many readers should have been notified ``elapsed`` seconds after the start."""
        if self.readers == 0 or elapsed >= self.duration:
            return self.readers
        return min(self.readers, math.floor(self.readers * max(0.0, elapsed) / self.duration))

    def batches(self, clock: Callable[[], float]) -> Iterator[int]:
        """Yield how many readers to send away now, until all are; the first step is the start."""
        started, yielded = clock(), 0
        while yielded < self.readers:
            due = self.due(clock() - started)
            yield due - yielded
            yielded = due


async def drain(core: Core) -> None:
    """Admit no new reader, send all others away, and wait until they are gone.

    A reader that doesn't hang up is cut off after the linger time.
    """
    core.admission.draining = True
    await asyncio.gather(_drain_here(core), core.engine.drain())


async def _drain_here(core: Core) -> None:
    readers, settings = core.readers, core.settings
    pace = DrainSchedule(len(readers.open), settings.drain_seconds, settings.drain_per_second)
    logger.info("draining %d readers in %.1f s", pace.readers, pace.duration if pace.readers else 0)
    for count in pace.batches(core.clock):
        readers.send_away(count, DRAIN, _AGAIN_MS)
        await asyncio.sleep(_STEP)
    # Readers whose handshakes were under way when the drain began.
    readers.send_away(len(readers.open), DRAIN, _AGAIN_MS)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(readers.all_left(), settings.linger + _GRACE)
    logger.info("drained; %d connections were left", len(readers.closing))


async def rebalance(core: Core, own: str) -> None:
    """Send readers away whenever they are better served elsewhere. Never return.

    ``own``: the WebSocket URL by which this gateway is listed in ``endpoints.json``."""
    backoff, has_logged = Backoff(base=1.0, cap=10.0), False
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        if not core.has_no_feed:
            has_logged = False
            continue
        await core.refresh_metrics()
        if not core.reader_count:
            continue
        if await _others_are_ready(core, own):
            backoff.succeeded(core.clock())
            await _leave(core, own)
        elif core.has_no_feed:
            if not has_logged:
                logger.warning("no feed here nor elsewhere: %d readers stay", core.reader_count)
            has_logged = True
            await asyncio.sleep(backoff.failed(core.clock()))


async def _leave(core: Core, own: str) -> None:
    """Send all current readers away, until the feed is back or no other gateway is ready."""
    settings = core.settings
    pace = DrainSchedule(core.reader_count, settings.drain_seconds, settings.drain_per_second)
    logger.warning("no feed: %d readers are sent to other boxes", pace.readers)
    asked = core.clock()
    for count in pace.batches(core.clock):
        if not core.has_no_feed:
            return
        if core.clock() - asked > _ASK_AGAIN:
            if not await _others_are_ready(core, own):
                return
            asked = core.clock()
        if count:
            core.send_away(count)
        await asyncio.sleep(_STEP)


async def _others_are_ready(core: Core, own: str) -> bool:
    """Return whether a reader that asks would be sent to another gateway than this one."""
    to_ask = list(core.settings.endpoints)
    for url in to_ask:
        try:
            endpoints = await fetch_endpoints(url)
        except Disconnected as exc:
            logger.debug("no endpoints: %s", exc)
            continue
        if any(gateway.websocket_url != own for gateway in endpoints.gateways):
            return True
        to_ask += [url for url in endpoints.alternates if url not in to_ask]
        del to_ask[_MOST_ASKED:]
    return False
