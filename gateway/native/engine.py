"""The native engine: most readers' connections are in the data plane, a process beside ours.

What the data plane doesn't serve itself (SockJS's HTTP transports, SSE, pages) is served here
as the Tornado engine serves it. The hub is here, with what is remembered; the data plane has its
own readers' subscriptions alone, and is sent what each of them gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gateway.drain import Spread
from gateway.native import commands
from gateway.native.plane import Plane, State
from gateway.native.tally import Tally
from gateway.publication import Publication
from gateway.settings import GatewaySettings
from newsfabric.closing import INVALID_TOKEN, REBALANCE

# In one command.
_USERS: Final = 10_000


class NativeEngine:
    """The readers of ``plane``; an :class:`~gateway.engine.Engine`."""

    name: Final = "native"
    serves_websockets: Final = False

    def __init__(self, settings: GatewaySettings, plane: Plane) -> None:
        self.plane = plane
        #: What the data plane has counted.
        self.tally = Tally()
        self._settings = settings

    @property
    def dataplane_pid(self) -> int | None:
        """The data plane's process."""
        return self.plane.pid

    @property
    def is_there(self) -> bool:
        """Whether a data plane serves our readers."""
        return self.plane.state in (State.ATTACHED, State.DRAINING)

    @property
    def reader_count(self) -> int:
        """Readers connected there at the last :meth:`look`."""
        return self.tally.readers

    @property
    def connects(self) -> int:
        """Readers let in there since the start."""
        return self.tally.connects

    @property
    def deliveries(self) -> int:
        """Frames given to readers there since the start."""
        return self.tally.deliveries

    def publish(self, publication: Publication, done: Callable[[], None]) -> None:
        """As :meth:`Plane.publish`."""
        self.plane.publish(publication, done)

    def evict(self, revoked: Sequence[tuple[str, int]]) -> None:
        """Close the connections of users who were revoked at that time (ms)."""
        for start in range(0, len(revoked), _USERS):
            some = revoked[start : start + _USERS]
            self.plane.send(commands.evict(some, INVALID_TOKEN))

    def send_away(self, count: int) -> None:
        """Have ``count`` readers, or all if there are fewer, connect to another box."""
        self.plane.send(commands.shed(REBALANCE, count, self._settings.retry_after_ms))

    @property
    def outbox_bytes(self) -> int:
        """What waited for all of them there at the last :meth:`look`."""
        return self.tally["outbox_bytes"]

    @property
    def identities(self) -> int:
        """How many identities were remembered there at the last :meth:`look`."""
        return self.tally["identities"]

    async def look(self) -> None:
        """Have fresh counters."""
        await self.plane.count()

    async def drain(self) -> None:
        """Have the data plane send its readers away, and end."""
        seconds, per_second = self._settings.drain_seconds, self._settings.drain_per_second
        await self.plane.count()
        within = Spread(self.tally.readers, seconds, per_second).duration
        await self.plane.drain(seconds, per_second, within)

    async def take_over(self) -> int:
        """As :meth:`Plane.take_over`."""
        return await self.plane.take_over()

    def close(self) -> None:
        """Let go of the data plane; it goes on without us."""
        self.plane.close()
        self.tally.restart()
