"""Streams of an HTTP server with a bound for peers that don't read their responses.

Tornado keeps the bytes that the kernel doesn't take, without a bound and for as long as the
connection is open: sixty strangers who request megabytes and read nothing would have a frontdesk
keep all of them, for good. So the waiting bytes of all streams together have a bound, beyond which
the streams with the most are closed. A peer that took no byte for half a minute is closed.

A request whose head is too long is answered with 431; Tornado would just close the connection.

One address may have a limited number of connections, where that is set. A request on a further
connection is answered with 429, in JSON as a frontdesk's errors: a hundred at once, others are
closed silently.

A gateway sends its readers the reason of a close, so it uses only the streams of this module
(:mod:`gateway.readers.budget`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, Protocol

import orjson
from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop, PeriodicCallback
from tornado.iostream import IOStream, SSLIOStream, StreamClosedError, UnsatisfiableReadError

from newsfabric import metrics
from newsfabric.closing import ADDRESS_FULL
from newsfabric.http.addresses import Addresses

#: Bytes that may wait on all streams of a server; a single response may exceed it, alone.
MOST_BYTES: Final = 64 << 20
#: Seconds in which a peer must take at least one byte.
PATIENCE: Final = 30.0
_LOOK_SECONDS: Final = 1.0
# RFC 6585 section 5.
_HEAD_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"Content-Type: text/plain; charset=utf-8\r\n"
    b"Cache-Control: no-store\r\n"
    b"Content-Length: 14\r\n"
    b"Connection: close\r\n\r\n"
    b"head too large"
)
# Seconds, and bytes per read, of dropping such a head: a reset would destroy the response.
_DROPPED_SECONDS: Final = 2.0
_DROPPED_BYTES: Final = 64 * 1024
REFUSED: Final = metrics.counter(
    "service_refused_connections", "Connections refused: their address had too many"
)
_FULL: Final = orjson.dumps({"error": {"reason": ADDRESS_FULL.name, "detail": ADDRESS_FULL.text}})
# RFC 6585 section 4. Pages of any origin may read it, like all errors of a frontdesk.
_ADDRESS_FULL: Final = (
    b"HTTP/1.1 429 Too Many Requests\r\n"
    b"Content-Type: application/json\r\n"
    b"Cache-Control: no-store\r\n"
    b"Access-Control-Allow-Origin: *\r\n"
    b"Retry-After: %d\r\n"
    b"Content-Length: %d\r\n"
    b"Connection: close\r\n\r\n%b"
) % (math.ceil(ADDRESS_FULL.retry_after_ms / 1000), len(_FULL), _FULL)
# Connections that are only sent the refusal: so many at once, and for so many seconds each.
_NOTICES_AT_ONCE: Final = 100
_NOTICE_SECONDS: Final = 10.0


class Taking:
    """The streams of one server on which bytes wait. ``clock`` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float], most_bytes: int, patience: float) -> None:
        self._clock = clock
        self._most_bytes = most_bytes
        self._patience = patience
        # Bytes that each stream has sent in all, and since when that number is unchanged.
        self._waiting: dict[WatchedStream, tuple[int, float]] = {}

    def waits(self, stream: WatchedStream) -> None:
        """Note that the kernel didn't take all bytes written to ``stream``."""
        self._waiting.setdefault(stream, (stream.sent, self._clock()))
        self._make_room(stream)

    def close_stalled(self) -> None:
        """Close streams whose peers have taken nothing for too long."""
        now = self._clock()
        for stream, (sent, since) in list(self._waiting.items()):
            if not stream.waiting:
                del self._waiting[stream]
            elif stream.sent != sent:
                self._waiting[stream] = stream.sent, now
            elif now - since >= self._patience:
                self._close(stream)

    def _make_room(self, last: WatchedStream) -> None:
        """Close the fullest streams; of equals, ``last``, which is being written, is the last."""
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


class Watcher(Protocol):
    """An observer of streams with waiting bytes, like :class:`Taking`."""

    def waits(self, stream: Any, /) -> None:
        """Note that the kernel didn't take all bytes written to ``stream``."""


