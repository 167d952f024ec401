"""Repairs what :mod:`gateway.repair` finds missing: reads the journal, publishes what it has.

One read at a time, whatever is missing, in pages; the next page is read when the one before
has reached its readers. Of a sweep a few pages follow what is urgent. A journal that can't be
read, or answers with what no router wrote, is tried again after a growing while, and what is
missing stays missing until then.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from typing import TYPE_CHECKING, Final

import orjson

from gateway import measures
from gateway.gaps import Closed, Ending
from gateway.repair import LOOK_SECONDS, Plan, Repair
from gateway.sweep import Phase, Span, Sweep
from newsfabric.backoff import Backoff
from newsfabric.envelope import Envelope, ms_of_id
from newsfabric.errors import StoreError
from newsfabric.races import JOURNAL
from newsfabric.sightings import Sighting
from newsfabric.store.rules import clock_ms

if TYPE_CHECKING:
    from gateway.core import Core

logger = logging.getLogger(__name__)

_PAGE: Final = 500
# No router routes so many in one millisecond.
_LONGEST_PAGE: Final = 1 << 16
# In ten minutes at 5,000 a second there are three million.
_MOST_ROWS: Final = 4_000_000
# Of a sweep, in one go: so many are looked at, or given to readers. There are ten a second at most.
_LOOKED_AT: Final = 2_000
_PUBLISHED: Final = 100
# Holes closed sooner are no news.
_NEWS_SECONDS: Final = 5.0
_LINES_AT_ONCE: Final = 10


class Mender:
    """Keeps one gateway's streams whole, from :meth:`begin` on."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._repair = Repair(core.hub.streams, core.settings.repair)
        self._ready = asyncio.Event()
        # Set when a stream has got a hole.
        self._holed = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._backoff = _backoff()
        self._failed = False
        self._not_before = 0.0
        # How far the read under way has come.
        self._reached_ms = 0

    @property
    def ready(self) -> bool:
        """Whether everything that was missed while we didn't listen has been published."""
        return self._repair.ready

    @property
    def tells_all(self) -> bool:
        """Whether whoever goes on from our marks misses nothing."""
        return self._repair.tells_all(self._core.clock())

    @property
    def open_gaps(self) -> int:
        """How many holes are open now."""
        return self._repair.open_gaps

    def begin(self, at_ms: int | None = None) -> None:
        """Catch up on what was routed lately, or since ``at_ms`` if others followed until then."""
        if at_ms is None:
            self._repair.begin(clock_ms())
        else:
            self._repair.go_on(at_ms, clock_ms())
        self._core.spawn(self._watch())

    async def caught_up(self, patience: float) -> None:
        """Return when we are :attr:`ready`, or after ``patience`` seconds."""
        try:
            async with asyncio.timeout(patience):
                await self._ready.wait()
        except TimeoutError:
            logger.warning("the journal isn't read yet: not ready until it is")

    def heard(self, origin: str, router: str, epoch: int) -> None:
        """The feed has brought something of a stream."""
        self._repair.heard(origin, router, epoch, self._core.clock())

    def look_for_holes(self) -> None:
        """Look at once if a stream has a hole; cheap, for each delivery of the feed."""
        if not self._holed.is_set() and any(self._core.hub.streams.holed()):
            self._holed.set()

    async def _watch(self) -> None:
        core, repair = self._core, self._repair
        while True:
            now = core.clock()
            self._tell(repair.look(now, clock_ms(), core.fed_at))
            if self._reading is None and now >= self._not_before:
                plan = repair.plan(now, clock_ms())
                if plan is not None:
                    self._reading = core.spawn(self._read(plan))
            await self._rest(repair.rest(core.clock()))

    async def _rest(self, seconds: float) -> None:
        # While something is missing each delivery would wake us.
        if seconds <= LOOK_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
            return
        self._holed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._holed.wait()

    async def _read(self, plan: Plan) -> None:
        problem: Exception | None = None
        complete = False
        found = self._reached_ms = 0
        try:
            for span in plan.spans:
                found += await self._read_span(span)
            complete = True
            if plan.sweep is not None:
                found += await self._sweep(plan.sweep)
        except (StoreError, TimeoutError) as exc:
            problem = StoreError(str(exc) or "the store doesn't answer")
        except Exception as exc:
            # Whatever a store does wrong, the next try may go well, and readers stay served.
            problem = exc
        finally:
            self._reading = None
        now = self._core.clock()
        self._note(problem, now)
        reached_ms = self._reached_ms
        self._tell(self._repair.finished(plan, now, complete=complete, reached_ms=reached_ms))
        if plan.sweep is not None and plan.sweep.done:
            from_ms, to_ms = plan.sweep.span
            logger.info(
                "a silence of %d s of a region is swept to the end", (to_ms - from_ms) // 1000
            )
        if complete and plan.catch_up is not None:
            self._core.hub.streams.caught_up(plan.catch_up.from_ms)
            logger.info("caught up: %d messages from the journal", found)
        if self.ready:
            self._ready.set()

    def _note(self, problem: Exception | None, now: float) -> None:
        if problem is None:
            if self._failed:
                logger.info("the journal can be read again")
            self._failed = False
            self._backoff.succeeded(now)
            return
        measures.JOURNAL_FAILURES.inc()
        if self._reached_ms:
            # Some of it could be read: the rest needn't wait for long.
            self._backoff = _backoff()
        delay = self._backoff.failed(now)
        self._not_before = now + delay
        if not self._failed:
            ours = None if isinstance(problem, StoreError) else problem
            logger.warning("the journal can't be read, trying again: %r", problem, exc_info=ours)
        self._failed = True

    async def _read_span(self, span: Span) -> int:
        """Publish what is missing and was routed in ``span``; returns how many."""
        at, read, found = max(0, span.from_ms), 0, 0
        while at < span.to_ms:
            page, at = await self._page(at, span.to_ms, _PAGE)
            found += await self._publish(page)
            self._reached_ms = at
            read += len(page)
            if read > _MOST_ROWS:
                raise StoreError("the journal has no end")
        return found

    async def _sweep(self, sweep: Sweep) -> int:
        """Go on with ``sweep``, but not for long; returns how many were published."""
        core = self._core
        looked_at = found = 0
        while looked_at < _LOOKED_AT and found < _PUBLISHED and sweep.due <= core.clock():
            from_ms, to_ms = sweep.part()
            publishing = sweep.phase is Phase.PUBLISH
            page, at = await self._page(from_ms, to_ms, _PUBLISHED if publishing else _PAGE)
            if publishing:
                found += await self._publish(page, sweep)
            else:
                self._repair.note(sweep, page, core.clock())
            sweep.reached(at, core.clock())
            looked_at += max(1, len(page))
        return found

    async def _page(self, from_ms: int, to_ms: int, limit: int) -> tuple[list[Envelope], int]:
        """The first ``limit`` rows from ``from_ms`` on, about; and until when these are all."""
        core = self._core
        while True:
            async with asyncio.timeout(core.settings.store_timeout):
                page = await core.store.journal(from_ms=from_ms, to_ms=to_ms, limit=limit)
            measures.JOURNAL_ROWS.inc(len(page))
            if len(page) < limit:
                return page, to_ms
            last = ms_of_id(page[-1].id)
            if last > from_ms:
                # The last millisecond may not be whole, and comes again.
                return [one for one in page if ms_of_id(one.id) < last], last
            # A page of one millisecond alone: only a longer one gets beyond it.
            limit *= 2
            if last < from_ms or limit > _LONGEST_PAGE:
                raise StoreError("the journal has no end")

    async def _publish(self, page: list[Envelope], sweep: Sweep | None = None) -> int:
        """Publish what is missing of ``page``, or of that what ``sweep`` has found to be."""
        core = self._core
        left, all_done = 1, asyncio.Event()

        def one_done() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                all_done.set()

        def given(envelope: Envelope, sighting: Sighting) -> None:
            core.trace(envelope, sighting)
            one_done()

        count = 0
        # Within a millisecond ids are in no order, and the first number of a stream is its start.
        for envelope in sorted(page, key=_in_stream_order):
            if not self._repair.wants(envelope, core.clock(), sweep=sweep):
                continue
            try:
                # As on the feed: one bad body would break every reader's parser.
                orjson.loads(envelope.body)
            except ValueError:
                measures.UNDECODABLE.inc()
                continue
            if sweep is not None and envelope.identity in sweep.copies:
                core.hub.gave(envelope.identity, time.time())
            publication = core.hub.offer(envelope, time.time())
            if publication is not None:
                left += 1
                count += 1
                measures.RECOVERED.inc()
                sighting = core.races.came(envelope, JOURNAL, clock_ms())
                done = functools.partial(given, envelope, sighting)
                core.publish(publication, done)
        one_done()
        await all_done.wait()
        return count

    def _tell(self, closed: list[Closed]) -> None:
        for hole in closed:
            ending = hole.ending.value
            measures.REPAIRS.labels(ending).inc()
            measures.REPAIR.labels(ending).observe(hole.seconds)
            if hole.ending is not Ending.FILLED:
                measures.ABANDONED_NUMBERS.labels(ending).inc(hole.numbers)
        news = [h for h in closed if h.numbers or h.seconds > _NEWS_SECONDS]
        for hole in news[:_LINES_AT_ONCE]:
            logger.info(
                "hole %d-%d of %.80s (%d) is closed after %.1f s: %s, %d numbers came to nothing",
                hole.first, hole.last, *hole.stream, hole.seconds, hole.ending.value, hole.numbers,
            )  # fmt: skip
        if len(news) > _LINES_AT_ONCE:
            logger.info("%d more holes are closed", len(news) - _LINES_AT_ONCE)


def _in_stream_order(envelope: Envelope) -> tuple[int, str, int, int]:
    return ms_of_id(envelope.id), envelope.router, envelope.epoch, envelope.seq


def _backoff() -> Backoff:
    return Backoff(base=0.2, cap=5.0)
