"""Keeps a router's log in the directory, and begins a new log if other routers have closed it.

No number is given out before the log is listed, and no message is published without a lease
(:mod:`wholesale.router.numbering`): :meth:`Listing.lease` waits for both. While no row can be
written, the router pauses after 15 s at the latest, and isn't ready. Afterwards it continues with
its log, unless other routers, which could write, have closed it.
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
from newsfabric.store import Store
from newsfabric.store.logs import DirectoryRow, Log, next_version
from wholesale.router import counters
from wholesale.router.clock_watch import ClockWatch
from wholesale.router.stream import Stream

logger = logging.getLogger(__name__)

# Seconds between two writes of the row: while its log grows, and at the most.
BEAT: Final = 1.0
REST: Final = 5.0
# Longer than the time-out of the driver for a transaction, with the steps before it.
_PATIENCE: Final = 5.0
# Seconds for the last write of a router that stops.
_END_SECONDS: Final = 2.0


def awake_clock() -> float:
    """Return seconds of a clock that continues while the machine sleeps; it measures leases."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class LogClosed(Exception):
    """The log was closed by another router, which has taken over its unsettled messages."""


class Listing:
    """The logs of one router, one after the other: :attr:`stream` is the current one.

    ``clock`` dates their beginnings, ``now`` is the clock of leases, in seconds.
    """

    def __init__(
        self,
        store: Store,
        first_log: Log,
        *,
        clock: ClockWatch,
        now: Callable[[], float] = awake_clock,
    ) -> None:
        self._store = store
        self._clock = clock
        self._now = now
        self._renewed = asyncio.Event()
        self._version = 1
        self._written_low = 0
        self.stream = Stream(first_log)
        # True after the log line that there is no lease.
        self._lapse_logged = False

    @property
    def has_lease(self) -> bool:
        """True while messages may be routed."""
        return self.stream.numbering.has_lease(self._now())

    async def run(self) -> None:
        """List the log, renew its row, and begin the next log if it is closed; until cancelled."""
        while True:
            await self._list()
            await self._keep()
            log = self.stream.log
            counters.OWN_LOGS_CLOSED.inc()
            logger.warning(
                "our log of epoch %d was closed by another router, or its row is lost: we had been"
                " away for too long, and begin a new log", log.epoch,
            )  # fmt: skip
            self.stream = Stream(log._replace(epoch=log.epoch + 1))

    async def lease(self, stream: Stream) -> None:
        """Return when ``stream`` may be published. Raise LogClosed if it never will be."""
        while not stream.numbering.has_lease(self._now()):
            if stream.numbering.is_closed or stream is not self.stream:
                raise LogClosed
            self._renewed.clear()
            await self._renewed.wait()

    async def wait_may_number(self, stream: Stream) -> None:
        """Return when ``stream`` may be numbered: as :meth:`lease`, and the clock is right."""
        while True:
            await self._clock.right.wait()
            await self.lease(stream)
            if self._clock.is_right:
                return

    async def end(self) -> None:
        """Write the log's end if all its numbers are settled; :meth:`run` must have ended.

        Otherwise another router closes the log in a minute.
        """
        log, numbering = self.stream.log, self.stream.numbering
        if not numbering.is_listed or numbering.low < numbering.last:
            return
        version = next_version(self._version, self._clock.now_ms())
        row = DirectoryRow(log, version, numbering.low, ended=numbering.last)
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._store.change_log(row)
        except (StoreError, TimeoutError) as exc:
            logger.info("the end of our log isn't in the directory, so others close it: %s", exc)

    async def _list(self) -> None:
        await self._clock.begin()
        log = self.stream.log
        self.stream = Stream(log._replace(epoch=max(log.epoch, self._clock.now_ms())))
        backoff = Backoff(base=0.1, cap=5.0)
        while True:
            stream, asked_at = self.stream, self._now()
            try:
                async with asyncio.timeout(_PATIENCE):
                    listed = await self._store.list_log(stream.log)
            except (StoreError, TimeoutError) as exc:
                await self._rest(exc, backoff)
                continue
            if listed:
                self._version, self._written_low = 1, 0
                self._renew(stream, asked_at)
                return
            # Another router of this name began in the same ms. Or this router did, the reply was
            # lost, and the log has been closed since.
            self.stream = Stream(stream.log._replace(epoch=stream.log.epoch + 1))

    async def _keep(self) -> None:
        """Write this router's row again and again; return when the write is refused."""
        backoff = Backoff(base=0.2, cap=2.0)
        written_at = self._now()
        while True:
            await asyncio.sleep(BEAT * random.uniform(0.8, 1.2))  # noqa: S311 - spread, not secret
            counters.LOW.set(self.stream.numbering.low)
            while self._is_due(written_at):
                asked_at = self._now()
                try:
                    async with asyncio.timeout(_PATIENCE):
                        stands = await self._write()
                except (StoreError, TimeoutError) as exc:
                    await self._rest(exc, backoff)
                    continue
                if not stands:
                    self.stream.numbering.is_closed = True
                    self._renewed.set()
                    return
                backoff.succeeded(time.monotonic())
                written_at = asked_at
                self._renew(self.stream, asked_at)
                break

    def _is_due(self, written_at: float) -> bool:
        stream = self.stream
        moved = bool(stream.to_void) or stream.numbering.low != self._written_low
        return moved or self._now() >= written_at + REST - BEAT

    async def _write(self) -> bool:
        """Return whether the write of this router's row, with its present low, was accepted."""
        stream = self.stream
        if stream.to_void:
            numbers = sorted(stream.to_void)
            await self._store.void(stream.log, numbers)
            counters.VOID.inc(len(numbers))
            for number in numbers:
                stream.numbering.settle(number)
            stream.to_void.difference_update(numbers)
        self._version = next_version(self._version, self._clock.now_ms())
        low = stream.numbering.low
        stands = await self._store.change_log(DirectoryRow(stream.log, self._version, low))
        self._written_low = low
        return stands

    async def _rest(self, exc: Exception, backoff: Backoff) -> None:
        counters.LISTING_RETRIES.inc()
        if not self._lapse_logged and not self.has_lease:
            why = str(exc) or "no answer"
            logger.warning("can't write the directory, so nothing is routed: %s", why)
            self._lapse_logged = True
        await asyncio.sleep(backoff.failed(time.monotonic()))

    def _renew(self, stream: Stream, asked_at: float) -> None:
        if self._lapse_logged:
            logger.info("the directory can be written again")
        self._lapse_logged = False
        stream.numbering.renewed(asked_at)
        self._renewed.set()
