"""The readers' listening socket.

Tornado's own accept handler lets EMFILE go up to the loop, which calls it again at once: a
gateway out of descriptors would spin and log without end. This one stops listening for
a moment instead; the connections wait in the kernel's backlog. It also stops while so many of its
connections are open that the rest of the gateway would run out of them.

One connection more than its address may have is served to the extent that it is told so. A network
that has gone without a word leaves its readers here, who would stand in its way when it is back: so
those of an address without room are asked for a sign of life, and who gives none ends.
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

from gateway import measures
from gateway.admission import Welcome
from gateway.budget import Budget, ReaderStream
from gateway.descriptors import connections_at_most
from gateway.settings import GatewaySettings
from newsfabric.errors import ConfigError
from newsfabric.http.addresses import Addresses
from newsfabric.http.networks import parse_address, place_of
from newsfabric.http.pace import Pace, Rate
from newsfabric.line_limits import LineLimit

logger = logging.getLogger(__name__)

# accept(2): out of descriptors (process, system) or of memory.
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE: Final = 0.5
_BACKLOG: Final = 1024
# Accepted in one turn of the loop, so that a storm of readers doesn't stop the others.
_AT_ONCE: Final = 64
# What the kernel may hold for one reader (it doubles the number). Left to itself it takes up to
# 4 MiB, where no policy reaches the messages any more.
_SEND_BUFFER: Final = 128 * 1024
# A stream reads ahead at most so much; the largest thing that is read whole is an xhr_send.
_READ_BUFFER: Final = 256 * 1024
# Who are told that their address has no room, at once; beyond them there is no answer.
_TURNED_AWAY_AT_ONCE: Final = 1_000
# How often the readers of one address are asked for signs of life at most.
_ROUNDS: Final = Rate(burst=1, per_second=0.1)


class Listener:
    """Accepts connections for ``server`` from :meth:`start` until :meth:`stop`, at the address of
    ``settings``; ConfigError if it is taken.

    At most as many at once as descriptors allow, of one address as ``settings`` do. What waits for
    them counts in ``budget``.
    """

    def __init__(self, server: HTTPServer, budget: Budget, settings: GatewaySettings) -> None:
        self._server = server
        self._budget = budget
        self._most = connections_at_most()
        self._open = 0
        self._addresses = Addresses(settings.per_address)
        # By place, where a place has a bound.
        self._streams = StreamsByPlace() if settings.per_address else None
        self._rounds = Pace(_ROUNDS)
        self._turned_away = 0
        self._told_within = settings.unfinished_seconds
        self._pauses = LineLimit(every=60.0)
        self._loop = asyncio.get_running_loop()
        self._resume: asyncio.TimerHandle | None = None
        self._socket = listen(settings.host, settings.port)

    @property
    def port(self) -> int:
        """The port that it has, also where it was asked for any (0)."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Accept from now on. Also how it goes on after a pause."""
        self._resume = None
        self._loop.add_reader(self._socket, self._accept)

    def stop(self) -> None:
        """Accept no more, and close the socket. Idempotent."""
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
                measures.REJECTED_CONNECTS.labels(Welcome.TOO_MANY.value).inc()
                self._ask_for_life(address[0])
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
            # Else it would keep those who have left: more than are told at once.
            timer.cancel()

        stream = serve_connection(self._server, connection, address, self._budget, closed)
        stream.turned_away = True
        timer = self._loop.call_later(self._told_within, stream.close)

    def _ask_for_life(self, address: str) -> None:
        """Ask those of ``address`` for a sign of life, unless that was done lately."""
        if self._streams is None or self._rounds.ask(address, self._loop.time()):
            return
        self._streams.ask_for_life(address)

    def _pause(self, why: str) -> None:
        measures.ACCEPT_PAUSES.inc()
        unsaid = self._pauses.may_log(self._loop.time())
        if unsaid is not None:
            text = "no new connections for %.1f s at a time: %s (and %d more)"
            logger.warning(text, _PAUSE, why, unsaid)
        self._loop.remove_reader(self._socket)
        self._resume = self._loop.call_later(_PAUSE, self.start)


class StreamsByPlace:
    """The streams of readers, by what their addresses are counted under."""

    def __init__(self) -> None:
        self._streams: dict[bytes, set[ReaderStream]] = {}

    def add(self, address: str, stream: ReaderStream) -> None:
        """One of ``address`` is served."""
        self._streams.setdefault(_place(address), set()).add(stream)

    def remove(self, address: str, stream: ReaderStream) -> None:
        """It is closed."""
        left = self._streams[_place(address)]
        left.remove(stream)
        if not left:
            del self._streams[_place(address)]

    def ask_for_life(self, address: str) -> None:
        """Ask all of the place of ``address`` for a sign of life: who gives none makes room."""
        for stream in tuple(self._streams.get(_place(address), ())):
            if stream.ask_for_life is not None:
                stream.ask_for_life()


def _place(address: str) -> bytes:
    return place_of(parse_address(address))


def serve_connection(
    server: HTTPServer,
    connection: socket.socket,
    address: tuple[str, int],
    budget: Budget,
    closed: Callable[[ReaderStream], None],
) -> ReaderStream:
    """Serve a connected socket from which nothing was read yet. ``server`` owns it from here.

    What waits for it counts in ``budget``. ``closed`` is called once when it is closed, in a later
    turn; never if this raises OSError.
    """
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = ReaderStream(connection, budget, lambda: closed(stream), max_buffer_size=_READ_BUFFER)
    server.handle_stream(stream, address)
    return stream


def listen(host: str, port: int) -> socket.socket:
    """A listening, non-blocking socket; ConfigError if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted connections inherit it.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    try:
        listening.bind((host, port))
    except OSError as exc:
        listening.close()
        raise ConfigError(f"can't listen on {host} port {port}: {exc.strerror or exc}") from exc
    listening.listen(_BACKLOG)
    listening.setblocking(False)
    return listening
