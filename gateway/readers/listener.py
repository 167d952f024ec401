"""The readers' listening socket.

Tornado's own accept handler lets EMFILE reach the event loop, which calls the handler again at
once: a gateway out of file descriptors would spin and log without end. This listener stops
accepting for a moment instead, and connections wait in the kernel's backlog. It also stops at a
limit of open connections, so that other parts of the gateway have file descriptors left.

A connection above its address's limit is accepted only to be refused. If a network fails silently,
its readers' dead connections stay open here, and block the same readers when it is back. So the
readers of a full address are asked for a sign of life: a reader that gives none is closed.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
import socket
from collections.abc import Callable
from typing import Final

from tornado.httpserver import HTTPServer

from gateway.process import measures
from gateway.process.descriptors import connections_at_most
from gateway.process.settings import GatewaySettings
from gateway.readers.admission import AdmissionDecision
from gateway.readers.budget import Budget, ReaderStream
from newsfabric.errors import ConfigError
from newsfabric.http.addresses import Addresses
from newsfabric.http.networks import parse_address, place_of
from newsfabric.http.pace import Rate, RateLimit
from newsfabric.line_limits import LineLimit

logger = logging.getLogger(__name__)

# accept(2): out of file descriptors (process, system) or of memory.
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE: Final = 0.5
_BACKLOG: Final = 1024
# Connections accepted in one turn of the event loop: a storm of readers must not stop the others.
_AT_ONCE: Final = 64
# Send buffer in the kernel for one reader (the kernel doubles the number). By default it grows to 4
# MiB, and no policy for slow readers reaches the messages in it.
_SEND_BUFFER: Final = 128 * 1024
# Limit of a stream's read-ahead; the largest thing that is read whole is an xhr_send.
_READ_BUFFER: Final = 256 * 1024
# Refusals under way at once for full addresses; above this, a connection gets no answer.
_TURNED_AWAY_AT_ONCE: Final = 1_000
# For one address: how often its readers are asked for signs of life at most.
_ROUNDS: Final = Rate(burst=1, per_second=0.1)


class ReaderListener:
    """An acceptor of connections for ``server``, from :meth:`start` until :meth:`stop`, at the
    address in ``settings``; ConfigError if that is taken.

    File descriptors limit all connections, ``settings`` the connections of one address. Bytes that
    wait for readers count in ``budget``.
    """

    def __init__(self, server: HTTPServer, budget: Budget, settings: GatewaySettings) -> None:
        self._server = server
        self._budget = budget
        self._most = connections_at_most()
        self._open = 0
        self._addresses = Addresses(settings.per_address)
        # By place, if there is a limit for each place.
        self._streams = StreamsByPlace() if settings.per_address else None
        self._rounds = RateLimit(_ROUNDS)
        self._turned_away = 0
        self._refusal_seconds = settings.unfinished_seconds
        self._pauses = LineLimit(every=60.0)
        self._loop = asyncio.get_running_loop()
        self._resume: asyncio.TimerHandle | None = None
        self._socket = listen(settings.host, settings.port)

    @property
    def port(self) -> int:
        """The port in use, also where any port was asked for (0)."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Accept connections from now on; also used to resume after a pause."""
        self._resume = None
        self._loop.add_reader(self._socket, self._accept)

    def stop(self) -> None:
        """Stop accepting, and close the socket. Idempotent."""
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            if self._open == self._most:
                self._pause(f"{self._open} connections are open")
                return
            try:
                connection, address = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as exc:
                if exc.errno not in _EXHAUSTED:
                    raise
                self._pause(str(exc.strerror))
                return
            if self._addresses.enter(address[0]):
                self._serve(connection, address)
            else:
                measures.REJECTED_CONNECTS.labels(AdmissionDecision.TOO_MANY.value).inc()
                self._probe(address[0])
                self._turn_away(connection, address)

    def _serve(self, connection: socket.socket, address: tuple[str, int]) -> None:
        self._open += 1
        closed = functools.partial(self._closed, address[0])
        stream = serve_connection(self._server, connection, address, self._budget, closed)
        if self._streams is not None:
            self._streams.add(address[0], stream)

    def _closed(self, address: str, stream: ReaderStream) -> None:
        self._open -= 1
        self._addresses.leave(address)
        if self._streams is not None:
            self._streams.remove(address, stream)

    def _turn_away(self, connection: socket.socket, address: tuple[str, int]) -> None:
        if self._turned_away >= _TURNED_AWAY_AT_ONCE:
            connection.close()
            return
        self._open += 1
        self._turned_away += 1

        def closed(_: ReaderStream) -> None:
            self._open -= 1
            self._turned_away -= 1
            # Otherwise the timers keep closed streams alive: more than the limit of refusals.
            timer.cancel()

        stream = serve_connection(self._server, connection, address, self._budget, closed)
        stream.turned_away = True
        timer = self._loop.call_later(self._refusal_seconds, stream.close)

    def _probe(self, address: str) -> None:
        """Ask the readers of ``address`` for a sign of life, unless they were asked lately."""
        if self._streams is None or self._rounds.seconds_to_wait(address, self._loop.time()):
            return
        self._streams.probe(address)

    def _pause(self, why: str) -> None:
        measures.ACCEPT_PAUSES.inc()
        skipped_lines = self._pauses.may_log(self._loop.time())
        if skipped_lines is not None:
            text = "no new connections for %.1f s at a time: %s (and %d more)"
            logger.warning(text, _PAUSE, why, skipped_lines)
        self._loop.remove_reader(self._socket)
        self._resume = self._loop.call_later(_PAUSE, self.start)


class StreamsByPlace:
    """The streams of readers, by the place under which their address is counted."""

    def __init__(self) -> None:
        self._streams: dict[bytes, set[ReaderStream]] = {}

    def add(self, address: str, stream: ReaderStream) -> None:
        """Add a stream of ``address`` that is served now."""
        self._streams.setdefault(_place(address), set()).add(stream)

    def remove(self, address: str, stream: ReaderStream) -> None:
        """Remove a stream of ``address`` that is closed."""
        left = self._streams[_place(address)]
        left.remove(stream)
        if not left:
            del self._streams[_place(address)]

    def probe(self, address: str) -> None:
        """Ask each stream at the place of ``address`` for a sign of life; without one it ends."""
        for stream in tuple(self._streams.get(_place(address), ())):
            if stream.probe is not None:
                stream.probe()


def _place(address: str) -> bytes:
    return place_of(parse_address(address))


def serve_connection(
    server: HTTPServer,
    connection: socket.socket,
    address: tuple[str, int],
    budget: Budget,
    closed: Callable[[ReaderStream], None],
) -> ReaderStream:
    """Serve a connected socket from which nothing was read yet. ``server`` owns it from here on.

    Bytes that wait for its reader count in ``budget``. ``closed`` is called once after the stream
    is closed, in a later turn of the event loop; never if this raises OSError.
    """
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = ReaderStream(connection, budget, lambda: closed(stream), max_buffer_size=_READ_BUFFER)
    server.handle_stream(stream, address)
    return stream


def listen(host: str, port: int) -> socket.socket:
    """Return a listening, non-blocking socket; raise ConfigError if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted connections inherit this option.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    try:
        listening.bind((host, port))
    except OSError as exc:
        listening.close()
        raise ConfigError(f"can't listen on {host} port {port}: {exc.strerror or exc}") from exc
    listening.listen(_BACKLOG)
    listening.setblocking(False)
    return listening
