"""Background tasks with one owner, which ends them; and work that many wait for, done once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeAlias, TypeVar

from newsfabric.errors import NewsfabricError

logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")
#: Makes tasks, and owns them: :meth:`Tasks.spawn`.
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]


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


class SingleFlight(Generic[Key, Result]):
    """One task for each key, however many wait for it."""

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._tasks: dict[Key, asyncio.Task[Result]] = {}

    async def do(self, key: Key, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """What the work under ``key`` comes to. It begins now unless it is under way.

        One that has ended isn't under way: who asks later may need what has happened since. An
        exception is everybody's. Who is cancelled doesn't take the work from the others.
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
            # Who asked for it may be gone.
            task.exception()
