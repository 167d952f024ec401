"""Looks up whether late messages were given here before, by other copies of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from gateway import late
from gateway.logs import Logs
from newsfabric.envelope import Envelope, ms_of_id
from newsfabric.errors import StoreError
from newsfabric.store import Store

# Copies are read so many at a time.
_PAGE: Final = 5_000
_MOST_PAGES: Final = 400


class LateCopies:
    """Asks the store; each question is answered within ``timeout`` seconds, or never.

    ``clock`` gives seconds, and only goes on.
    """

    def __init__(
        self,
        store: Store,
        logs: Logs,
        *,
        region: str,
        timeout: float,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._logs = logs
        self._region = region
        self._timeout = timeout
        self._clock = clock
        # When each region was heard last.
        self._heard_at: dict[str, float] = {}

    def heard(self, region: str) -> None:
        """A message or a tick of a log of ``region`` has come."""
        self._heard_at[region] = self._clock()

    async def given(self, topic: str, messages: Sequence[Envelope]) -> set[int]:
        """The identities of those of ``messages`` that were given here.

        StoreError or TimeoutError if that can't be known now.
        """
        return late.given(messages, await self._copies(topic, messages), self._logs)

    async def _copies(self, topic: str, messages: Sequence[Envelope]) -> list[Envelope]:
        """The copies of these messages that there are in every region."""
        from_ms, to_ms = late.span_of(messages)
        wanted = {one.identity for one in messages}
        found: list[Envelope] = []
        for region in self._regions():
            end = to_ms
            for _ in range(_MOST_PAGES):
                async with asyncio.timeout(self._timeout):
                    page = await self._store.since(
                        topic, from_ms=from_ms, to_ms=end, limit=_PAGE, region=region
                    )
                found += [one for one in page if one.identity in wanted]
                if len(page) < _PAGE:
                    break
                # The oldest millisecond may not be whole, and comes again.
                end = ms_of_id(page[0].id) + 1
            else:
                raise StoreError(f"too many copies on {topic}")
        return found

    def _regions(self) -> list[str]:
        """Those that are asked for copies."""
        now = self._clock()
        # Of one that has no log of which more may come everything was seen here.
        for known in self._logs.unfinished():
            self._heard_at.setdefault(known.log.region, now)
        lives = (
            region
            for region, heard_at in self._heard_at.items()
            if region != self._region and now - heard_at < late.SILENT_SECONDS
        )
        return [self._region, *sorted(lives)]
