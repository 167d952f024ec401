"""Counts what has begun and not ended, so that a drain knows when there is nothing left."""

from __future__ import annotations

import asyncio


class Progress:
    """Things under way; :meth:`idle` returns when there are none."""

    def __init__(self) -> None:
        self.under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def begin(self) -> None:
        """One more is under way."""
        self.under_way += 1
        self._idle.clear()

    def end(self) -> None:
        """One of those that began is done, or given up. Once for each."""
        self.under_way -= 1
        if self.under_way == 0:
            self._idle.set()

    async def idle(self) -> None:
        """Return when nothing is under way."""
        await self._idle.wait()
