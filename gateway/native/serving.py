"""Serves one data plane: answers what its readers ask, and takes the requests that it hands over.

Beside that it tells the data plane how many readers it may have, and leaves with it what a
successor of this control plane has to know of the logs.
"""

from __future__ import annotations

import asyncio
import collections
import functools
import logging
import os
import socket
from typing import Final

from tornado.httpserver import HTTPServer

from gateway.budget import Budget, ReaderStream
from gateway.core import Core
from gateway.listener import StreamsByPlace, serve_connection
from gateway.logs import LeftLogs
from gateway.native import commands
from gateway.native.events import Attached, Event, Full, Handover, Refused
from gateway.native.marks import UNKNOWN, decode_marks, encode_marks
from gateway.native.plane import Plane
from gateway.native.readers import NativeReaders
from gateway.native.wire import MAX_BLOB
from newsfabric.line_limits import LineLimit

logger = logging.getLogger(__name__)

_REMEMBER_SECONDS: Final = 1.0
# Of the blob this is left for marks: about 3,500 messages.
_MARKS_ROOM: Final = 128 << 10
# A crowd that comes here leaves less room there, and is told in one go.
_RESIZE_SECONDS: Final = 0.1


class Serving:
    """Told what ``plane`` hears, now and after each loss of the link.

    ``server`` takes the requests that are handed over; ``stop`` is set when another control plane
    has come in our place.
    """

    def __init__(self, core: Core, plane: Plane, server: HTTPServer, stop: asyncio.Event) -> None:
        #: What the control plane before us knew of the logs; None if we are the first.
        self.left_logs: LeftLogs | None = None
        self._core = core
        self._plane = plane
        self._handovers = Handovers(plane, server, core.readers.budget)
        self._stop = stop
        self._readers = NativeReaders(core, plane)
        plane.on_event = self._on_event
        plane.room.answer = self._readers.answer

    def _on_event(self, event: Event, descriptor: int | None) -> None:
        match event:
            case Attached():
                self._on_attached(event)
            case Handover(address):
                self._handovers.take(descriptor, address)
            case Full(address):
                self._handovers.streams.ask_for_life(address)
            case Refused():
                logger.warning("another control plane has come: this one stops")
                self._stop.set()

    def _on_attached(self, event: Attached) -> None:
        self._readers.attached()
        # Some may have been revoked while nobody told it.
        self._plane.evict(list(self._core.gate.revocations))
        if self._handovers.open:
            self._plane.send(commands.kept(self._handovers.open))
        if not event.blob or len(self._core.hub.logs):
            # The first control plane of this data plane, or the one that was here before.
            return
        try:
            self.left_logs = decode_marks(event.blob)
        except ValueError as exc:
            logger.warning("what the last control plane left can't be read: %s", exc)
            if event.readers:
                # We begin anew: what is past here, and wasn't given to them, they would never get.
                self._plane.send_away(event.readers)

    async def share_room(self) -> None:
        """As soon as readers can be served there is room for them in the data plane, less that of
        readers here."""
        readers = self._core.readers
        await self._core.follower.begun.wait()
        while True:
            readers.changed.clear()
            self._plane.resize(max(0, self._core.settings.capacity - len(readers.open)))
            await readers.changed.wait()
            await asyncio.sleep(_RESIZE_SECONDS)

    async def leave_logs(self) -> None:
        """From then on the data plane is left, each second, what we know of the logs."""
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


class Handovers:
    """Requests that ``plane`` hands over, as descriptors, and how many of each address are open.

    The data plane counts connections by address, so it is told when one ends, and a new attachment
    is told of all that are open. It hands no more over than the settings allow (``handovers``).
    """

    def __init__(self, plane: Plane, server: HTTPServer, budget: Budget) -> None:
        self.open: collections.Counter[str] = collections.Counter()
        self.streams = StreamsByPlace()
        self._plane = plane
        self._server = server
        self._budget = budget
        self._losses = LineLimit(every=60.0)

    def take(self, descriptor: int | None, address: str) -> None:
        """Serve a request; ``descriptor`` is None if this process could have no more."""
        self.open[address] += 1
        if descriptor is None:
            self._close(address)
            unsaid = self._losses.may_log(asyncio.get_running_loop().time())
            if unsaid is not None:
                text = "a request is lost: out of descriptors (RLIMIT_NOFILE; and %d more)"
                logger.warning(text, unsaid)
            return
        try:
            connection = socket.socket(fileno=descriptor)
        except OSError:
            os.close(descriptor)
            self._close(address)
            return
        closed = functools.partial(self._close, address)
        try:
            served = serve_connection(self._server, connection, (address, 0), self._budget, closed)
        except OSError as exc:
            # The reader was quicker to leave than we to look.
            logger.debug("a handed over connection is of no use: %s", exc)
            connection.close()
            self._close(address)
        else:
            self.streams.add(address, served)

    def _close(self, address: str, stream: ReaderStream | None = None) -> None:
        if stream is not None:
            self.streams.remove(address, stream)
        self.open[address] -= 1
        if not self.open[address]:
            del self.open[address]
        self._plane.send(commands.gone(address))