class WatchedStream(IOStream):
    """A stream that reports waiting bytes to its watcher. ``on_closed`` is called once when the
    socket is closed, whichever code owns the stream by then."""

    def __init__(
        self,
        connection: socket.socket,
        watcher: Watcher,
        on_closed: Callable[[], None],
        **options: Any,
    ) -> None:
        self._watcher = watcher
        self._on_closed = on_closed
        super().__init__(connection, **options)

    @property
    def waiting(self) -> int:
        """Bytes that the kernel hasn't taken."""
        return 0 if self.closed() else len(self._write_buffer)

    @property
    def sent(self) -> int:
        """Bytes that the kernel took, but not at once, since the beginning."""
        return self._total_write_done_index

    def close(self, exc_info: Any = False) -> None:
        """Close as :meth:`IOStream.close`; first answer a request's head that is too long."""
        # Only heads are read up to a pattern.
        is_head = isinstance(exc_info, UnsatisfiableReadError) and self._read_regex is not None
        if is_head and not self.closed() and not self.writing():
            self._refuse_head()
        else:
            super().close(exc_info)

    def _refuse_head(self) -> None:
        try:
            self.write_to_fd(memoryview(_HEAD_TOO_LARGE))
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            super().close()
            return
        if self._state is not None:
            self.io_loop.remove_handler(self.fileno())
        self._state = self.io_loop.READ
        self.io_loop.add_handler(self.fileno(), self._drop, self._state)
        self.io_loop.call_later(_DROPPED_SECONDS, self.close)

    def _drop(self, _fd: Any, _events: int) -> None:
        try:
            dropped = self.socket.recv(_DROPPED_BYTES)
        except BlockingIOError:
            return
        except OSError:
            dropped = b""
        if not dropped:
            self.close()

    def close_fd(self) -> None:
        """Close as :meth:`IOStream.close_fd`; its address has room for another connection."""
        super().close_fd()
        self._on_closed()

    def write(self, data: bytes | memoryview) -> Any:
        """Write as :meth:`IOStream.write`, and count bytes that the kernel doesn't take at once."""
        written = super().write(data)
        if self.writing():
            self._watcher.waits(self)
        return written


class WatchedTlsStream(WatchedStream, SSLIOStream):
    """A :class:`WatchedStream` over TLS."""


class TakingServer(HTTPServer):
    """An :class:`HTTPServer` that keeps at most ``most_bytes`` for peers that don't read, and at
    most ``per_address`` connections of one address (0: any number)."""

    def initialize(
        self,
        *args: Any,
        most_bytes: int = MOST_BYTES,
        patience: float = PATIENCE,
        per_address: int = 0,
        **options: Any,
    ) -> None:
        """Set up as :meth:`HTTPServer.initialize`."""
        super().initialize(*args, **options)
        self._addresses = Addresses(per_address)
        self._notices: set[asyncio.Task[None]] = set()
        self.taking = Taking(IOLoop.current().time, most_bytes, patience)
        every = min(_LOOK_SECONDS, patience / 4)
        self._looking = PeriodicCallback(self.taking.close_stalled, every * 1000)
        self._looking.start()

    def stop(self) -> None:
        """Stop as :meth:`HTTPServer.stop`; streams aren't closed for taking nothing any more."""
        super().stop()
        self._looking.stop()
        for task in self._notices:
            task.cancel()

    def _handle_connection(self, connection: socket.socket, address: Any) -> None:
        if self._addresses.enter(address[0]):
            left = functools.partial(self._addresses.leave, address[0])
            stream = self._stream_of(connection, left)
            if stream is not None:
                self.handle_stream(stream, address)
            return
        REFUSED.inc()
        if len(self._notices) >= _NOTICES_AT_ONCE:
            connection.close()
            return
        stream = self._stream_of(connection, lambda: None)
        if stream is not None:
            task = asyncio.ensure_future(_turn_away(stream))
            self._notices.add(task)
            task.add_done_callback(self._notices.discard)

    def _stream_of(
        self, connection: socket.socket, left: Callable[[], None]
    ) -> WatchedStream | None:
        """Return ``connection`` as a stream, which calls ``left`` at its end; None if it is
        gone."""
        # Tornado makes streams here, the only place where they can be replaced.
        kind = WatchedStream
        if isinstance(self.ssl_options, ssl.SSLContext):
            kind = WatchedTlsStream
            try:
                connection = self.ssl_options.wrap_socket(
                    connection, server_side=True, do_handshake_on_connect=False
                )
            except OSError:
                # The peer has closed the connection, as in a port scan.
                connection.close()
                left()
                return None
        return kind(connection, self.taking, left, max_buffer_size=self.max_buffer_size)


async def _turn_away(stream: WatchedStream) -> None:
    """Answer the request on a connection whose address has no room, and close."""
    with contextlib.closing(stream), contextlib.suppress(StreamClosedError, TimeoutError, OSError):
        async with asyncio.timeout(_NOTICE_SECONDS):
            await stream.read_until(b"\r\n\r\n", max_bytes=_DROPPED_BYTES)
            await stream.write(_ADDRESS_FULL)
            if not isinstance(stream, SSLIOStream):
                stream.socket.shutdown(socket.SHUT_WR)
            # A body that still arrives would reset the connection, and destroy the response.
            while True:
                await stream.read_bytes(_DROPPED_BYTES, partial=True)
