"""SockJS's WebSocket transport: SockJS frames over ours, without the library's sessions.

SockJS 1.0 gives a WebSocket a server and a session in its path; neither means anything to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import orjson

from gateway.budget import ReaderStream
from gateway.connection import Home
from gateway.frames import (
    PING,
    TEXT,
    Variant,
    dress,
    sockjs_close,
    websocket_close,
    websocket_frame,
)
from gateway.websocket import WebSocketConnection, WebSocketHandler
from newsfabric.closing import PROTOCOL_ERROR, CloseReason

if TYPE_CHECKING:
    pass

_OPEN_FRAME: Final = websocket_frame(TEXT, b"o")
# SockJS has no answer to h; the ping's pong tells that the reader lives.
_HEARTBEAT_FRAMES: Final = websocket_frame(TEXT, b"h") + websocket_frame(PING, b"")


class SockJsWebSocketConnection(WebSocketConnection):
    """A reader on SockJS's WebSocket: SockJS frames in both directions."""

    transport = "sockjs-websocket"
    variant = Variant.SOCKJS_WEBSOCKET

    def __init__(self, home: Home, stream: ReaderStream) -> None:
        super().__init__(home, stream)
        self._firm(_OPEN_FRAME)

    def _on_message(self, payload: bytes) -> None:
        # SockJS 1.0: an empty frame is ignored; broken JSON ends the connection abruptly, without a
        # frame of SockJS's.
        if not payload:
            return
        try:
            messages = orjson.loads(payload)
        except orjson.JSONDecodeError:
            self.end_abruptly(PROTOCOL_ERROR)
            return
        for message in messages if isinstance(messages, list) else [messages]:
            self.received(message if isinstance(message, str) else "")

    def _heartbeat(self) -> bytes:
        return _HEARTBEAT_FRAMES

    def _say_goodbye(self, push: bytes, reason: CloseReason) -> None:
        goodbye = websocket_frame(TEXT, sockjs_close(reason.code, reason.text))
        last = dress(push, self.variant) + goodbye + websocket_close(reason.code, reason.text)
        self._part(last, self._ending_of_goodbye())


class SockJsWebSocketHandler(WebSocketHandler):
    """The opening handshake; server and session in the path mean nothing to a WebSocket."""

    connection: ClassVar[type[WebSocketConnection]] = SockJsWebSocketConnection

    async def get(self, *_: str, **__: str) -> None:
        await super().get()
