"""The native engine's core: a Tornado core for handed-over requests, and the data plane beside it.

What the data plane doesn't serve itself (SockJS's HTTP transports, SSE, pages) is served here
as the Tornado engine serves it, from a hub of its own. That hub gets every publication too, but
its memory is small: few readers ask it for the past, and the store has the rest.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tornado.httpserver import HTTPServer

from gateway import measures
from gateway.connection import Connection
from gateway.core import Core
from gateway.drain import Pace
from gateway.hub import HubLimits
from gateway.listener import serve_connection
from gateway.logs import LeftLogs
from gateway.native import commands
from gateway.native.events import Attached, Uncovered
from gateway.native.marks import decode_marks, encode_marks
from gateway.native.plane import Plane, State
from gateway.native.program import control_socket
from gateway.native.tally import Tally
from gateway.native.verbs import NativeDesk
from gateway.native.wire import MAX_BLOB
from gateway.publication import Publication
from gateway.settings import GatewaySettings
from newsfabric.closing import INVALID_TOKEN, REBALANCE
from newsfabric.seldom import Seldom
from newsfabric.service import Readiness
from newsfabric.store import Store
from newsfabric.topics import TopicTable

logger = logging.getLogger(__name__)

_HUB_BYTES: Final = 16 << 20
_HUB_TOPICS: Final = 2_000
# In one command.
_USERS: Final = 10_000
_REMEMBER_SECONDS: Final = 1.0
# Readers here leave less room there; a crowd that comes is told in one go.
_RESIZE_SECONDS: Final = 0.1


class NativeCore(Core):
    """One gateway whose WebSocket readers are in the data plane."""

    upgrades = False

    def __init__(
        self,
        settings: GatewaySettings,
        table: TopicTable,
        store: Store,
        program: Path,
        stop: asyncio.Event,
    ) -> None:
        super().__init__(dataclasses.replace(settings, hub=_small(settings.hub)), table, store)
        self.plane = Plane(settings, program, control_socket(settings), self)
        # What serves requests that are handed over; until it is set they are turned away.
        self.server: HTTPServer | None = None
        # What the control plane before us knew of the logs; None if we are the first.
        self.left_logs: LeftLogs | None = None
        # New readers are turned away until they can be served.
        self.plane.resize(0)
        self._tally = Tally()
        # The data plane whose counters they are.
        self._tallied: int | None = None
        self._stop = stop
        self._resizing: asyncio.TimerHandle | None = None
        self._answers = NativeDesk(
            told=settings,
            table=table,
            hub=self.hub,
            archive=self.archive,
            resumer=self.resumer,
            plane=self.plane,
            mailroom=self.mailroom,
            upstream=self.upstream,
            gate=self.gate,
            spawn=self.spawn,
            can_serve=lambda: self.follower.has_begun,
        )

    # What the rest of the gateway asks.

    @property
    def readers(self) -> int:
        """Readers connected now, here and in the data plane."""
        return len(self.connections) + self._tally.readers

    @property
    def connects(self) -> int:
        """Readers let in since the start, here and there."""
        return self.let_in + self._tally.connects

    @property
    def deliveries(self) -> int:
        """Frames given to readers since the start, here and there."""
        return self.fanout.deliveries + self._tally.deliveries

    def _spread(self, publication: Publication, done: Callable[[], None]) -> None:
        left = 2

        def one_done() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done()

        self.plane.publish(publication, one_done)
        audience = self.hub.audience(publication.envelope.topic)
        if audience:
            self.fanout.publish(publication, audience, one_done)
        else:
            one_done()

    @property
    def engine(self) -> dict[str, str | int | None]:
        """Which engine runs, in which processes."""
        return super().engine | {"engine": "native", "dataplane_pid": self.plane.pid}

    def readiness(self) -> Readiness:
        """Whether readers should be sent here: also, whether there is a data plane."""
        here = super().readiness()
        if self.plane.state in (State.ATTACHED, State.DRAINING):
            return here
        return Readiness(False, (*here.waiting_for, "dataplane"))

    async def look(self) -> None:
        """Bring everything up to date that is counted in the data plane."""
        await super().look()
        await self.plane.count()
        measures.TOPICS.set(self._tally["topics"])
        measures.MEMORY.set(self._tally["memory_bytes"])
        measures.IDENTITIES.set(self._tally["identities"])
        measures.OUTBOXES.set(self.budget.waiting_bytes + self._tally["outbox_bytes"])

    def send_elsewhere(self, count: int) -> None:
        """Have ``count`` readers, of those here and of the data plane's, connect to another box."""
        here = count * len(self.connections) // max(1, self.readers)
        super().send_elsewhere(here)
        self.plane.send(commands.shed(REBALANCE, count - here, self.settings.retry_after_ms))

    async def drain_elsewhere(self) -> None:
        """Have the data plane send its readers away, and end."""
        seconds, per_second = self.settings.drain_seconds, self.settings.drain_per_second
        await self.plane.count()
        patience = Pace(self._tally.readers, seconds, per_second).duration
        await self.plane.drain(seconds, per_second, patience)

    async def take_over(self) -> int:
        """Have a new data plane take over from ours, readers and all."""
        return await self.plane.take_over()

    def joined(self, connection: Connection) -> None:
        """A reader has come to this process."""
        super().joined(connection)
        self._resize_soon()

    def leaving(self, connection: Connection) -> None:
        """One leaves it."""
        super().leaving(connection)
        self._resize_soon()

    def evict(self, revoked: Sequence[tuple[str, int]]) -> None:
        """Close the connections of users who were revoked, here and there."""
        super().evict(revoked)
        self._evict_there(revoked)

    async def close(self) -> None:
        """Let go of the data plane, and of the rest."""
        self.plane.close()
        if self._resizing is not None:
            self._resizing.cancel()
        self._tally.restart()
        await super().close()

    # What the data plane tells.

    def attached(self, event: Attached) -> None:
        """The data plane is there, with or without readers."""
        self._answers.attached()
        # Some may have been revoked while nobody told it.
        self._evict_there(list(self.gate.revocations))
        if self._tallied != event.pid:
            self._tally.restart()
            self._tallied = event.pid
        if not event.blob or len(self.hub.logs):
            # The first control plane of this data plane, or the one that was here before.
            return
        try:
            self.left_logs = decode_marks(event.blob)
        except ValueError as exc:
            logger.warning("what the last control plane left can't be read: %s", exc)
            if event.readers:
                # We begin anew: what is past here, and wasn't given to them, they would never get.
                wait_ms = self.settings.retry_after_ms
                self.plane.send(commands.shed(REBALANCE, event.readers, wait_ms))

    def replaced(self) -> None:
        """Another control plane serves our readers now."""
        logger.warning("another control plane has come: this one stops")
        self._stop.set()

    def verb(self, connection: bytes, badge: bytes, text: bytes) -> None:
        """A reader there has said something."""
        self._answers.answer(connection, badge, text)

    def uncovered(self, event: Uncovered) -> None:
        """A reader there asks for what only the store has."""
        self._answers.uncovered(event)

    def handed_over(
        self, connection: socket.socket, address: str, closed: Callable[[], None]
    ) -> None:
        """A request to be served here."""
        if self.server is None:
            connection.close()
            closed()
        else:
            serve_connection(self.server, connection, (address, 0), self.budget, closed)

    def counted(self, values: dict[str, int]) -> None:
        """The data plane's counters."""
        self._tally.update(values)

    # What goes on beside.

    async def remember(self) -> None:
        """Leave with the data plane, each second, what we know of the logs."""
        await self.follower.begun()
        too_much = Seldom(every=60.0)
        while True:
            try:
                self.plane.send(commands.remember(encode_marks(self.hub.logs.left(), MAX_BLOB)))
            except ValueError as exc:
                unsaid = too_much.may_say(self.clock())
                if unsaid is not None:
                    logger.warning("nothing is left to a successor (and %d more): %s", unsaid, exc)
            await asyncio.sleep(_REMEMBER_SECONDS)

    def _evict_there(self, revoked: Sequence[tuple[str, int]]) -> None:
        for start in range(0, len(revoked), _USERS):
            some = revoked[start : start + _USERS]
            self.plane.send(commands.evict(some, INVALID_TOKEN))

    def _resize_soon(self) -> None:
        if self._resizing is None:
            loop = asyncio.get_running_loop()
            self._resizing = loop.call_later(_RESIZE_SECONDS, self._resize)

    def _resize(self) -> None:
        self._resizing = None
        here = self.settings.capacity - len(self.connections)
        self.plane.resize(max(0, here) if self.follower.has_begun else 0)

    async def let_readers_in(self) -> None:
        """There is room for readers in the data plane, as soon as they can be served."""
        await self.follower.begun()
        self._resize()


def _small(limits: HubLimits) -> HubLimits:
    return dataclasses.replace(
        limits,
        topics=min(limits.topics, _HUB_TOPICS),
        memory_bytes=min(limits.memory_bytes, _HUB_BYTES),
    )
