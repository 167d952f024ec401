"""The service for one data plane: its readers' verbs are answered, its handovers are served.

The data plane is also sent the number of readers that it may have, and keeps the state of the logs
for a successor of this control plane.
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

from gateway.core.core import Core
from gateway.logs.logs import LogsSnapshot
from gateway.native import commands
from gateway.native.events import AttachedEvent, Event, FullEvent, HandoverEvent, RefusedEvent
from gateway.native.plane import Plane
from gateway.native.readers import NativeReaders
from gateway.native.saved_logs import UNKNOWN, decode_logs, encode_logs
from gateway.native.table import MAX_BLOB
from gateway.readers.budget import Budget, ReaderStream
from gateway.readers.listener import StreamsByPlace, serve_connection
from newsfabric.line_limits import LineLimit

logger = logging.getLogger(__name__)

_REMEMBER_SECONDS: Final = 1.0
# Bytes of the blob that are left for marks: about 3,500 messages.
_MARKS_ROOM: Final = 128 << 10
# Readers who arrive here leave less room there: for a crowd, one message in this time.
_RESIZE_SECONDS: Final = 0.1


class DataplaneService:
    """The handler of events of ``plane``, from now on and after each loss of the link.

    ``server`` takes the requests that are handed over; ``stop`` is set when another control plane
    has replaced this one.
    """

    def __init__(self, core: Core, plane: Plane, server: HTTPServer, stop: asyncio.Event) -> None:
        #: The state of the logs that the last control plane left; None if we are the first.
        self.left_logs: LogsSnapshot | None = None
        self._core = core
        self._plane = plane
        self._handovers = Handovers(plane, server, core.readers.budget)
        self._stop = stop
        self._readers = NativeReaders(core, plane)
        plane.on_event = self._on_event
        plane.room.answer = self._readers.answer

    def _on_event(self, event: Event, descriptor: int | None) -> None:
        match event:
            case AttachedEvent():
                self._on_attached(event)
            case HandoverEvent(address):
                self._handovers.on_handover(descriptor, address)
            case FullEvent(address):
                self._handovers.streams.probe(address)
            case RefusedEvent():
                logger.warning("another control plane has come: this one stops")
                self._stop.set()

    def _on_attached(self, event: AttachedEvent) -> None:
        self._readers.attached()
        # Some may have been revoked while the data plane wasn't notified.
        self._plane.evict(list(self._core.authenticator.revocations))
        if self._handovers.open:
            self._plane.send(commands.kept(self._handovers.open))
        if not event.blob or len(self._core.hub.logs):
            # We are the first control plane of this data plane, or were here before.
            return
        try:
            self.left_logs = decode_logs(event.blob)
        except ValueError as exc:
            logger.warning("the state of the last control plane can't be read: %s", exc)
            if event.readers:
                # We begin anew: readers would lack messages that are past here, and never get them.
                self._plane.send_away(event.readers)

    async def update_capacity(self) -> None:
        """Keep the data plane's limit of readers up to date, as soon as readers can be served: the
        capacity less the readers here."""
        readers = self._core.readers
        await self._core.follower.begun.wait()
        while True:
            readers.changed.clear()
            self._plane.resize(max(0, self._core.settings.capacity - len(readers.open)))
            await readers.changed.wait()
            await asyncio.sleep(_RESIZE_SECONDS)

    async def save_logs(self) -> None:
        """Leave the state of the logs with the data plane each second, once it is known."""
        await self._core.follower.begun.wait()
        too_much = LineLimit(every=60.0)
        while True:
            try:
                blob = encode_logs(self._core.hub.logs.snapshot(), MAX_BLOB - _MARKS_ROOM)
                self._plane.send(commands.remember(blob))
            except ValueError as exc:
                skipped_lines = too_much.may_log(self._core.clock())
                if skipped_lines is not None:
                    logger.warning(
                        "no state is left for a successor (and %d more): %s", skipped_lines, exc
                    )
                # With a part of the state, the successor would give messages again.
                self._plane.send(commands.remember(UNKNOWN))
            await asyncio.sleep(_REMEMBER_SECONDS)


class Handovers:
    """Requests that ``plane`` hands over, as descriptors, and how many of each address are open.

    The data plane counts connections by address. So it is notified when one ends, and a new
    attachment is sent all that are open. It hands over no more than ``handovers`` of the settings.
    """

    def __init__(self, plane: Plane, server: HTTPServer, budget: Budget) -> None:
        self.open: collections.Counter[str] = collections.Counter()
        self.streams = StreamsByPlace()
        self._plane = plane
        self._server = server
        self._budget = budget
        self._losses = LineLimit(every=60.0)

    def on_handover(self, descriptor: int | None, address: str) -> None:
        """Serve a request; ``descriptor`` is None if this process may have no more."""
        self.open[address] += 1
        if descriptor is None:
            self._close(address)
            skipped_lines = self._losses.may_log(asyncio.get_running_loop().time())
            if skipped_lines is not None:
                text = "a request is lost: out of descriptors (RLIMIT_NOFILE; and %d more)"
                logger.warning(text, skipped_lines)
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
            # The reader has left already.
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
