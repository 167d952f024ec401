"""A count of operations under way, by which a drain knows when all of them have ended."""

from __future__ import annotations

import asyncio


class PendingOperations:
    """Operations under way; :meth:`idle` returns when there are none."""

    def __init__(self) -> None:
        self.under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def begin(self) -> None:
        """Count one more operation under way."""
        self.under_way += 1
        self._idle.clear()

    def end(self) -> None:
        """Count one operation as done or given up. Call it once for each :meth:`begin`."""
        self.under_way -= 1
        if self.under_way == 0:
            self._idle.set()

    async def idle(self) -> None:
        """Return when no operation is under way."""
        await self._idle.wait()
