"""Driver ``none``: the scaler reports the number that it wants, and another party acts on it."""

from __future__ import annotations

from collections.abc import Iterable

from wholesale.scaler.drivers import Instance


class NoDriver:
    """A driver without a list of boxes; its actions have no effect."""

    async def boxes(self) -> tuple[Instance, ...] | None:
        """Return None: it can't know."""
        return None

    async def want(self, count: int) -> None:
        """Do nothing."""

    async def end(self, names: Iterable[str]) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""
