"""Server-Sent Events at ``/events?topic=…&topic=…`` (WHATWG HTML section 9.2).

The URL decides the whole stream: topics, ``rewind``, and where to resume (``Last-Event-ID``, which
browsers send by themselves, ``lastEventId``, which polyfills add, or ``last_event_id``). The stream
ends with the connection, which is never used again. It is HTTP/1.1 without a length: so frames are
shared with other readers byte for byte instead of being chunked for each.

A stream has one id for all of its topics. While one topic still waits for its missed messages, an
event of another topic must not move the id past them. So events have no ids until all topics have
joined. Then one id alone is sent, the position of before the first topic joined.
"""

from __future__ import annotations

import time

from gateway.answers.access import AuthState
from gateway.answers.subscribe import Subscribe
from gateway.readers.budget import ReaderStream
from gateway.readers.connection import OpenReaders
from gateway.transports.acknowledged import since_acknowledged
from gateway.transports.streaming import UNBUFFERED, AfterGoodbye, PageHandler, StreamConnection
from gateway.wire.frames import Framing, frame_as
from gateway.wire.protocol import VerbRefusal
from gateway.wire.publication import Publication
from newsfabric.closing import CloseReason, ErrorCode
from newsfabric.numbers import whole_number


class SseConnection(StreamConnection):
    """A reader of an event stream. It sends nothing after its request."""

    transport = "sse"
    framing = Framing.SSE

    # A comment: a line that begins with a colon.
    heartbeat = b":\n\n"

    def __init__(self, readers: OpenReaders, stream: ReaderStream) -> None:
        super().__init__(readers, stream)
        # The position at the start, until everything asked for has been sent.
        self._begin: str | None = readers.hub.position(time.time())
        self._firm(f"retry: {self.settings.retry_after_ms}\n\n".encode())

    def deliver(self, frame: bytes, publication: Publication) -> bool:
        """Send one event, without its id while the id would cover messages not sent yet."""
        return super().deliver(frame if self._begin is None else _without_id(frame), publication)

    def _replayed(self, publication: Publication) -> bytes:
        frame = super()._replayed(publication)
        return frame if self._begin is None else _without_id(frame)

    def _run_verbs(self) -> None:
        super()._run_verbs()
        if self._begin is not None and self.is_open and not self._busy and not self._verbs:
            # An event without data: it only sets the id (WHATWG HTML section 9.2.6).
            self._firm(b"id: " + self._begin.encode() + b"\n\n")
            self._begin = None

    def _on_bytes(self, data: bytes) -> None:
        """Drop the bytes: none are expected."""

    def _listen(self) -> None:
        # There is no pong: a sign of life is that the machine acknowledges our bytes. One that
        # takes no more of them doesn't count: it still acknowledges TCP's probes.
        if not self.blocked:
            acknowledged_at = self.readers.clock() - since_acknowledged(self._socket)
            self._received_at = max(self._received_at, acknowledged_at)

    def _say_goodbye(self, push: bytes, reason: CloseReason) -> None:
        self._send_last(frame_as(push, self.framing), AfterGoodbye.HANG_UP)


class SseHandler(PageHandler):
    """Handler of ``GET /events``."""

    async def get(self) -> None:
        """Answer 200 and the stream if any topic may be read; else the first error, as JSON."""
        auth = await self._welcomed()
        if auth is None:
            return
        intents = self._intents(auth)
        if self._refused(intents):
            return
        stream = self._take_over("200 OK", self._head())
        connection = SseConnection(self.core.readers, stream)
        connection.set_login_state(auth)
        connection.enqueue_verbs(intents)
        await connection.run()

    async def head(self, *_: str, **__: str) -> None:
        """Answer as :meth:`get`, without the stream."""
        auth = await self._welcomed()
        if auth is not None and not self._refused(self._intents(auth)):
            self._take_over("200 OK", self._head()).close()

    async def _welcomed(self) -> AuthState | None:
        """Return the auth state of the request; None if it was refused, and answered."""
        return await self._authenticate() if self._is_welcome() else None

    def _refused(self, intents: list[Subscribe | VerbRefusal]) -> bool:
        """Return whether there is nothing to serve; then the error is sent."""
        refused = [intent for intent in intents if isinstance(intent, VerbRefusal)]
        if len(refused) < len(intents):
            return False
        self._refuse_verb(refused[0])
        return True

    def _head(self) -> dict[str, str]:
        head = {
            "Content-Type": "text/event-stream; charset=utf-8",
            "Cache-Control": "no-store, no-transform",
            "Connection": "close",
            **UNBUFFERED,
        }
        for name in ("Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Vary"):
            if name in self._headers:
                head[name] = self._headers[name]
        return head

    def _intents(self, auth: AuthState) -> list[Subscribe | VerbRefusal]:
        topics = list(dict.fromkeys(self.get_query_arguments("topic")))
        limits = self.core.settings.reader
        if not topics:
            return [VerbRefusal(code=ErrorCode.BAD_REQUEST, reason="write /events?topic=…")]
        if len(topics) > limits.topics:
            reason = f"at most {limits.topics} topics"
            return [VerbRefusal(code=ErrorCode.LIMIT_EXCEEDED, reason=reason)]
        position = self._position()
        rewind = _rewind(self.get_query_argument("rewind", None, strip=False), limits.rewind)
        return [self._subscribe(auth, topic=t, rewind=rewind, position=position) for t in topics]

    def _position(self) -> str | None:
        """Return where to resume: the last id received overrides the page's own position."""
        text = self.request.headers.get("Last-Event-ID")
        # A polyfill can set no header without a preflight: it adds a parameter to the page's URL.
        return (
            text
            or self.get_query_argument("lastEventId", None)
            or self.get_query_argument("last_event_id", None)
            or None
        )


def _without_id(frame: bytes) -> bytes:
    return frame.partition(b"\n")[2] if frame.startswith(b"id: ") else frame


def _rewind(text: str | None, most: int) -> str | int | None:
    """Return a query's text as the verb has it: a number of messages, or the text, unchecked."""
    try:
        return None if text is None else whole_number(text, 1, most)
    except ValueError:
        return text
