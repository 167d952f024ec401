"""Serves one data plane: answers what its readers ask, and takes the requests that it hands over.

Beside that it tells the data plane how many readers it may have, and leaves with it what a
successor of this control plane has to know of the logs.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from tornado.httpserver import HTTPServer

from gateway.core import Core
from gateway.listener import serve_connection
from gateway.logs import LeftLogs
from gateway.native import commands
from gateway.native.engine import NativeEngine
from gateway.native.events import Attached
from gateway.native.marks import UNKNOWN, decode_marks, encode_marks
from gateway.native.readers import NativeReaders
from gateway.native.wire import MAX_BLOB
from newsfabric.closing import REBALANCE
from newsfabric.line_limits import LineLimit

logger = logging.getLogger(__name__)

_REMEMBER_SECONDS: Final = 1.0
# Of the blob this is left for marks: about 3,500 messages.
_MARKS_ROOM: Final = 128 << 10
# Readers here leave less room there; a crowd that comes is told in one go.
_RESIZE_SECONDS: Final = 0.1


class Serving:
    """What the data plane tells is told to this: a :class:`~gateway.native.plane.EventHandler`.

    ``server`` takes the requests that are handed over; ``stop`` is set when another control plane
    has come in our place.
    """

    def __init__(
        self, core: Core, engine: NativeEngine, server: HTTPServer, stop: asyncio.Event
    ) -> None:
        #: What the control plane before us knew of the logs; None if we are the first.
        self.left_logs: LeftLogs | None = None
        self._core = core
        self._engine = engine
        self._plane = engine.plane
        self._server = server
        self._stop = stop
        # The data plane whose counters the tally has.
        self._tallied: int | None = None
        self._resizing: asyncio.TimerHandle | None = None
        self._readers = NativeReaders(
            settings=core.settings,
            table=core.table,
            plane=engine.plane,
            desk=core.desk,
            spawn=core.spawn,
        )
        core.readers.changed = self._resize_soon

    # What the data plane tells.

    def attached(self, event: Attached) -> None:
        """The data plane is there, with or without readers."""
        self._readers.attached()
        # Some may have been revoked while nobody told it.
        self._engine.evict(list(self._core.gate.revocations))
        if self._tallied != event.pid:
            self._engine.tally.restart()
            self._tallied = event.pid
        if not event.blob or len(self._core.hub.logs):
            # The first control plane of this data plane, or the one that was here before.
            return
        try:
            self.left_logs = decode_marks(event.blob)
        except ValueError as exc:
            logger.warning("what the last control plane left can't be read: %s", exc)
            if event.readers:
                # We begin anew: what is past here, and wasn't given to them, they would never get.
                wait_ms = self._core.settings.retry_after_ms
                self._plane.send(commands.shed(REBALANCE, event.readers, wait_ms))

    def replaced(self) -> None:
        """Another control plane serves our readers now."""
        logger.warning("another control plane has come: this one stops")
        self._stop.set()

    def verb(self, connection: bytes, auth: bytes, text: bytes) -> None:
        """A reader there has said something."""
        self._readers.answer(connection, auth, text)

    def handed_over(
        self, connection: socket.socket, address: str, closed: Callable[[], None]
    ) -> None:
        """A request to be served here."""
        budget = self._core.readers.budget
        serve_connection(self._server, connection, (address, 0), budget, closed)

    def counted(self, values: dict[str, int]) -> None:
        """The data plane's counters."""
        self._engine.tally.update(values)

    # What goes on beside.

    async def remember(self) -> None:
        """Leave with the data plane, each second, what we know of the logs."""
        await self._core.follower.begun.wait()
        too_much = LineLimit(every=60.0)
        while True:
            try:
                blob = encode_marks(self._core.hub.logs.left(), MAX_BLOB - _MARKS_ROOM)
                self._plane.send(commands.remember(blob))
            except ValueError as exc:
                unsaid = too_much.may_log(self._core.clock())
                if unsaid is not None:
                    logger.warning("nothing is left to a successor (and %d more): %s", unsaid, exc)
                # Less than all of it would have the successor give messages again.
                self._plane.send(commands.remember(UNKNOWN))
            await asyncio.sleep(_REMEMBER_SECONDS)

    async def let_readers_in(self) -> None:
        """There is room for readers in the data plane, as soon as they can be served."""
        await self._core.follower.begun.wait()
        self._resize()

    def close(self) -> None:
        """Stop looking after the data plane's room."""
        self._core.readers.changed = lambda: None
        if self._resizing is not None:
            self._resizing.cancel()

    def _resize_soon(self) -> None:
        if self._resizing is None:
            loop = asyncio.get_running_loop()
            self._resizing = loop.call_later(_RESIZE_SECONDS, self._resize)

    def _resize(self) -> None:
        self._resizing = None
        here = self._core.settings.capacity - len(self._core.readers.open)
        self._plane.resize(max(0, here) if self._core.follower.begun.is_set() else 0)
