"""The four transports to a gateway, each as a :class:`Reader`.

Pushes that were received and not taken yet wait in a bounded inbox. While it is full nothing more
is read, so the gateway sees a slow reader.

An event stream can't send verbs: its topics are in its URL, so :meth:`Reader.subscribe` is allowed
only before the first push is asked for.
"""

from __future__ import annotations

import abc
import asyncio
import collections
import dataclasses
import secrets
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Literal, Self, get_args
from urllib.parse import urlencode

import orjson
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.iostream import UnsatisfiableReadError
from tornado.simple_httpclient import SimpleAsyncHTTPClient
from tornado.websocket import (
    WebSocketClientConnection,
    WebSocketClosedError,
    WebSocketError,
    websocket_connect,
)

from newsfabric.errors import Disconnected
from newsfabric.http.fetching import fetch
from newsfabric.reader.endpoints import Endpoint
from newsfabric.reader.frames import EventStream, LineSplitter, closed, sockjs_messages
from newsfabric.reader.push import Push, parse_pushes
from newsfabric.reader.streaming import stream

Transport = Literal["websocket", "sockjs", "xhr-streaming", "sse"]
TRANSPORTS: Final[tuple[Transport, ...]] = get_args(Transport)

_CONNECT_TIMEOUT: Final = 10.0
# Errors of Tornado if there is no connection: a KeyError for an unknown scheme, a ValueError for an
# invalid address.
_NO_WEBSOCKET: Final = (
    OSError,
    HTTPClientError,
    WebSocketError,
    UnsatisfiableReadError,
    ValueError,
    KeyError,
)
# Pushes that wait to be taken: four seconds of 2,500 a second.
_INBOX: Final = 10_000


async def connect(gateway: Endpoint, transport: Transport = "websocket") -> Reader:
    """Connect to ``gateway``; Disconnected on failure. Close the reader afterwards."""
    if transport == "websocket":
        return await _WebSocket.open(gateway.websocket_url, lambda text: [text])
    if transport == "sockjs":
        url = _session_url(gateway.sockjs_url).replace("http", "ws", 1) + "/websocket"
        return await _SockjsWebSocket.open(url, sockjs_messages)
    if transport == "xhr-streaming":
        return _XhrStreaming(_session_url(gateway.sockjs_url))
    return _EventSource(gateway.sse_url)


class Reader(abc.ABC):
    """A connection to a gateway. Iterate for the pushes; the iteration ends with Disconnected.

    After :meth:`close` (or leaving ``async with``) no socket or task of it is left.
    """

    def __init__(self) -> None:
        self._waiting: collections.deque[Push] = collections.deque()

    @property
    def last_id(self) -> str | None:
        """The position of an event stream, for all its topics; other transports have no such id."""
        return None

    async def subscribe(
        self, topic: str, *, rewind: int | str | None = None, position: str | None = None
    ) -> None:
        """Subscribe to ``topic``; a ``subscribed`` or ``error`` push replies, with ``topic`` as
        ``ref``.

        Messages begin after ``position`` if the gateway has all since then, else with ``rewind``.
        An event stream has one position, a :attr:`last_id`; the last one given is used.
        """
        verb: dict[str, Any] = {"action": "subscribe", "topic": topic, "ref": topic}
        asked = {"rewind": rewind, "position": position}
        await self.send(verb | {name: value for name, value in asked.items() if value is not None})

    @abc.abstractmethod
    async def send(self, verb: dict[str, Any]) -> None:
        """Send any verb, as JSON; Disconnected if the connection has ended."""

    @abc.abstractmethod
    async def close(self) -> None:
        """End the connection. Idempotent."""

    @abc.abstractmethod
    async def _more(self) -> list[Push]:
        """Wait for more pushes; Disconnected at the end."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Push:
        """Return the next push. A ``disconnect`` push is returned too, before the end."""
        while not self._waiting:
            self._waiting.extend(await self._more())
        return self._waiting.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class _WebSocket(Reader):
    """A raw WebSocket; SockJS's too, if ``messages_of`` parses its frames."""

    def __init__(
        self, socket: WebSocketClientConnection, messages_of: Callable[[str], list[str]]
    ) -> None:
        super().__init__()
        self._socket = socket
        self._messages_of = messages_of

    @classmethod
    async def open(cls, url: str, messages_of: Callable[[str], list[str]]) -> Self:
        """Connect to ``url``."""
        try:
            opening = asyncio.ensure_future(
                websocket_connect(url, connect_timeout=_CONNECT_TIMEOUT)
            )
            # Shielded, since Tornado continues to connect for a future that was cancelled.
            try:
                socket = await asyncio.shield(opening)
            except asyncio.CancelledError:
                opening.add_done_callback(_close_unwanted)
                raise
        except _NO_WEBSOCKET as exc:
            raise Disconnected(1006, f"{url}: {exc}") from exc
        return cls(socket, messages_of)

    async def send(self, verb: dict[str, Any]) -> None:
        try:
            await self._socket.write_message(self._packed(verb))
        except WebSocketClosedError as exc:
            raise self._end() from exc

    def _packed(self, verb: dict[str, Any]) -> bytes | str:
        return orjson.dumps(verb).decode()

    async def close(self) -> None:
        self._socket.close()

    async def _more(self) -> list[Push]:
        frame = await self._socket.read_message()
        if frame is None:
            raise self._end()
        text = frame if isinstance(frame, str) else frame.decode("utf-8", "replace")
        return parse_pushes(self._messages_of(text))

    def _end(self) -> Disconnected:
        return closed(self._socket.close_code or 1006, self._socket.close_reason or "")


