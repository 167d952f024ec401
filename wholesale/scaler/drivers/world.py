"""Driver ``world``: the boxes of a world on this machine, which really start and end."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from newsfabric.errors import NewsfabricError
from newsfabric.world.layout import MAX_BOXES
from wholesale.scaler.drivers import DriverError, DriverLimit, Instance, checked

_GROWING: Final = "newsfabric.world.growing"


class WorldDriver:
    """Drives the boxes of ``region`` of the world in folder ``state``."""

    def __init__(self, state: Path, region: str) -> None:
        self._state = state
        self._region = region
        # Late: nobody but a world on one machine has need of it.
        self._growing: Any = importlib.import_module(_GROWING)

    async def boxes(self) -> tuple[Instance, ...]:
        found = await self._ask("boxes", self._state)
        return tuple(
            checked(each.name, each.age_seconds, getattr(each, "zone", ""))
            for each in found
            if getattr(each, "region", self._region) == self._region
        )

    async def want(self, count: int) -> None:
        await self._ask("want", self._state, self._region, min(count, MAX_BOXES))
        if count > MAX_BOXES:
            raise DriverLimit(f"a region here has room for {MAX_BOXES} boxes, {count} are wanted")

    async def end(self, names: Iterable[str]) -> None:
        await self._ask("end", self._state, tuple(names))

    async def close(self) -> None:
        pass

    async def _ask(self, name: str, *arguments: Any) -> Any:
        """Call a function of the world's, in a thread if it isn't a coroutine's."""
        function = getattr(self._growing, name)
        try:
            if asyncio.iscoroutinefunction(function):
                return await function(*arguments)
            return await asyncio.to_thread(function, *arguments)
        except NewsfabricError as exc:
            raise DriverError(f"{name}: {exc}") from exc
