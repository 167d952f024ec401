"""Closes the logs of routers that are gone, in this router's region (:mod:`.closing`)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

from newsfabric.errors import StoreError
from newsfabric.line_limits import LineLimit
from newsfabric.store import Store
from newsfabric.store.logs import DAY_MS, DirectoryRow, Log, Number
from wholesale.router import counters
from wholesale.router.closing import EndSearch, LogWatch

logger = logging.getLogger(__name__)

# Seconds between two reads of the directory.
LOOK: Final = 5.0
# Seconds for finding the end of one log.
_PATIENCE: Final = 60.0
# Upper bound, in seconds, of the random delay that keeps routers of a region apart.
_APART: Final = 15.0
_DONE_SECONDS: Final = 300.0
# Messages are read with their bodies: 16 MiB, if all have the largest size.
_PAGE: Final = 256


class Closer:
    """Watches the directory of ``region``. ``own`` returns this router's current log."""

    def __init__(
        self,
        store: Store,
        *,
        region: str,
        own: Callable[[], Log],
        now_ms: Callable[[], int],
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._region = region
        self._own = own
        self._now_ms = now_ms
        self._now = now
        self._watch = LogWatch(region)
        # If all routers of a region closed a log in the same second, they would hinder each other.
        self._watch.close_after += random.uniform(0.0, _APART)  # noqa: S311 - spread, not secret
        # Day → its logs that have ended: they needn't be read again.
        self._ended: dict[int, set[Log]] = {}
        # Days whose logs have all ended → the time until which they needn't be read again.
        self._done: dict[int, float] = {}
        self._failing = LineLimit()

    async def run(self) -> None:
        """Check and close, until cancelled. If the store is away, the next check tries again."""
        while True:
            await asyncio.sleep(LOOK * random.uniform(0.8, 1.2))  # noqa: S311 - spread, not secret
            await self._try("look at the directory", self.close_due())

    async def _try(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """Await ``work``; log its failure, rate-limited, since the next check may succeed."""
        try:
            await work
        except Exception as exc:
            suppressed = self._failing.may_log(self._now())
            if suppressed is not None:
                ours = None if isinstance(exc, (StoreError, TimeoutError)) else exc
                why = str(exc) or "no answer"
                text = "can't %s now: %s (and %d more)"
                logger.warning(text, what, why, suppressed, exc_info=ours)

    async def close_due(self) -> None:
        """Close the logs that may be closed now. StoreError if the directory can't be read."""
        now = self._now()
        for region, day in await self._store.log_days(at_home=True):
            if region != self._region or self._done.get(day, 0.0) > now:
                continue
            ended = self._ended.setdefault(day, set())
            rows = await self._store.directory(region, day, but=ended, at_home=True)
            ended.update(row.log for row in rows if row.ended is not None)
            for row in rows:
                if row.log != self._own() and self._watch.may_close(row, self._now()):
                    await self._try(f"close the log of {row.log.router}", self._close(row))
            if all(row.ended is not None for row in rows) and self._is_past(day):
                # A router whose clock is wrong may still begin a log on that day.
                self._done[day] = now + _DONE_SECONDS
                del self._ended[day]

    def _is_past(self, day: int) -> bool:
        return day < self._now_ms() // DAY_MS - 1

    async def _close(self, row: DirectoryRow) -> None:
        search = EndSearch(row)
        # One log that has too much to read must not delay the others.
        async with asyncio.timeout(_PATIENCE):
            while not search.found(await self._numbers(row.log, *search.next)):
                pass
        ending = search.ending
        if not await self._store.change_log(ending):
            # The row has moved, or another router was first.
            return
        counters.LOGS_CLOSED.inc()
        voids = sum(last - first + 1 for first, last in ending.voids)
        logger.info(
            "closed the log of %s, epoch %d, whose row stood still for %.0f s: it ends with %s,"
            " and %d of its numbers are void",
            row.log.router, row.log.epoch, self._watch.close_after, ending.ended, voids,
        )  # fmt: skip

    async def _numbers(self, log: Log, first: int, last: int) -> list[Number]:
        found: list[Number] = []
        while first <= last:
            page = await self._store.numbers(log, first=first, last=last, limit=_PAGE, at_home=True)
            found += (Number(number.seq, number.state) for number in page)
            if len(page) < _PAGE:
                break
            first = page[-1].seq + 1
        return found