def _close_unwanted(opening: asyncio.Future[WebSocketClientConnection]) -> None:
    """Close a connection that no task waits for any more; ignore its failure."""
    if opening.exception() is None:
        opening.result().close()


class _SockjsWebSocket(_WebSocket):
    def _packed(self, verb: dict[str, Any]) -> str:
        return orjson.dumps([orjson.dumps(verb).decode()]).decode()


class _Streaming(Reader):
    """Pushes in the body of an endless HTTP response."""

    def __init__(self) -> None:
        super().__init__()
        self._inbox: asyncio.Queue[Push] = asyncio.Queue(_INBOX)
        self._filled = asyncio.Event()
        self._receiving: asyncio.Task[Disconnected] | None = None

    def _start(self) -> asyncio.Task[Disconnected]:
        if self._receiving is None:
            self._receiving = asyncio.create_task(self._receive())
        return self._receiving

    async def close(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.wait([self._receiving])

    async def _more(self) -> list[Push]:
        receiving = self._start()
        while self._inbox.empty():
            if receiving.done():
                raise receiving.result()
            self._filled.clear()
            await _first_of(self._filled, receiving)
        return [self._inbox.get_nowait() for _ in range(self._inbox.qsize())]

    async def _receive(self) -> Disconnected:
        """Fill the inbox until the stream ends; return the reason."""
        try:
            await self._requests()
        except Disconnected as exc:
            return exc
        return Disconnected(1006, "the stream ended")

    @abc.abstractmethod
    async def _requests(self) -> None:
        """Request the stream, again if it arrives in several responses, until it ends."""

    @abc.abstractmethod
    def _pushes_of(self, chunk: bytes) -> list[Push]:
        """Return the pushes that ``chunk`` completes."""

    async def _on_chunk(self, chunk: bytes) -> None:
        for push in self._pushes_of(chunk):
            await self._inbox.put(push)
            self._filled.set()


class _XhrStreaming(_Streaming):
    """SockJS xhr_streaming: pushes arrive by one POST after another, verbs are sent by others."""

    def __init__(self, session_url: str) -> None:
        super().__init__()
        self._session_url = session_url
        self._lines = LineSplitter()
        self._opened = asyncio.Event()

    async def send(self, verb: dict[str, Any]) -> None:
        await self._session_opened()
        body = orjson.dumps([orjson.dumps(verb).decode()])
        url = f"{self._session_url}/xhr_send"
        http = SimpleAsyncHTTPClient(force_instance=True)
        try:
            request = HTTPRequest(url, method="POST", body=body, request_timeout=_CONNECT_TIMEOUT)
            await fetch(http, request)
        except (OSError, HTTPClientError, ValueError) as exc:
            raise Disconnected(1006, f"{url}: {exc}") from exc
        finally:
            http.close()

    async def _session_opened(self) -> None:
        # SockJS 1.0: the session exists from the first response on; a verb before it is a 404.
        receiving = self._start()
        await _first_of(self._opened, receiving)
        if not self._opened.is_set():
            raise receiving.result()

    async def _requests(self) -> None:
        while True:
            await stream("POST", f"{self._session_url}/xhr_streaming", self._on_chunk)

    def _pushes_of(self, chunk: bytes) -> list[Push]:
        pushes: list[Push] = []
        for line in self._lines.feed(chunk):
            if line == b"o":
                self._opened.set()
            pushes += parse_pushes(sockjs_messages(line))
        return pushes


class _EventSource(_Streaming):
    """Server-sent events."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._query: list[tuple[str, str]] = []
        self._position: str | None = None
        self._events = EventStream()

    @property
    def last_id(self) -> str | None:
        return self._events.last_id

    async def subscribe(
        self, topic: str, *, rewind: int | str | None = None, position: str | None = None
    ) -> None:
        if self._receiving is not None:
            raise ValueError("an event stream's topics are fixed once it is read")
        self._query.append(("topic", topic))
        if rewind is not None:
            self._query.append(("rewind", str(rewind)))
        self._position = position or self._position

    async def send(self, verb: dict[str, Any]) -> None:
        raise ValueError("an event stream has no way up")

    async def _requests(self) -> None:
        query = list(self._query)
        if self._position is not None:
            query.append(("last_event_id", self._position))
        await stream("GET", f"{self._url}?{urlencode(query)}", self._on_chunk)

    def _pushes_of(self, chunk: bytes) -> list[Push]:
        return [
            dataclasses.replace(push, last_id=event.last_id)
            for event in self._events.feed(chunk)
            for push in parse_pushes([event.data])
        ]


async def _first_of(event: asyncio.Event, task: asyncio.Task[Disconnected]) -> None:
    """Wait until ``event`` is set or ``task`` is done."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


def _session_url(sockjs_url: str) -> str:
    # SockJS 1.0: any three digits, any unique session id.
    server = f"{secrets.randbelow(1000):03d}"
    return f"{sockjs_url.rstrip('/')}/{server}/{secrets.token_hex(8)}"
