"""Work that many want at the same time, done once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from gateway.tasks import Result, Spawn

Key = TypeVar("Key", bound=Hashable)


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
