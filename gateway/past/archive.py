"""Reads of the store for readers: a bounded number at a time, each within a time-out.

The decision that may be questioned: after a read found the store unavailable, there are no reads
for a second. Each fails at once, so that not every subscribe waits for its own time-out.

Bodies are checked as on the feed: frames are spliced from them, and a body that isn't JSON would
break every reader's parser. Such a message is left out, counted, and reported where that matters.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from gateway.past.bounded import newest_that_fit
from gateway.past.late import clusters, span_of
from gateway.process import measures
from gateway.process.settings import GatewaySettings
from newsfabric.errors import StoreError, StoreUnavailable
from newsfabric.line_limits import LineLimit
from newsfabric.messages.envelope import MAX_MS, Envelope, ms_of_id
from newsfabric.store import Store
from newsfabric.store.sound import Sound, newest_sound, only_sound

logger = logging.getLogger(__name__)

_REST: Final = 1.0
# Time-outs that one read of minutes of a topic may take: it has many pages, and a gap is worse than
# a wait.
_LONG: Final = 4.0
# A read that is bounded in bytes asks for so many messages first, then for ``_MORE`` times as many.
_FIRST_ROWS: Final = 256
_MORE: Final = 4


class Archive:
    """The store's answers to readers. Each method that reads raises StoreError if it can't."""

    def __init__(self, store: Store, settings: GatewaySettings) -> None:
        self._store = store
        self._settings = settings
        self._reads = asyncio.Semaphore(settings.store_reads)
        self._waiting = 0
        self._resting_until = 0.0
        # A topic that can't be read fails at each reader's request.
        self._failing = LineLimit()

    async def history(
        self, topic: str, *, limit: int, since_ms: int = 0, before: str | None = None
    ) -> Sound:
        """Return the result of :meth:`.Store.history`, without bodies that aren't JSON."""
        return await newest_sound(
            lambda asked: self._read(
                self._store.history(topic, limit=asked, since_ms=since_ms, before=before)
            ),
            limit,
        )

    async def since(
        self, topic: str, *, from_ms: int, to_ms: int = MAX_MS + 1, region: str
    ) -> Sound:
        """Return the result of :meth:`.Store.since`, up to the limits of a resume in rows and
        bytes. It may take several time-outs."""
        limit, most_bytes = self._settings.resume_rows, self._settings.resume_bytes
        asked = min(limit, _FIRST_ROWS)
        while True:
            read = self._store.since(
                topic, from_ms=from_ms, to_ms=to_ms, limit=asked, region=region
            )
            found = await self._read(read, timeouts=_LONG)
            fitting = newest_that_fit(found, lambda envelope: len(envelope.body), most_bytes)
            if len(fitting) < len(found) or len(found) < asked or asked >= limit:
                break
            asked = min(limit, asked * _MORE)
        sound = await only_sound(fitting)
        reach_ms = from_ms
        if len(fitting) < len(found) or len(found) >= limit:
            # There may be older messages, also in the millisecond of the oldest one here.
            reach_ms = ms_of_id((fitting or found[-1:])[0].id) + 1
        known = {id(envelope) for envelope in sound}
        missing = tuple(one.id for one in fitting if id(one) not in known)
        return Sound(sound, missing, reach_ms=reach_ms)

    async def copies(
        self, topic: str, messages: Sequence[Envelope], *, spread_ms: int
    ) -> list[Envelope]:
        """Return the copies of ``messages`` of ``topic`` that this region has, oldest first. Each
        read is bounded as in :meth:`since`, so some may be left out. ``spread_ms``: by how much
        routers' clocks have differed (:meth:`.LogTimes.spread_ms`)."""
        identities = {one.identity for one in messages}
        found: list[Envelope] = []
        for group in clusters(messages, spread_ms):
            from_ms, to_ms = span_of((ms_of_id(one.id) for one in group), spread_ms)
            stored = await self.since(
                topic, from_ms=from_ms, to_ms=to_ms + 1, region=self._settings.region
            )
            found += (one for one in stored.envelopes if one.identity in identities)
        return found

    async def latest(self, topic: str) -> list[Envelope]:
        """Return the newest version of each key, oldest first."""
        read = self._store.latest(topic, limit=self._settings.latest_keys)
        return await only_sound(await self._read(read))

    def failed(self, exc: StoreError) -> None:
        """Count a failed read, and let the store rest if it is unavailable. Unreadable rows of one
        topic are no reason to rest: readers of other topics need the store."""
        measures.STORE_FAILURES.inc()
        now = time.monotonic()
        if now < self._resting_until:
            return
        skipped_lines = self._failing.may_log(now)
        if skipped_lines is not None:
            logger.warning("the store can't be read (and %d more): %s", skipped_lines, exc)
        if isinstance(exc, StoreUnavailable):
            self._resting_until = now + _REST

    async def _read(
        self, read: Coroutine[Any, Any, list[Envelope]], *, timeouts: float = 1.0
    ) -> list[Envelope]:
        now = time.monotonic()
        if now < self._resting_until:
            read.close()
            raise StoreUnavailable("the store is being left alone")
        if self._waiting >= self._settings.store_waiting:
            read.close()
            # Not unavailable: the reads that wait are answered, so the store needs no rest.
            raise StoreError(f"{self._waiting} reads of the store wait for their turn")
        self._waiting += 1
        try:
            # The time-out doesn't include the wait for a turn, else a slow store would answer no
            # read in time. That wait is bounded: each read before this one has its time-out.
            async with self._reads:
                if time.monotonic() < self._resting_until:
                    raise StoreUnavailable("the store is being left alone")
                async with asyncio.timeout(timeouts * self._settings.store_timeout):
                    return await read
        except TimeoutError as exc:
            raise StoreUnavailable("the store doesn't answer") from exc
        finally:
            # Closed, a read that never began causes no warning that it was never awaited.
            read.close()
            self._waiting -= 1
