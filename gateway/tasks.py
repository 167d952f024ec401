"""Background tasks with one owner, which ends them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from newsfabric.errors import NewsfabricError

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class Spawn(Protocol):
    """Makes tasks, and owns them: :meth:`Tasks.spawn`."""

    def __call__(self, work: Coroutine[Any, Any, Result], /) -> asyncio.Task[Result]:
        """Run ``work``."""


class Tasks:
    """The tasks of one gateway. Each runs until it ends or :meth:`close` cancels it."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Result], /) -> asyncio.Task[Result]:
        """Run ``work`` as a task. Our own errors are for whoever awaits it; others are logged."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel every task, and wait until it has ended."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        exc = None if task.cancelled() else task.exception()
        if isinstance(exc, NewsfabricError):
            # If nobody awaits it, this line is all that is left of it.
            logger.debug("a task of the gateway ended: %s", exc)
        elif exc is not None:
            logger.error("a task of the gateway failed", exc_info=exc)
