"""What differs between the engines: whether another process holds readers' connections too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.native.tally import Tally
from gateway.publication import Publication
from newsfabric.errors import ConfigError


class Engine:
    """The Tornado engine: there is no other process, and nobody there."""

    #: As ``--engine`` says it.
    name = "tornado"
    #: Whether WebSockets are served in this process; else the other one serves them.
    serves_websockets = True

    def __init__(self) -> None:
        #: The other process; None if there is none.
        self.pid: int | None = None
        #: What it has counted.
        self.tally = Tally()

    @property
    def is_there(self) -> bool:
        """Whether the other process serves its readers now."""
        return True

    def publish(self, publication: Publication, done: Callable[[], None]) -> None:
        """Give it to those who are subscribed there; call ``done`` after the last one."""
        done()

    def evict(self, revoked: Sequence[tuple[str, int]]) -> None:
        """Close the connections of users who were revoked at that time (ms)."""

    def send_away(self, count: int) -> None:
        """Have ``count`` readers, or all if there are fewer, connect to another box."""

    async def look(self) -> None:
        """Bring :attr:`tally` up to date."""

    async def drain(self) -> None:
        """Send all readers away, and return when they are gone."""

    async def take_over(self) -> int:
        """Put a new process in the place of the one there, without readers noticing.

        Returns its pid; ConfigError if that fails, and then nothing has changed.
        """
        raise ConfigError("this engine has no data plane")

    def close(self) -> None:
        """Let go of the other process; it goes on without us."""
