"""Keeps the clock that dates a router's logs and messages (:mod:`wholesale.router.log_clock`).

The wall clock is compared with the store's at the start and every five seconds. While the store
doesn't answer, nothing changes: without the store nothing is routed either.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import Final

from newsfabric.backoff import Backoff
from newsfabric.errors import StoreError
from newsfabric.line_limits import LineLimit
from newsfabric.store import Store
from wholesale.router import counters
from wholesale.router.log_clock import APART_MS, LogClock

logger = logging.getLogger(__name__)

# Seconds between two comparisons.
COMPARE: Final = 5.0
# Rows of the directory that are further ahead than this don't count when a log begins. Smaller
# differences do: the clocks of a whole region may be wrong by hours. This router's own times may be
# further ahead (AHEAD_MS in newsfabric/store/_cassandra_rows.py), since its clock may be set back.
_BELIEVED_MS: Final = 86_400_000
# Seconds for one answer of the store. Reading the directory takes one answer for each day.
_PATIENCE: Final = 5.0


class ClockWatch:
    """The watched clock of one router.

    ``wall_ms`` is the machine's clock, ``now`` a clock that continues while the machine sleeps.
    """

    def __init__(
        self, store: Store, *, wall_ms: Callable[[], int], now: Callable[[], float]
    ) -> None:
        #: Set while the wall clock is right; :attr:`wrong` is set while it is wrong or not yet
        #: compared.
        self.right, self.wrong = asyncio.Event(), asyncio.Event()
        self._store = store
        self._wall_ms = wall_ms
        self._now = now
        self._clock = LogClock()
        self._failing = LineLimit()
        # True after the log line about a wrong clock.
        self._error_logged = False
        self._set_events()

    @property
    def is_right(self) -> bool:
        """True while new messages may be routed."""
        return self._clock.is_right

    def now_ms(self) -> int:
        """Return the time for messages routed now, in ms since the epoch. It never goes back."""
        now_ms = self._clock.now_ms(self._wall_ms(), self._now())
        if not self._clock.is_right and self.right.is_set():
            logger.warning("the clock has jumped: nothing new is routed until it is compared")
            self._set_events()
        return now_ms

    async def begin(self) -> None:
        """Return when the clock has been right, and is later than every time in the directory.

        A time of more than a day ahead is ignored: its row is damaged, or a clock is badly wrong.
        Times never go back, so one such row would move the times of all routers for good.
        """
        backoff = Backoff(base=0.1, cap=5.0)
        while True:
            try:
                await self.compare()
                await self.right.wait()
                await self._read_directory()
            except Exception as exc:
                self._log_failure(exc)
                await asyncio.sleep(backoff.failed(time.monotonic()))
                continue
            return

    async def run(self) -> None:
        """Compare the clocks again and again, until cancelled."""
        while True:
            await asyncio.sleep(COMPARE * random.uniform(0.8, 1.2))  # noqa: S311 - spread, not secret
            try:
                await self.compare()
            except Exception as exc:
                self._log_failure(exc)

    async def compare(self) -> None:
        """Compare the clocks once. Raise StoreError or TimeoutError if the store doesn't answer."""
        async with asyncio.timeout(_PATIENCE):
            store_ms = await self._store.clocks_ms()
        clock = self._clock
        clock.compare(self._wall_ms(), self._now(), store_ms)
        ahead = None if clock.ahead_ms is None else clock.ahead_ms / 1000
        if ahead is not None:
            counters.CLOCK_AHEAD.set(ahead)
        self._set_events()
        if ahead is not None and not clock.is_right and not self._error_logged:
            self._error_logged = True
            logger.error(
                "this machine's clock and the store's are %.0f s apart, more than %d: nothing new"
                " is routed. See that both are synchronised (timedatectl, chronyc tracking)",
                abs(ahead), APART_MS // 1000,
            )  # fmt: skip
        elif clock.is_right and self._error_logged:
            self._error_logged = False
            logger.info("this machine's clock agrees with the store's again")

    async def _read_directory(self) -> None:
        async with asyncio.timeout(_PATIENCE):
            days = await self._store.log_days()
        latest_ms = self._wall_ms() + _BELIEVED_MS
        unbelieved = []
        for region, day in days:
            async with asyncio.timeout(_PATIENCE):
                rows = await self._store.directory(region, day)
            for row in rows:
                if row.stated_ms <= latest_ms:
                    self._clock.at_least(row.stated_ms)
                else:
                    unbelieved.append(row.log)
        if unbelieved:
            first = unbelieved[0]
            logger.error(
                "the directory's row of log %d of %.80s in %.80s states a time that is more than a"
                " day ahead: it isn't believed (and %d more)", first.epoch, first.router,
                first.region, len(unbelieved) - 1,
            )  # fmt: skip

    def _log_failure(self, exc: Exception) -> None:
        """Log a failure of the store, rate-limited; routing continues, and a later try may help."""
        suppressed = self._failing.may_log(self._now())
        if suppressed is not None:
            ours = None if isinstance(exc, (StoreError, TimeoutError)) else exc
            why = str(exc) or "no answer"
            text = "can't read the store's clock: %s (and %d more)"
            logger.warning(text, why, suppressed, exc_info=ours)

    def _set_events(self) -> None:
        is_right = self._clock.is_right
        (self.right if is_right else self.wrong).set()
        (self.wrong if is_right else self.right).clear()
