"""Draining: readers are told to connect elsewhere, a few at a time.

All at once they would fall on the other boxes in the same second.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
from typing import TYPE_CHECKING, Final

from newsfabric.closing import DRAIN

if TYPE_CHECKING:
    from gateway.core import Core

logger = logging.getLogger(__name__)

_STEP: Final = 0.05
# When a reader shall try again: around the reason's own time, full jitter.
_AGAIN_MS: Final = 2 * DRAIN.retry_after_ms
# Connections are cut off after the linger time; this is for the cutting.
_GRACE: Final = 0.2


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """``readers`` spread evenly over ``seconds``, or over longer if that were too many a second."""

    readers: int
    seconds: float
    per_second: int

    @property
    def duration(self) -> float:
        """How long it takes, in seconds."""
        return max(self.seconds, self.readers / self.per_second)

    def due(self, elapsed: float) -> int:
        """How many should have been told ``elapsed`` seconds after the start."""
        if self.readers == 0 or elapsed >= self.duration:
            return self.readers
        return min(self.readers, math.floor(self.readers * max(0.0, elapsed) / self.duration))


async def drain(core: Core) -> None:
    """Let no new reader in, tell all others to go, wait until they are gone.

    A reader who doesn't hang up is cut off after the linger time.
    """
    core.admission.draining = True
    await asyncio.gather(_drain_here(core), core.engine.drain())


async def _drain_here(core: Core) -> None:
    readers, settings = core.readers, core.settings
    pace = Spread(len(readers.open), settings.drain_seconds, settings.drain_per_second)
    logger.info("draining %d readers in %.1f s", pace.readers, pace.duration if pace.readers else 0)
    started, told = core.clock(), 0
    while told < pace.readers:
        due = pace.due(core.clock() - started)
        readers.send_away(due - told, DRAIN, _AGAIN_MS)
        told = due
        await asyncio.sleep(_STEP)
    # Handshakes that were under way when the drain began.
    readers.send_away(len(readers.open), DRAIN, _AGAIN_MS)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(readers.all_left(), settings.linger + _GRACE)
    logger.info("drained; %d connections were left", len(readers.closing))
