"""The follower of every log: reads the directory and missing numbers, and publishes their messages.

:mod:`gateway.logs.reading` decides which numbers are read and when; :mod:`gateway.logs.known_log`
has the state of a log. The next page of a log is read when the messages of the page before have
reached their readers. Numbers that can't be read stay missing, and the read is retried with
backoff.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gateway.feed.broadcast import Broadcast
from gateway.logs.known_log import KnownLog
from gateway.logs.logs import LogsSnapshot
from gateway.logs.reading import LOOK_SECONDS, LogReadiness, Read, ReadSchedule
from gateway.logs.unlisted import Unlisted
from gateway.memory.hub import Hub
from gateway.past.late import LateCopies, clusters, is_ahead, is_late
from gateway.process import measures
from gateway.process.settings import GatewaySettings
from gateway.process.tasks import Spawn
from gateway.wire.position import log_of
from newsfabric.backoff import Backoff
from newsfabric.errors import StoreError
from newsfabric.line_limits import LineLimit
from newsfabric.messages.envelope import Envelope, ms_of_id
from newsfabric.store import Store
from newsfabric.store.logs import DAY_MS, DirectoryRow, Log, Number, NumberState
from newsfabric.store.rules import clock_ms
from newsfabric.store.sound import is_sound

logger = logging.getLogger(__name__)

# Logs that are read at the same time.
_READS: Final = 4
_PAGE: Final = 500
# A read of one log ends after so many rows, at the end of a span.
_MOST_ROWS: Final = 2_000
# Pauses between reads of the directory: when this gateway is ready, and before.
_DIRECTORY_SECONDS: Final = 5.0
_BEGINNING_SECONDS: Final = 0.5
# Topics of one page whose late messages are looked up at the same time.
_TOPICS: Final = 8


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class Follower:
    """The part that keeps one gateway's state of the logs complete, from :meth:`begin` on."""

    hub: Hub
    store: Store
    settings: GatewaySettings
    clock: Callable[[], float]
    spawn: Spawn
    broadcast: Broadcast

    def __post_init__(self) -> None:
        #: Set once the start of each log is known here. Before that no reader can be served.
        self.begun = asyncio.Event()
        #: Set once messages routed in our region reach our readers: :class:`.LogReadiness`.
        self.ready = asyncio.Event()
        region, self._logs = self.settings.region, self.hub.logs
        self._reading = ReadSchedule(self._logs, region)
        self._under_way = 0
        # Set when a number is found to be missing.
        self._missing_event = asyncio.Event()
        self._readiness = LogReadiness(self._logs, region)
        self._late = LateCopies(self.store, self._logs, self.settings, self.clock)
        #: Logs that the directory doesn't list, so they belong to no router.
        self.unlisted = Unlisted()
        self._disbelieved = 0
        self._failing = LineLimit()
        self._anomalies = LineLimit()

    def begin(self, left: LogsSnapshot | None = None) -> None:
        """Start, with the logs that a previous control plane left, if there was one."""
        if left is not None:
            self._logs.restore(left, now=self.clock())
            self.begun.set()
        self.spawn(self._follow_directory())
        self.spawn(self._follow_logs())

    async def wait_until_ready(self, seconds: float) -> None:
        """Return when :attr:`ready` is set, or after ``seconds`` seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self.ready.wait()
        except TimeoutError:
            logger.warning("not all logs of our region are heard yet: not ready until they are")

    def note_report(self, log: Log, seq: int, low: int, *, sent_ms: int) -> KnownLog:
        """Note a message of ``log`` from the feed, or a tick whose last number is ``seq``."""
        now = self.clock()
        self._late.note_feed(log.region, now)
        known = self._logs.note_report(log, seq, min(low, seq), sent_ms=sent_ms, now=now)
        if known.has_missing:
            self._missing_event.set()
        return known

    def note_tick(self, log: Log, seq: int, low: int, *, sent_ms: int) -> None:
        """Note a tick of ``log``: as :meth:`note_report`, and for readiness."""
        self.note_report(log, seq, low, sent_ms=sent_ms)
        self._readiness.note_tick(log, seq)

    async def _follow_directory(self) -> None:
        backoff = Backoff(base=0.2, cap=5.0)
        known_days: set[tuple[str, int]] = set()
        while True:
            pause = _DIRECTORY_SECONDS if self.ready.is_set() else _BEGINNING_SECONDS
            try:
                self._learn(await self._read_directory(known_days))
                backoff.succeeded(self.clock())
            except Exception as exc:
                # Any error of a store: the next try may succeed.
                self._log_failure("the directory of logs can't be read", exc)
                pause = max(pause, backoff.failed(self.clock()))
            # Gateways that started together should not read at the same moment for ever.
            await asyncio.sleep(random.uniform(0.5, 1.0) * pause)  # noqa: S311 - jitter

    async def _read_directory(self, known_days: set[tuple[str, int]]) -> list[DirectoryRow]:
        """Return the rows that may have changed: of today, of yesterday, and of days with
        unfinished logs. The first time, return the rows of all days."""
        store, seconds = self.store, self.settings.store_timeout
        certain_ms = self._logs.times.certain_ms(clock_ms(), self.clock())
        yesterday = certain_ms // DAY_MS - 1
        unfinished = self._logs.unfinished()
        wanted = {(known.log.region, known.log.day) for known in unfinished}
        ended = {known.log for known in self._logs if known.extent.ended is not None}
        rows: list[DirectoryRow] = []
        async with asyncio.timeout(seconds):
            days = await store.log_days()
        for region, day in days:
            if day >= yesterday or (region, day) in wanted or (region, day) not in known_days:
                async with asyncio.timeout(seconds):
                    rows += await store.directory(region, day, but=ended)
        known_days.update(days)
        return rows

    def _learn(self, rows: Sequence[DirectoryRow]) -> None:
        now = self.clock()
        if not self.begun.is_set():
            self._logs.begin(rows, now=now)
        for row in rows:
            self._logs.learn(row, now=now)
        if not self.ready.is_set():
            self._readiness.note_directory(rows, now)
        self._logs.directory_read(clock_ms(), now)
        self.begun.set()
        if self._logs.missing():
            self._missing_event.set()
        self._log_anomalies(now)

    def _log_anomalies(self, now: float) -> None:
        """Log a warning for logs that no directory lists, and for times that aren't believed."""
        for log in self.unlisted.note_directory(self._logs.unfinished(), now):
            self._log_anomaly(
                f"{log.region:.80}: no directory lists {log.router:.80} of {log.epoch}"
            )
        too_far, self._disbelieved = self._disbelieved, self._logs.times.disbelieved
        if too_far != self._disbelieved:
            measures.TOO_FAR.inc(self._disbelieved - too_far)
            self._log_anomaly("a router's time is more than a day ahead: it isn't believed")

    def _log_anomaly(self, what: str) -> None:
        skipped_lines = self._anomalies.may_log(self.clock())
        if skipped_lines is not None:
            logger.warning("%s (and %d more such lines)", what, skipped_lines)

    async def _follow_logs(self) -> None:
        reading = self._reading
        await self.begun.wait()
        while True:
            for read in reading.next_reads(self.clock(), at_most=_READS - self._under_way):
                self._under_way += 1
                self.spawn(self._read(read))
            if self._readiness.is_reached():
                self.ready.set()
            seconds = reading.pause_seconds() if self.ready.is_set() else LOOK_SECONDS
            if seconds <= LOOK_SECONDS:
                # While numbers are missing, each message of the feed would wake this task.
                await asyncio.sleep(seconds)
                continue
            self._missing_event.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._missing_event.wait()

    async def _read(self, read: Read) -> None:
        found, rows, at = 0, 0, 0
        try:
            for first, last in read.spans:
                at = first
                while at <= last:
                    async with asyncio.timeout(self.settings.store_timeout):
                        page = await self.store.numbers(
                            read.log, first=at, last=last, limit=_PAGE, at_home=read.in_own_region
                        )
                    measures.READ_NUMBERS.inc(len(page))
                    found += await self._process_page(read.log, page)
                    rows += len(page)
                    at = max(at, page[-1].seq) + 1 if len(page) == _PAGE else last + 1
                if rows >= _MOST_ROWS:
                    break
        except Exception as exc:
            # Any error of a store: the next try may succeed, and readers are still served.
            where = f" at {read.log.region}" if read.in_own_region else ""
            self._log_failure(f"numbers of {read.log.router:.80} can't be read{where}", exc)
            self._reading.failed(read, self.clock())
            return
        finally:
            self._under_way -= 1
        now = self.clock()
        if found and not read.tail:
            measures.REPAIR.observe(now - read.since)
        self._reading.done(read, upto=at - 1, found=found, now=now)

    async def _process_page(self, log: Log, page: Iterable[Number]) -> int:
        """Publish the missing messages of ``page``; return how many of its numbers need no further
        read."""
        known = self._logs.find(log)
        if known is None:
            # The log was forgotten meanwhile.
            return 0
        prompt: list[Envelope] = []
        by_topic: dict[str, list[Envelope]] = collections.defaultdict(list)
        before, wall_ms, now = known.seen.numbers, clock_ms(), self.clock()
        reached_ms = self._logs.times.reported_ms(log.region, wall_ms, now)
        # A message read here may be older than it looks, by the spread: its region's clocks may
        # have been furthest ahead while nothing was heard of it. Messages of the feed are minutes
        # old at most.
        time_ms = self._logs.times.latest_ms(wall_ms, now) + self._spread_ms()
        for number in page:
            if known.is_done(number.seq) or number.state is NumberState.HALF:
                continue
            envelope = number.envelope
            if envelope is None or log_of(envelope) != log or not is_sound(envelope):
                # Void, or a message that has expired, or one that readers can't be given.
                self._logs.skip(log, number.seq, number.seq)
                continue
            if is_ahead(ms_of_id(envelope.id), reached_ms):
                # Stays missing until its region reports such a time, in the next tick or row.
                continue
            known.note_may_end_void(number.seq)
            if is_late(envelope, time_ms) and not self.hub.was_published(envelope):
                by_topic[envelope.topic].append(envelope)
            else:
                prompt.append(envelope)
        await self._publish_all(prompt)
        topics = list(by_topic)
        for start in range(0, len(topics), _TOPICS):
            some = topics[start : start + _TOPICS]
            await asyncio.gather(*(self._process_late(topic, by_topic[topic]) for topic in some))
        return known.seen.numbers - before

    def _spread_ms(self) -> int:
        return self._logs.times.spread_ms(clock_ms(), self.clock())

    async def _process_late(self, topic: str, messages: Sequence[Envelope]) -> None:
        """Publish those late ``messages`` of which no other copy was given here before."""
        measures.LATE.inc(len(messages))
        spread_ms = self._spread_ms()
        for some in clusters(messages, spread_ms):
            try:
                given = await self._late.already_given(topic, some, spread_ms)
            except (StoreError, TimeoutError) as exc:
                # Unknown whether copies were given: the messages stay missing.
                self._log_failure("late messages can't be looked up", exc)
                return
            for one in some:
                if one.identity in given and not self._logs.is_done(log_of(one), one.seq):
                    self.hub.note_duplicate(one)
            await self._publish_all(one for one in some if one.identity not in given)

    async def _publish_all(self, messages: Iterable[Envelope]) -> None:
        """Publish ``messages``, and return when they have reached their readers."""
        given = [done for one in messages if (done := self.broadcast.publish_found(one))]
        measures.RECOVERED.inc(len(given))
        for done in given:
            await done.wait()

    def _log_failure(self, what: str, problem: Exception) -> None:
        measures.LOG_FAILURES.inc()
        skipped_lines = self._failing.may_log(self.clock())
        if skipped_lines is not None:
            ours = None if isinstance(problem, (StoreError, TimeoutError)) else problem
            why = str(problem) or "the store doesn't answer"
            logger.warning(
                "%s, trying again (and %d more): %s", what, skipped_lines, why, exc_info=ours
            )
