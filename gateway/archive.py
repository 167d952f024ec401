"""Reads of the store for readers: a bounded number at a time, each within a timeout.

Not the store itself. The decision that one would question: when the store is away it is left
alone for a second, and whoever asks meanwhile is told so at once, lest each subscribe
waits for its own timeout while the store is away.

Bodies are checked as on the feed: frames are spliced from them, and one that isn't JSON would break
every reader's parser. Such a message is left out and counted; where that matters it is told.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Coroutine
from typing import Any, Final

import orjson

from gateway import measures
from gateway.fitting import newest_that_fit
from gateway.settings import GatewaySettings
from newsfabric.envelope import Envelope
from newsfabric.errors import StoreError, StoreUnavailable
from newsfabric.line_limits import LineLimit
from newsfabric.store import Store
from newsfabric.topics import TopicPolicy

logger = logging.getLogger(__name__)

_REST: Final = 1.0
# Minutes of a topic come in many pages, and a gap is worse than a wait.
_LONG: Final = 4.0
# A read that is bounded in bytes begins with so many messages, and is done again with more.
_FIRST_ROWS: Final = 256
_MORE: Final = 4
# Bodies are looked through for so long that nobody else waits.
_CHECKED_BYTES: Final = 1 << 20
# Of messages that are no JSON, a history reads beyond so many times its limit.
_BEYOND: Final = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """What the store has of a topic, oldest first. If it is ``cut`` there may be older ones; if
    ``spoilt`` something was left out."""

    envelopes: list[Envelope]
    cut: bool
    spoilt: bool


class Archive:
    """What readers may ask of the store. Every method raises StoreError when it can't answer."""

    def __init__(self, store: Store, settings: GatewaySettings) -> None:
        self._store = store
        self._settings = settings
        self._reads = asyncio.Semaphore(settings.store_reads)
        self._waiting = 0
        self._resting_until = 0.0
        # A topic that is spoilt fails for whoever asks.
        self._failing = LineLimit()

    async def history(
        self, topic: str, *, limit: int, since_ms: int = 0, before: str | None = None
    ) -> list[Envelope]:
        """As :meth:`newsfabric.store.Store.history`, without what is no JSON."""
        asked = limit
        while asked <= _BEYOND * limit:
            read = self._store.history(topic, limit=asked, since_ms=since_ms, before=before)
            found = await self._read(read)
            sound = await _sound(found)
            if len(found) < asked or len(sound) >= limit:
                return sound[max(0, len(sound) - limit) :]
            asked += limit - len(sound)
        raise StoreError(f"too much of {topic} is no JSON")

    async def since(
        self, topic: str, *, from_ms: int, limit: int, most_bytes: int, region: str
    ) -> Stored:
        """As :meth:`newsfabric.store.Store.since`, and bodies of ``most_bytes`` together at most.

        It may take several times the timeout.
        """
        asked = min(limit, _FIRST_ROWS)
        while True:
            read = self._store.since(topic, from_ms=from_ms, limit=asked, region=region)
            found = await self._read(read, timeouts=_LONG)
            fitting = newest_that_fit(found, lambda envelope: len(envelope.body), most_bytes)
            if len(fitting) < len(found) or len(found) < asked or asked >= limit:
                break
            asked = min(limit, asked * _MORE)
        sound = await _sound(fitting)
        cut = len(fitting) < len(found) or len(found) >= limit
        return Stored(sound, cut, spoilt=len(sound) < len(fitting))

    async def past(self, topic: str, policy: TopicPolicy) -> tuple[list[Envelope], list[Envelope]]:
        """What a hub wants to know of a topic at first: (history, newest by key), oldest first.

        The history is whole if it is shorter than ``policy.keep``.
        """
        history: list[Envelope] = []
        latest: list[Envelope] = []
        if policy.keep:
            history = await self.history(topic, limit=policy.keep)
        if policy.latest:
            read = self._store.latest(topic, limit=self._settings.latest_keys)
            latest = await _sound(await self._read(read))
        return history, latest

    def failed(self, exc: StoreError) -> None:
        """A read has failed: count it, and let the store rest if it is away.

        One that answers with an error is well: what is spoilt on one topic must not keep the
        readers of others from it.
        """
        measures.STORE_FAILURES.inc()
        now = time.monotonic()
        if now < self._resting_until:
            return
        unsaid = self._failing.may_log(now)
        if unsaid is not None:
            logger.warning("the store can't be read (and %d more): %s", unsaid, exc)
        if isinstance(exc, StoreUnavailable):
            self._resting_until = now + _REST

    async def _read(
        self, read: Coroutine[Any, Any, list[Envelope]], *, timeouts: float = 1.0
    ) -> list[Envelope]:
        now = time.monotonic()
        if now < self._resting_until or self._waiting >= self._settings.store_waiting:
            read.close()
            raise StoreUnavailable("the store is being left alone")
        self._waiting += 1
        try:
            # The wait for a turn is bounded by the turns of others, each within its timeout. If it
            # counted, a slow store would answer nobody in time.
            async with self._reads:
                if time.monotonic() < self._resting_until:
                    raise StoreUnavailable("the store is being left alone")
                async with asyncio.timeout(timeouts * self._settings.store_timeout):
                    return await read
        except TimeoutError as exc:
            raise StoreUnavailable("the store doesn't answer") from exc
        finally:
            # A read that was never begun, or was cut off, must not be reported as never awaited.
            read.close()
            self._waiting -= 1


async def _sound(found: list[Envelope]) -> list[Envelope]:
    sound: list[Envelope] = []
    size = 0
    for envelope in found:
        size += len(envelope.body)
        if size > _CHECKED_BYTES:
            await asyncio.sleep(0)
            size = 0
        if is_json(envelope):
            sound.append(envelope)
    return sound


def is_json(envelope: Envelope) -> bool:
    """Whether readers can be given it; what they can't is counted."""
    try:
        orjson.loads(envelope.body)
    except ValueError:
        measures.UNDECODABLE.inc()
        return False
    return True
