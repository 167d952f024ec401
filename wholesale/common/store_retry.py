"""Retries until the store answers. One log line reports that it is away, one that it is back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from newsfabric.backoff import Backoff
from newsfabric.errors import StoreError, StoreUnavailable
from newsfabric.store import Store

logger = logging.getLogger(__name__)

T = TypeVar("T")


class _Counter(Protocol):
    def inc(self) -> None: ...


class StoreRetry:
    """Retries of requests to ``store``; each failed try adds to ``retries``."""

    def __init__(self, store: Store, retries: _Counter) -> None:
        self._store = store
        self._retries = retries
        #: Whether the last try was answered (True before the first).
        self.store_answers = True

    async def until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``ask``; retry it for as long as the store is away.

        Raise StoreError when the request itself is at fault: the store is well and can't do it.
        """
        backoff = Backoff(base=0.1, cap=5.0)
        while True:
            try:
                answer = await ask()
            except StoreError as exc:
                if not isinstance(exc, StoreUnavailable) and await self._store_is_well():
                    raise
                self._note_failure(exc)
                await asyncio.sleep(backoff.failed(time.monotonic()))
            else:
                self._note_success()
                return answer

    async def _store_is_well(self) -> bool:
        try:
            await self._store.check()
        except StoreError:
            return False
        return True

    def _note_failure(self, exc: StoreError) -> None:
        self._retries.inc()
        if self.store_answers:
            logger.warning("the store is away: %s; trying again", exc)
        self.store_answers = False

    def _note_success(self) -> None:
        if not self.store_answers:
            logger.info("the store is back")
        self.store_answers = True
