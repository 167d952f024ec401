"""The WebSocket transports: raw at ``/websocket``, and SockJS's frames over the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import orjson

from gateway.answers.login import LogIn
from gateway.process import measures
from gateway.readers.admission import AdmissionDecision
from gateway.readers.budget import ReaderStream
from gateway.readers.connection import OpenReaders
from gateway.transports.streaming import AfterGoodbye, StreamConnection, StreamHandler
from gateway.wire.frames import (
    CLOSE,
    PING,
    PONG,
    TEXT,
    Framing,
    frame_as,
    sockjs_close,
    websocket_close,
    websocket_frame,
)
from gateway.wire.rfc6455 import (
    NO_HANDSHAKE,
    SUBPROTOCOL,
    FrameParser,
    Received,
    accept_key,
    offered,
)
from newsfabric.closing import (
    ADDRESS_FULL,
    OVERLOAD,
    PROTOCOL_ERROR,
    UNFINISHED,
    CloseReason,
)

if TYPE_CHECKING:
    from gateway.core.core import Core

_PING: Final = websocket_frame(PING, b"")
# A page can't read a 503 of a WebSocket, but it can read a push.
_CLOSE_REASONS: Final = {AdmissionDecision.FULL: OVERLOAD, AdmissionDecision.TOO_MANY: ADDRESS_FULL}
_SOCKJS_OPEN: Final = websocket_frame(TEXT, b"o")


class WebSocketConnection(StreamConnection):
    """A reader on a raw WebSocket: one verb or push per message, JSON text."""

    transport = "websocket"
    framing = Framing.WEBSOCKET
    heartbeat = _PING

    def __init__(self, readers: OpenReaders, stream: ReaderStream) -> None:
        super().__init__(readers, stream)
        self._parser = FrameParser(self.settings.reader.frame_bytes)
        # RFC 6455 section 5.5.3: of the pings that wait, the most recent must be answered.
        self._unanswered: bytes | None = None
        # Runs while a message is unfinished, and perhaps for longer.
        self._deadline: asyncio.TimerHandle | None = None

    def _on_bytes(self, data: bytes) -> None:
        now = self._received_at = self.readers.clock()
        for received in self._parser.feed(data):
            self._on_frame(received)
        if self._parser.violation is not None:
            self.close(self._parser.violation)
        elif self._parser.unfinished_since(now) is not None and self._deadline is None:
            self._watch_unfinished()

    def _watch_unfinished(self) -> None:
        """Close if a message that has begun isn't whole in time: its bytes are kept till then."""
        self._deadline = None
        now = self.readers.clock()
        since = self._parser.unfinished_since(now)
        if since is None or not self.is_open:
            return
        left = since + self.settings.unfinished_seconds - now
        if left > 0:
            self._deadline = self._loop.call_later(left, self._watch_unfinished)
        else:
            self._parser.stop(UNFINISHED)
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
            self.received(received.payload)

    def _on_close_frame(self, payload: bytes) -> None:
        if self.is_open:
            self._unregister("reader")
            # RFC 6455 section 5.5.1: answer with the same code; 7.1.1: the server closes TCP.
            self._send_last(websocket_frame(CLOSE, payload[:2]), AfterGoodbye.HANG_UP)
        else:
            self._stream.close()

    def _answer_ping(self) -> None:
        if self._unanswered is not None and not self.blocked and self.is_open:
            self._write([websocket_frame(PONG, self._unanswered)])
            self._unanswered = None

    def unblocked(self) -> None:
        """Send the waiting frames, then the answer to a ping: the kernel takes bytes again."""
        super().unblocked()
        self._answer_ping()

    def _say_goodbye(self, push: bytes, reason: CloseReason) -> None:
        # RFC 6455 section 7.1.1: the reader answers, then TCP is closed. After a violation its
        # answer can't be distinguished from its other bytes. All these are read and dropped, since
        # a reset would destroy the goodbye.
        ending = AfterGoodbye.WAIT if self._parser.violation is None else AfterGoodbye.HALF_CLOSE
        self._send_last(frame_as(push, self.framing) + self._close_frames(reason), ending)

    def _close_frames(self, reason: CloseReason) -> bytes:
        return websocket_close(reason.code, reason.text)


