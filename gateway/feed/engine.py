"""The difference between the engines: whether another process holds readers' connections too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.wire.publication import Publication
from newsfabric.errors import ConfigError


class Totals:
    """The totals of another process since its start. Here is none: all are 0."""

    #: Readers connected now; the other two only grow.
    readers = 0
    connects = 0
    deliveries = 0

    def get(self, name: str, default: int = 0) -> int:
        """Return the last value of ``name``; ``default`` if there was none."""
        return default


class Engine:
    """The Tornado engine, and the interface of engines. Here there is no other process."""

    #: The value of ``--engine``.
    name = "tornado"
    #: True if this process serves WebSockets, False if the other one does.
    serves_websockets = True

    def __init__(self) -> None:
        #: The pid of the other process; None if there is none.
        self.pid: int | None = None
        #: The counters of the other process.
        self.totals = Totals()

    @property
    def is_serving(self) -> bool:
        """True while the other process, if there is one, serves its readers."""
        return True

    def publish(self, publication: Publication, done: Callable[[], None]) -> None:
        """Send ``publication`` to the subscribers there; call ``done`` after the last one."""
        done()

    def evict(self, revoked: Sequence[tuple[str, int]]) -> None:
        """Close the connections of these users, each revoked at its time (ms since the epoch)."""

    def send_away(self, count: int) -> None:
        """Have ``count`` readers, or all if there are fewer, connect to another box."""

    async def refresh_counters(self) -> None:
        """Update :attr:`totals`."""

    async def drain(self) -> None:
        """Send all readers away, and return when they are gone."""

    async def take_over(self) -> int:
        """Replace the other process by a new one, without readers noticing; return its pid.

        ConfigError if that fails, and then nothing has changed.
        """
        raise ConfigError("this engine has no data plane")

    def close(self) -> None:
        """Release the other process, which continues without this one."""
