"""The native engine: most readers' connections are in the data plane, a process beside ours.

What the data plane doesn't serve itself (SockJS's HTTP transports, SSE, pages) is served here
as the Tornado engine serves it. The hub is here, with what is remembered; the data plane has its
own readers' subscriptions alone, and is sent what each of them gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gateway.drain import Spread
from gateway.engine import Engine
from gateway.native import commands
from gateway.native.plane import Plane, State
from gateway.publication import Publication
from gateway.settings import GatewaySettings
from newsfabric.closing import INVALID_TOKEN, REBALANCE

# In one command.
_USERS: Final = 10_000


class NativeEngine(Engine):
    """The readers of ``plane``."""

    name = "native"
    serves_websockets = False

    def __init__(self, settings: GatewaySettings, plane: Plane) -> None:
        self.plane = plane
        self.tally = plane.tally
        self._settings = settings

    @property
    def dataplane_pid(self) -> int | None:
        return self.plane.pid

    @property
    def is_there(self) -> bool:
        return self.plane.state in (State.ATTACHED, State.DRAINING)

    def publish(self, publication: Publication, done: Callable[[], None]) -> None:
        self.plane.publish(publication, done)

    def evict(self, revoked: Sequence[tuple[str, int]]) -> None:
        for start in range(0, len(revoked), _USERS):
            some = revoked[start : start + _USERS]
            self.plane.send(commands.evict(some, INVALID_TOKEN))

    def send_away(self, count: int) -> None:
        self.plane.send(commands.shed(REBALANCE, count, self._settings.retry_after_ms))

    async def look(self) -> None:
        await self.plane.count()

    async def drain(self) -> None:
        """Have the data plane send its readers away, and end."""
        seconds, per_second = self._settings.drain_seconds, self._settings.drain_per_second
        await self.plane.count()
        within = Spread(self.tally.readers, seconds, per_second).duration
        await self.plane.drain(seconds, per_second, within)

    async def take_over(self) -> int:
        return await self.plane.take_over()

    def close(self) -> None:
        self.plane.close()
