"""Server-Sent Events at ``/events?topic=…&topic=…`` (WHATWG HTML section 9.2).

The whole stream is decided by its URL: topics, ``rewind``, and where to resume
(``Last-Event-ID``, which browsers send by themselves, or ``last_event_id``). It ends with the
connection, which is never used again: HTTP/1.1 without a length, so that the frames can be
shared with other readers byte for byte instead of being chunked for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tornado.iostream import IOStream

from gateway.core import Welcome
from gateway.frames import Variant, dress
from gateway.protocol import Intent, Refusal, Session, error_push
from gateway.streaming import Ending, StreamConnection, StreamHandler
from newsfabric.closing import CloseReason, ErrorCode

if TYPE_CHECKING:
    from gateway.core import Core

# A comment: a line that begins with a colon.
_HEARTBEAT: Final = b":\n\n"
_STATUS: Final = {ErrorCode.UNAUTHORIZED: 401, ErrorCode.UNKNOWN_TOPIC: 404}


class SseConnection(StreamConnection):
    """A reader of an event stream. It says nothing more after its request."""

    transport = "sse"
    variant = Variant.SSE

    def __init__(self, core: Core, stream: IOStream) -> None:
        super().__init__(core, stream)
        # The last beat at which the kernel was taking bytes.
        self._taking_at = core.clock()
        self._firm(f"retry: {core.settings.retry_after_ms}\n\n".encode())

    def _on_bytes(self, data: bytes) -> None:
        """Nothing is expected; what comes is dropped."""

    def _heartbeat(self) -> bytes:
        return _HEARTBEAT

    def _silence(self) -> float:
        # There is no pong: all that can be known is that a dead reader's kernel takes nothing.
        if not self.blocked:
            self._taking_at = self.core.clock()
        return self.core.clock() - self._taking_at

    def _say_goodbye(self, push: bytes, reason: CloseReason) -> None:
        self._part(dress(push, self.variant), Ending.HANG_UP)


class SseHandler(StreamHandler):
    """``GET /events``."""

    def prepare(self) -> None:
        origin = self.request.headers.get("Origin")
        if self.core.allows_origin(origin, self.request.headers.get("Host")):
            self.set_header("Access-Control-Allow-Origin", origin or "*")
            self.set_header("Vary", "Origin")

    def options(self) -> None:
        """CORS preflight: libraries that aren't the browser's own send the header themselves."""
        self.set_header("Access-Control-Allow-Methods", "GET, OPTIONS")
        self.set_header("Access-Control-Allow-Headers", "Last-Event-ID, Cache-Control")
        self.set_header("Access-Control-Max-Age", "86400")
        self.set_status(204)

    async def get(self) -> None:
        verdict = self._welcome()
        if verdict is not Welcome.YES:
            self._turn_away(verdict)
            return
        intents = self._intents()
        refused = next((i for i in intents if isinstance(i, Refusal)), None)
        if refused is not None and all(isinstance(intent, Refusal) for intent in intents):
            self.set_status(_STATUS.get(refused.code, 400))
            self.set_header("Content-Type", "application/json")
            self.finish(error_push(refused))
            return
        stream = self._take_over("200 OK", self._head())
        connection = SseConnection(self.core, stream)
        for intent in intents:
            connection.ask(intent)
        await connection.run()

    def _head(self) -> dict[str, str]:
        head = {
            "Content-Type": "text/event-stream; charset=utf-8",
            "Cache-Control": "no-store, no-transform",
            "Connection": "close",
            # nginx: pass events on as they come.
            "X-Accel-Buffering": "no",
        }
        for name in ("Access-Control-Allow-Origin", "Vary"):
            if name in self._headers:
                head[name] = self._headers[name]
        return head

    def _intents(self) -> list[Intent]:
        topics = list(dict.fromkeys(self.get_query_arguments("topic")))
        limits = self.core.settings.reader
        if not topics:
            return [Refusal(code=ErrorCode.BAD_REQUEST, reason="write /events?topic=…")]
        if len(topics) > limits.topics:
            reason = f"at most {limits.topics} topics"
            return [Refusal(code=ErrorCode.LIMIT_EXCEEDED, reason=reason)]
        session = Session(self.core.table, limits, self.core.clock())
        asked = self._asked()
        return [session.decide({"action": "subscribe", "topic": t, **asked}) for t in topics]

    def _asked(self) -> dict[str, Any]:
        last = self.request.headers.get("Last-Event-ID")
        position = last or self.get_query_argument("last_event_id", None) or None
        return {"rewind": _rewind(self.get_query_argument("rewind", None)), "position": position}


def _rewind(text: str | None) -> str | int | None:
    """A query's text as the verb has it: a number of messages, or a duration."""
    if text is not None and text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    return text
