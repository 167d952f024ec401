"""Traces of messages with a broken promise, or a likely one, taken while the world runs.

Routers and gateways remember some thousand messages, for ten minutes and until they die. So an
overdue message is traced at once, not after the run, when it is forgotten. The trace of a message
that arrives later is dropped, to make room for others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Final

from localfabric.chaos.delivery_record import DeliveryRecord
from localfabric.world.finding import world_of
from localfabric.world.layout import WorldLayout
from operations.cli.trace import describe

#: The number of broken promises that are reported in full, with their traces.
SHOWN_TRACES: Final = 20
_LOOK_EVERY: Final = 5.0
# A backlog of a minute is late, not lost; few messages should be later.
_OVERDUE: Final = 60.0


def untraced(overdue: Sequence[int], traced: Collection[int]) -> list[int]:
    """Return the numbers of overdue messages to trace next: with ``traced``,
    which are all overdue, :data:`SHOWN_TRACES` at most."""
    return [n for n in overdue if n not in traced][: SHOWN_TRACES - len(traced)]


class MessageTraces:
    """Traces in ``traces``: by the message's number, the output of `newsfabric trace`."""

    def __init__(self, layout: WorldLayout, record: DeliveryRecord, *, run: str) -> None:
        self._world = world_of(layout)
        self._record = record
        self._run = run
        self.traces: dict[int, str] = {}

    @asynccontextmanager
    async def watching(self, began: float) -> AsyncGenerator[None]:
        """Trace overdue messages in the block. Times of the record count from ``began``."""
        watching = asyncio.create_task(self._watch(began))
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def trace_wrong(self) -> None:
        """Trace the messages with a broken promise that have no trace yet."""
        for wrong in self._record.account().wrong[:SHOWN_TRACES]:
            await self._trace(wrong.n)

    async def _watch(self, began: float) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            overdue = [m.n for m in self._record.overdue(at=time.time() - began, after=_OVERDUE)]
            self.traces = {n: text for n, text in self.traces.items() if n in overdue}
            for n in untraced(overdue, self.traces):
                await self._trace(n)

    async def _trace(self, n: int) -> None:
        if n not in self.traces:
            message = self._record.messages[n]
            name = message.id or f"{self._run}-{n}"
            self.traces[n] = await describe(name, self._world, topic=message.topic)
