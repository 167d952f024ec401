"""Connections that own a socket for as long as they live: WebSocket and SSE.

The HTTP server hands over its stream after the request's head. Frames are given to the kernel
directly, at half the cost (docs/design/0005). Only bytes that the kernel doesn't take go through
Tornado's stream, which reports when there is room again.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import enum
import math
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import tornado.web
from tornado.iostream import StreamClosedError

from gateway.answers.access import ANONYMOUS, AuthState, refusal
from gateway.answers.subscribe import Subscribe
from gateway.readers.admission import AdmissionDecision
from gateway.readers.budget import ReaderStream
from gateway.readers.connection import Connection, OpenReaders
from gateway.wire.protocol import VerbRefusal, error_push
from newsfabric.closing import ADDRESS_FULL, NO_PONG, ErrorCode
from newsfabric.process.service import HeadHandler, answer_preflight, methods_of

if TYPE_CHECKING:
    from gateway.core.core import Core

#: In the head of every streamed answer: nginx passes the bytes on at once.
UNBUFFERED: Final = {"X-Accel-Buffering": "no"}
_READ_BYTES: Final = 64 * 1024
#: The time to give a sign of life that was asked for out of turn.
ANSWER_SECONDS: Final = 4.0
_STATUS: Final = {
    ErrorCode.INTERNAL: 503,
    ErrorCode.UNAUTHORIZED: 401,
    ErrorCode.TOKEN_EXPIRED: 401,
    ErrorCode.PERMISSION_DENIED: 403,
    ErrorCode.UNKNOWN_TOPIC: 404,
    ErrorCode.TOO_MANY_REQUESTS: 429,
}


class AfterGoodbye(enum.Enum):
    """The step after the last byte of a goodbye."""

    WAIT = "the reader answers, then hangs up"
    HALF_CLOSE = "no more comes from us; what the reader still sends is dropped"
    HANG_UP = "the stream is closed"


class StreamConnection(Connection):
    """A connection on a TCP stream of its own. ``heartbeat`` keeps proxies from closing it."""

    heartbeat: bytes

    def __init__(self, readers: OpenReaders, stream: ReaderStream) -> None:
        super().__init__(readers)
        self._stream = self.stream = stream
        stream.reader = self
        stream.probe = self.probe
        # Kept, because a stream forgets its socket when it closes.
        self._socket = stream.socket
        # The time of the last sign of life that the transport can know of.
        self._received_at = readers.clock()
        # The time of the last heartbeat, which asks for a sign of life.
        self._beaten_at = self._received_at
        # Runs while a sign of life is awaited out of turn.
        self._asked: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._after_goodbye = AfterGoodbye.WAIT
        if stream.writing():
            # An earlier answer on this connection is still on its way: write behind it.
            self.blocked = True
            stream.write(b"").add_done_callback(self._on_room)

    def probe(self) -> None:
        """End the connection unless something is heard soon.

        A reader who hasn't taken all bytes is left alone: the heartbeat would wait behind them.
        """
        if self.is_open and not self.blocked and self._asked is None:
            self._write([self.heartbeat])
            now = self.readers.clock()
            self._asked = self._loop.call_later(ANSWER_SECONDS, self._end_unless_received, now)

    def _end_unless_received(self, asked_at: float) -> None:
        self._asked = None
        self._listen()
        if (
            self.is_open
            and not self.blocked
            and self._received_at < asked_at
            and self._nothing_unread()
        ):
            self.close(NO_PONG)
            # A dead reader answers no goodbye either, and others wait for its place.
            self._stream.close()

    def _listen(self) -> None:
        """Note a sign of life other than received bytes."""

    async def run(self) -> None:
        """Serve the connection until it ends. Its owner is the HTTP handler that awaits this."""
        if self.is_open:
            self.start_heartbeats()
        try:
            while True:
                data = await self._stream.read_bytes(_READ_BYTES, partial=True)
                self._on_bytes(data)
                # A reader who sends without pause must not keep the event loop to itself.
                await asyncio.sleep(0)
        except StreamClosedError:
            pass
        finally:
            self._stream.close()
            self._stop_timers()
            self.lost()

    @abc.abstractmethod
    def _on_bytes(self, data: bytes) -> None:
        """Handle bytes received from the reader."""

    def _write(self, frames: list[bytes]) -> None:
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            # The read in run() fails next and reports it. Nothing more can be written.
            self.blocked = True
            self._stream.close()
            return
        if sent < len(data):
            self.blocked = True
            rest = self._stream.write(memoryview(data)[sent:])
            rest.add_done_callback(self._on_room)

    def _on_room(self, written: asyncio.Future[None]) -> None:
        if not written.cancelled() and written.exception() is None:
            self.unblocked()

    def _heartbeat(self) -> None:
        self._listen()
        if self._is_silent():
            self.close(NO_PONG)
            return
        self._beaten_at = self.readers.clock()
        if not self.blocked:
            self._write([self.heartbeat])

    def _is_silent(self) -> bool:
        """Return whether nothing was heard for a heartbeat before the last one, nor since.

        Two heartbeats of silence aren't enough: this process may have stood still, and have asked
        for no sign of life. A reader whose bytes wait here unread isn't silent either.
        """
        late = self._beaten_at - self._received_at > self.settings.heartbeat
        return late and self._nothing_unread()

    def _nothing_unread(self) -> bool:
        """Return whether no received bytes wait unread."""
        if not self._stream.reading():
            return False
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            # The read in run() fails next and reports it.
            pass
        return False

    def _send_last(self, last: bytes, ending: AfterGoodbye) -> None:
        """Send the last bytes and end. After the linger the stream is closed in any case."""
        self._stop_timers()
        self._linger = self._loop.call_later(self.settings.linger, self._stream.close)
        self._after_goodbye = ending
        self._firm(last)
        if not self.blocked:
            self._all_sent()

    def _all_sent(self) -> None:
        if self._after_goodbye is AfterGoodbye.HANG_UP:
            self._stream.close()
        elif self._after_goodbye is AfterGoodbye.HALF_CLOSE:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def _stop_timers(self) -> None:
        self.stop_heartbeats()
        for timer in (self._asked, self._linger):
            if timer is not None:
                timer.cancel()


class ReaderHandler(tornado.web.RequestHandler):
    """Base of all handlers of readers' requests."""

    core: Core

    def set_default_headers(self) -> None:
        """Remove the Server header; Tornado calls this before each answer."""
        self.clear_header("Server")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Send 405 as RFC 9110 section 15.5.6 and SockJS 1.0 want it: ``Allow``, and no body."""
        if status_code != 405:
            super().write_error(status_code, **kwargs)
            return
        self.set_header("Allow", methods_of(self))
        self.clear_header("Content-Type")
        self.finish()

    def _is_welcome(self) -> bool:
        """Return whether a new reader may come in; if not, the refusal is sent."""
        verdict = self.core.admission.decide(self.request.headers)
        if verdict is not AdmissionDecision.YES:
            self._turn_away(verdict)
        return verdict is AdmissionDecision.YES

    def _turn_away(self, verdict: AdmissionDecision) -> None:
        if verdict is AdmissionDecision.BAD_ORIGIN:
            self._refuse(403, "origin not allowed")
        else:
            seconds = max(1, self.core.settings.retry_after_ms // 1000)
            self.set_header("Retry-After", str(seconds))
            self._refuse(503, f"not now: {verdict.value}")

    def _refuse(self, status: int, text: str) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.finish(text)


class StreamHandler(ReaderHandler):
    """Base of the handlers that let a reader in and hand the stream to a connection."""

    def initialize(self, core: Core) -> None:
        """Take the gateway's ``core`` from Tornado."""
        self.core = core

    @property
    def _is_turned_away(self) -> bool:
        """True if the request is only answered that there is no room."""
        connection: Any = self.request.connection
        return bool(connection.stream.turned_away)

    def _hang_up(self, text: str, retry_after: int) -> None:
        """Send 503 with the seconds after which to retry; the connection ends."""
        head = {
            "Content-Type": "text/plain; charset=utf-8",
            "Cache-Control": "no-store",
            "Retry-After": str(retry_after),
            "Content-Length": str(len(text)),
            "Connection": "close",
        }
        stream = self._take_over("503 Service Unavailable", head)
        stream.write(text.encode())
        stream.close()

    def _take_over(self, status: str, headers: Mapping[str, str]) -> ReaderStream:
        """Answer with a head that no framework adds to, and own the stream from here on.

        If the reader has gone meanwhile, the request ends.
        """
        stream = self.detach()
        # The listener makes no other streams.
        assert isinstance(stream, ReaderStream)
        if stream.closed():
            raise tornado.web.Finish
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items())]
        stream.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if stream.closed():
            # The write has found it closed. A connection on it would never be notified.
            raise tornado.web.Finish
        return stream