class SockJsWebSocketConnection(WebSocketConnection):
    """A reader on a WebSocket with SockJS frames, in both directions."""

    transport = "sockjs-websocket"
    framing = Framing.SOCKJS_WEBSOCKET
    # SockJS has no answer to h; the ping's pong is the sign of life.
    heartbeat = websocket_frame(TEXT, b"h") + _PING

    def __init__(self, readers: OpenReaders, stream: ReaderStream) -> None:
        super().__init__(readers, stream)
        self._firm(_SOCKJS_OPEN)

    def received(self, data: str | bytes) -> None:
        """Take one WebSocket message: an array of verbs, one verb, or nothing."""
        # SockJS 1.0: an empty frame is ignored; broken JSON ends the connection abruptly, without a
        # frame of SockJS's.
        if not data or not self.is_open:
            return
        try:
            messages = orjson.loads(data)
        except orjson.JSONDecodeError:
            self._unregister(PROTOCOL_ERROR.name)
            self._send_last(super()._close_frames(PROTOCOL_ERROR), AfterGoodbye.HANG_UP)
            return
        for message in messages if isinstance(messages, list) else [messages]:
            super().received(message if isinstance(message, str) else "")

    def _close_frames(self, reason: CloseReason) -> bytes:
        goodbye = websocket_frame(TEXT, sockjs_close(reason.code, reason.text))
        return goodbye + super()._close_frames(reason)


class WebSocketHandler(StreamHandler):
    """The opening handshake (RFC 6455 section 4.2) of a ``connection``.

    SockJS 1.0 puts a server and a session into a WebSocket's path; both are ignored here.
    """

    def initialize(
        self, core: Core, connection: type[WebSocketConnection] = WebSocketConnection
    ) -> None:
        """Take the gateway's ``core`` and the kind of ``connection`` from Tornado."""
        super().initialize(core)
        self.connection = connection

    def prepare(self) -> None:
        """Send 404 where WebSockets are switched off; Tornado calls this before each request."""
        if not self.core.settings.websocket:
            self._refuse(404, "no WebSocket here")

    async def get(self, **_: str) -> None:
        """Send 101 and serve the connection until it ends; or send 400, 403, 426 or 503."""
        headers = self.request.headers
        try:
            accept = accept_key(headers)
        except ValueError as exc:
            self._refuse(400, str(exc))
            return
        if self.request.body or self.request.version != "HTTP/1.1":
            self._refuse(400, NO_HANDSHAKE)
            return
        if headers.get("Sec-WebSocket-Version") != "13":
            # RFC 6455 section 4.4.
            self.set_header("Sec-WebSocket-Version", "13")
            self._refuse(426, "only version 13")
            return
        if not self.core.engine.serves_websockets:
            self._refuse_upgrade()
            return
        verdict = self.core.admission.decide(headers)
        if verdict is AdmissionDecision.YES and self._is_turned_away:
            verdict = AdmissionDecision.TOO_MANY
        reason = _CLOSE_REASONS.get(verdict) if self.core.readers.can_turn_away() else None
        if verdict is not AdmissionDecision.YES and reason is None:
            self._turn_away(verdict)
            return
        head = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": accept}
        spoken, token = offered(headers)
        if spoken:
            head["Sec-WebSocket-Protocol"] = SUBPROTOCOL
        stream = self._take_over("101 Switching Protocols", head)
        connection = self.connection(self.core.readers, stream)
        if reason is not None:
            connection.close(reason)
        token = token or self.core.origins.cookie_of(headers)
        if token is not None:
            # Handled as if it were the first verb.
            connection.enqueue_verb(LogIn(token=token))
        await connection.run()

    def _refuse_upgrade(self) -> None:
        """Refuse a handshake behind another request on a connection that was handed over.

        A WebSocket here would end with the control plane. Browsers begin each WebSocket on a new
        connection, which the data plane serves; a proxy that reuses connections tries another one.
        """
        measures.REJECTED_CONNECTS.labels("upgrade").inc()
        self._hang_up("not now: not on a connection of other requests", 1)
