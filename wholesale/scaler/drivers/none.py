"""Driver ``none``: the scaler says what it wants, and somebody else makes it so."""

from __future__ import annotations

from collections.abc import Iterable

from wholesale.scaler.drivers import Instance


class NoDriver:
    """Knows no boxes but those that report, and moves nothing."""

    async def boxes(self) -> tuple[Instance, ...] | None:
        """None: it can't know."""
        return None

    async def want(self, count: int) -> None:
        """Nothing happens."""

    async def end(self, names: Iterable[str]) -> None:
        """Nothing happens."""

    async def close(self) -> None:
        """Nothing to let go of."""
