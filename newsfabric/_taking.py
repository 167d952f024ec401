"""Streams of an HTTP server whose peers may take nothing of what they are answered.

Tornado keeps what the kernel doesn't take, without a bound and for as long as the connection is
open: sixty strangers who ask for megabytes and read none of it would have a frontdesk keep all of
them, for good. So what waits on all streams together has a bound, beyond which those with the most
are closed; and who has taken nothing for half a minute is closed, however little that is.

Not for a gateway, whose readers are told why they are closed (:mod:`gateway.budget`).
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Final

from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop, PeriodicCallback
from tornado.iostream import IOStream

#: Bytes that may wait on all streams of a server; one answer may be more, alone.
MOST_BYTES: Final = 64 << 20
#: Seconds in which a peer must take something.
PATIENCE: Final = 30.0
_LOOK_SECONDS: Final = 1.0


class Taking:
    """The streams of one server on which something waits. ``clock`` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float], most_bytes: int, patience: float) -> None:
        self._clock = clock
        self._most_bytes = most_bytes
        self._patience = patience
        # How much each has sent ever, and since when that is so.
        self._waiting: dict[WatchedStream, tuple[int, float]] = {}

    def waits(self, stream: WatchedStream) -> None:
        """The kernel didn't take all of what was written to ``stream``."""
        self._waiting.setdefault(stream, (stream.sent, self._clock()))
        self._make_room(stream)

    def look(self) -> None:
        """Close those who have taken nothing for too long."""
        now = self._clock()
        for stream, (sent, since) in list(self._waiting.items()):
            if not stream.waiting:
                del self._waiting[stream]
            elif stream.sent != sent:
                self._waiting[stream] = stream.sent, now
            elif now - since >= self._patience:
                self._close(stream)

    def _make_room(self, last: WatchedStream) -> None:
        """Close those with the most; of equals ``last``, in whose answer we are, not first."""
        waiting = {stream: stream.waiting for stream in self._waiting}
        total = sum(waiting.values())
        if total <= self._most_bytes:
            return
        order = sorted(waiting, key=lambda one: (-waiting[one], one is last))
        for stream in order[: max(0, len(order) - 1)]:
            if total <= self._most_bytes:
                return
            total -= waiting[stream]
            self._close(stream)

    def _close(self, stream: WatchedStream) -> None:
        self._waiting.pop(stream, None)
        stream.close()


class WatchedStream(IOStream):
    """A stream whose :class:`Taking` hears what waits."""

    def __init__(self, connection: socket.socket, taking: Taking, **options: Any) -> None:
        self._taking = taking
        super().__init__(connection, **options)

    @property
    def waiting(self) -> int:
        """Bytes that the kernel hasn't taken."""
        return 0 if self.closed() else len(self._write_buffer)

    @property
    def sent(self) -> int:
        """Bytes that it has taken of what it didn't take at once, since the beginning."""
        return self._total_write_done_index

    def write(self, data: bytes | memoryview) -> Any:
        """As :meth:`IOStream.write`."""
        written = super().write(data)
        if self.writing():
            self._taking.waits(self)
        return written


class TakingServer(HTTPServer):
    """An :class:`HTTPServer` that keeps ``most_bytes`` at most for peers who take nothing."""

    def initialize(
        self, *args: Any, most_bytes: int = MOST_BYTES, patience: float = PATIENCE, **options: Any
    ) -> None:
        """As :meth:`HTTPServer.initialize`."""
        super().initialize(*args, **options)
        self.taking = Taking(IOLoop.current().time, most_bytes, patience)
        every = min(_LOOK_SECONDS, patience / 4)
        self._looking = PeriodicCallback(self.taking.look, every * 1000)
        self._looking.start()

    def stop(self) -> None:
        """As :meth:`HTTPServer.stop`."""
        super().stop()
        self._looking.stop()

    def _handle_connection(self, connection: socket.socket, address: Any) -> None:
        # Tornado makes streams here, and nowhere else can one put another in their place.
        stream = WatchedStream(connection, self.taking, max_buffer_size=self.max_buffer_size)
        self.handle_stream(stream, address)
