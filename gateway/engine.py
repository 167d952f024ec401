"""What differs between the engines: whether another process holds readers' connections too.

A gateway always serves some readers itself (:mod:`gateway.connection`). With the native engine most
of them are in the data plane; with the Tornado engine there is none, and :class:`InProcess` stands
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from gateway.publication import Publication
from newsfabric.errors import ConfigError


class Engine(Protocol):
    """The readers of this gateway whose connections another process holds."""

    @property
    def name(self) -> str:
        """As ``--engine`` says it."""

    @property
    def serves_websockets(self) -> bool:
        """Whether WebSockets are served in this process; else that other one serves them."""

    @property
    def dataplane_pid(self) -> int | None:
        """The other process; None if there is none."""

    @property
    def is_there(self) -> bool:
        """Whether its readers are served now."""

    @property
    def reader_count(self) -> int:
        """How many are connected now."""

    @property
    def connects(self) -> int:
        """How many were let in since the start."""

    @property
    def deliveries(self) -> int:
        """Frames given to them since the start."""

    def publish(self, publication: Publication, done: Callable[[], None]) -> None:
        """Give it to those who are subscribed; call ``done`` after the last one."""

    def evict(self, revoked: Sequence[tuple[str, int]]) -> None:
        """Close the connections of users who were revoked at that time (ms)."""

    def send_away(self, count: int) -> None:
        """Have ``count`` readers, or all if there are fewer, connect to another box."""

    @property
    def outbox_bytes(self) -> int:
        """What waits for all of them together."""

    @property
    def identities(self) -> int | None:
        """How many identities are remembered there; None if they are in the hub alone."""

    async def look(self) -> None:
        """Bring what is counted there up to date."""

    async def drain(self) -> None:
        """Send all readers away, and return when they are gone."""

    async def take_over(self) -> int:
        """Put a new process in the place of the one there, without readers noticing.

        Returns its pid; ConfigError if that fails, and then nothing has changed.
        """

    def close(self) -> None:
        """Let go of the other process; it goes on without us."""


class InProcess:
    """The Tornado engine: all readers are in this process."""

    name: Final = "tornado"
    serves_websockets: Final = True
    dataplane_pid: Final = None
    is_there: Final = True
    reader_count: Final = 0
    connects: Final = 0
    deliveries: Final = 0
    outbox_bytes: Final = 0
    identities: Final = None

    def publish(self, publication: Publication, done: Callable[[], None]) -> None:
        """Nobody to give it to."""
        done()

    def evict(self, revoked: Sequence[tuple[str, int]]) -> None:
        """Nobody to close."""

    def send_away(self, count: int) -> None:
        """Nobody to send."""

    async def look(self) -> None:
        """Nothing to count."""

    async def drain(self) -> None:
        """Nobody to wait for."""

    async def take_over(self) -> int:
        """As :meth:`Engine.take_over`; it always fails."""
        raise ConfigError("this engine has no data plane")

    def close(self) -> None:
        """Nothing to let go of."""
