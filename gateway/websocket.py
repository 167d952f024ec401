"""The WebSocket transport: raw at ``/websocket``, and the base of SockJS's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from gateway import measures
from gateway.admission import Welcome
from gateway.budget import ReaderStream
from gateway.connection import Home, State
from gateway.frames import (
    CLOSE,
    PING,
    PONG,
    Variant,
    dress,
    websocket_close,
    websocket_frame,
)
from gateway.protocol import LogIn
from gateway.rfc6455 import SUBPROTOCOL, FrameParser, Received, accept_key, offered
from gateway.streaming import Ending, StreamConnection, StreamHandler
from newsfabric.closing import OVERLOAD, UNFINISHED, CloseReason

if TYPE_CHECKING:
    pass

_PING: Final = websocket_frame(PING, b"")


class WebSocketConnection(StreamConnection):
    """A reader on a raw WebSocket: one verb or push per message, JSON text."""

    transport = "websocket"
    variant = Variant.WEBSOCKET

    def __init__(self, home: Home, stream: ReaderStream) -> None:
        super().__init__(home, stream)
        self._parser = FrameParser(home.settings.reader.frame_bytes)
        self._heard_at = home.clock()
        # RFC 6455 section 5.5.3: of the pings that wait, the most recent is the one to answer.
        self._unanswered: bytes | None = None
        # Runs while a message is unfinished, and may outlast that one.
        self._deadline: asyncio.TimerHandle | None = None

    def _on_bytes(self, data: bytes) -> None:
        now = self._heard_at = self.home.clock()
        for received in self._parser.feed(data):
            self._on_frame(received)
        if self._parser.violation is not None:
            self.close(self._parser.violation)
        elif self._parser.unfinished_since(now) is not None and self._deadline is None:
            self._watch_unfinished()

    def _watch_unfinished(self) -> None:
        """What a reader has begun to say, it must say in time: it is kept till then."""
        self._deadline = None
        now = self.home.clock()
        since = self._parser.unfinished_since(now)
        if since is None or self.state is not State.OPEN:
            return
        left = since + self.home.settings.unfinished_seconds - now
        if left > 0:
            self._deadline = self._loop.call_later(left, self._watch_unfinished)
        else:
            self._parser.give_up(UNFINISHED)
            self.close(UNFINISHED)

    def _stop_timers(self) -> None:
        super()._stop_timers()
        if self._deadline is not None:
            self._deadline.cancel()

    def _on_frame(self, received: Received) -> None:
        if received.opcode == PING:
            self._unanswered = received.payload
            self._answer_ping()
        elif received.opcode == CLOSE:
            self._on_close_frame(received.payload)
        elif received.opcode != PONG:
            self._on_message(received.payload)

    def _on_message(self, payload: bytes) -> None:
        self.received(payload)

    def _on_close_frame(self, payload: bytes) -> None:
        if self.reader_leaves():
            # RFC 6455 section 5.5.1: answer with the same code; 7.1.1: the server closes TCP.
            self._part(websocket_frame(CLOSE, payload[:2]), Ending.HANG_UP)
        else:
            self._stream.close()

    def _answer_ping(self) -> None:
        if self._unanswered is not None and not self.blocked and self.state is State.OPEN:
            self._write([websocket_frame(PONG, self._unanswered)])
            self._unanswered = None

    def unblocked(self) -> None:
        super().unblocked()
        self._answer_ping()

    def _heartbeat(self) -> bytes:
        return _PING

    def _silence(self) -> float:
        return self.home.clock() - self._heard_at

    def end_abruptly(self, reason: CloseReason) -> None:
        """End it at once, with a close frame and nothing before it."""
        if self.state is State.OPEN:
            self._leave(State.CLOSING, reason.name)
            self._part(websocket_close(reason.code, reason.text), Ending.HANG_UP)

    def _say_goodbye(self, push: bytes, reason: CloseReason) -> None:
        last = dress(push, self.variant) + websocket_close(reason.code, reason.text)
        self._part(last, self._ending_of_goodbye())

    def _ending_of_goodbye(self) -> Ending:
        # RFC 6455 section 7.1.1: the reader answers, then TCP is closed. After a violation its
        # answer can't be told from what it still sends; that is read and dropped, since a reset
        # would destroy the goodbye.
        return Ending.WAIT if self._parser.violation is None else Ending.HALF_CLOSE


class WebSocketHandler(StreamHandler):
    """The opening handshake (RFC 6455 section 4.2)."""

    connection: ClassVar[type[WebSocketConnection]] = WebSocketConnection

    async def get(self, *_: str) -> None:
        headers = self.request.headers
        accept = None if self.request.body else accept_key(headers)
        if accept is None or self.request.version != "HTTP/1.1":
            self._refuse(400, _complaint(headers))
            return
        if headers.get("Sec-WebSocket-Version") != "13":
            # RFC 6455 section 4.4.
            self._refuse(426, "only version 13", {"Sec-WebSocket-Version": "13"})
            return
        if not self.core.engine.serves_websockets:
            self._refuse_upgrade()
            return
        verdict = self._welcome()
        full = verdict is Welcome.FULL and self.core.readers.can_turn_away()
        if verdict is not Welcome.YES and not full:
            self._turn_away(verdict)
            return
        head = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": accept}
        spoken, token = offered(headers)
        if spoken:
            head["Sec-WebSocket-Protocol"] = SUBPROTOCOL
        stream = self._take_over("101 Switching Protocols", head)
        connection = self.connection(self.core.readers, stream)
        if full:
            # A page can't read a 503 of a WebSocket, but it can read a push.
            connection.close(OVERLOAD)
        token = token or self.core.origins.cookie_of(headers)
        if token is not None:
            # As if it had been the first verb.
            connection.ask(LogIn(token=token))
        await connection.run()

    def _refuse_upgrade(self) -> None:
        """Refuse a handshake behind another request on a connection that was handed over.

        A WebSocket here would end with the control plane. Browsers begin each on a connection of
        its own, which is the data plane's; a proxy that uses connections again tries another one.
        """
        measures.REJECTED_CONNECTS.labels("upgrade").inc()
        text = b"not now: not on a connection of other requests"
        head = {
            "Content-Type": "text/plain; charset=utf-8",
            "Cache-Control": "no-store",
            "Retry-After": "1",
            "Content-Length": str(len(text)),
            "Connection": "close",
        }
        stream = self._take_over("503 Service Unavailable", head)
        stream.write(text)
        stream.close()


class NoWebSocketHandler(StreamHandler):
    """What stands in its place where nobody may come over WebSocket."""

    def prepare(self) -> None:
        self._refuse(404, "no WebSocket here")


def _complaint(headers: Mapping[str, str]) -> str:
    """What is wrong with a handshake, in SockJS's words where it has some."""
    if headers.get("Upgrade", "").lower() != "websocket":
        return 'Can "Upgrade" only to "WebSocket".'
    if "upgrade" not in headers.get("Connection", "").lower():
        return '"Connection" must be "Upgrade".'
    return "Not a WebSocket handshake."