class TurnedAwayHandler(StreamHandler):
    """The answer to every request of an address that has no room."""

    def prepare(self) -> None:
        """Send 503, whatever the method."""
        seconds = math.ceil(ADDRESS_FULL.retry_after_ms / 1000)
        self._hang_up(f"not now: {AdmissionDecision.TOO_MANY.value}", seconds)


class PageHandler(HeadHandler, StreamHandler):
    """Base of the handlers for pages of other origins, with or without a preflight."""

    def prepare(self) -> None:
        """Set CORS headers for an allowed origin; Tornado calls this before each request."""
        headers = self.request.headers
        if self.core.origins.allows(headers):
            origin = headers.get("Origin")
            self.set_header("Access-Control-Allow-Origin", origin or "*")
            self.set_header("Vary", "Origin")
            if origin is not None and self.core.origins.may_use_cookie(headers):
                self.set_header("Access-Control-Allow-Credentials", "true")

    def options(self) -> None:
        """Answer a CORS preflight."""
        answer_preflight(self)

    async def _authenticate(self) -> AuthState | None:
        """Return the auth state for the request's token; None if it is invalid, and was refused.

        An invalid token is refused whatever is asked for: its sender wants to be logged in.
        """
        token = self.core.origins.token_of(self.request.headers)
        if token is None:
            return ANONYMOUS
        result = await self.core.authenticator.decide_now_or_later(ANONYMOUS, token)
        if result.refusal is None:
            return result.auth
        self._refuse_verb(result.refusal)
        return None

    def _subscribe(self, auth: AuthState, **fields: Any) -> Subscribe | VerbRefusal:
        """Return the intent of a ``subscribe`` with these fields, by a reader with ``auth``."""
        verb = self.core.readers.verbs.parse_object({"action": "subscribe", **fields})
        if isinstance(verb, Subscribe):
            return refusal(verb.topic, self.core.table.known(verb.topic), auth.login) or verb
        assert isinstance(verb, VerbRefusal)
        return verb

    def _refuse_verb(self, refused: VerbRefusal, *, retry_after: float = 1.0) -> None:
        """Answer with the ``error`` push, as a connection would get it."""
        status = _STATUS.get(refused.code, 400)
        self.set_status(status)
        if status == 401:
            # RFC 9110 section 15.5.2.
            self.set_header("WWW-Authenticate", "Bearer")
        elif status in (429, 503):
            self.set_header("Retry-After", str(math.ceil(retry_after)))
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.finish(error_push(refused))
