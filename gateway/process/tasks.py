"""Background tasks with one owner, which cancels them; and work that many wait for, done once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeAlias, TypeVar

from newsfabric.errors import NewsfabricError

logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")
#: A function that makes tasks, and owns them: :meth:`Tasks.spawn`.
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]


class Tasks:
    """The tasks of one gateway. Each runs until it ends or :meth:`close` cancels it."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Result], /) -> asyncio.Task[Result]:
        """Run ``work`` as a task. Our own errors are for its awaiter; others are logged."""
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
            # If the task isn't awaited, this line is the only trace of its error.
            logger.debug("a task of the gateway ended: %s", exc)
        elif exc is not None:
            logger.error("a task of the gateway failed", exc_info=exc)


class SingleFlight(Generic[Key, Result]):
    """Shared work: one task for each key, however many wait for it."""

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._tasks: dict[Key, asyncio.Task[Result]] = {}

    async def do(self, key: Key, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Return the result of the work under ``key``, which begins now unless it is under way.

        A task that has ended isn't under way: a later caller may need newer results. An exception
        is raised for all callers. A cancelled caller doesn't cancel the work for the others.
        """
        task = self._tasks.get(key)
        if task is None or task.done():
            task = self._tasks[key] = self._spawn(work())
            task.add_done_callback(lambda task: self._done(key, task))
        return await asyncio.shield(task)

    def _done(self, key: Key, task: asyncio.Task[Result]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled():
            # The callers may be gone: mark the exception as retrieved.
            task.exception()
