"""Driver ``world``: the boxes of a world on this machine, which really start and end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from localfabric.world import growing
from localfabric.world.options import MAX_BOXES
from newsfabric.errors import NewsfabricError
from wholesale.scaler.drivers import DriverError, DriverLimit, Instance, checked

T = TypeVar("T")


class WorldDriver:
    """A driver of the boxes of ``region`` of the world in folder ``state``."""

    def __init__(self, state: Path, region: str) -> None:
        self._state = state
        self._region = region

    async def boxes(self) -> tuple[Instance, ...]:
        """Return boxes as :meth:`wholesale.scaler.drivers.Driver.boxes`."""
        found = await _done("boxes", lambda: growing.boxes(self._state, self._region))
        return tuple(checked(each.name, each.age_seconds, "") for each in found)

    async def want(self, count: int) -> None:
        """Order as :meth:`wholesale.scaler.drivers.Driver.want`; DriverLimit above MAX_BOXES."""
        fitting = min(count, MAX_BOXES)
        await _done("want", lambda: growing.want(self._state, self._region, fitting))
        if count > MAX_BOXES:
            raise DriverLimit(f"a region here has room for {MAX_BOXES} boxes, {count} are wanted")

    async def end(self, names: Iterable[str]) -> None:
        """End boxes as :meth:`wholesale.scaler.drivers.Driver.end`."""
        listed = tuple(names)
        await _done("end", lambda: growing.end(self._state, listed))

    async def close(self) -> None:
        """Close as :meth:`wholesale.scaler.drivers.Driver.close`: it has no resources."""


async def _done(what: str, call: Callable[[], T]) -> T:
    """Return the result of ``call``, which blocks."""
    try:
        return await asyncio.to_thread(call)
    except NewsfabricError as exc:
        raise DriverError(f"{what}: {exc}") from exc
