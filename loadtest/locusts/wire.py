"""A reader's connection for locust: blocking calls, which gevent turns into greenlets.

Two transports with one interface: raw WebSocket, and SockJS over xhr-streaming. The readers in
``newsfabric.reader`` are for asyncio, and gevent and asyncio can't share a thread.

:meth:`WireConnection.receive` waits for a second and then returns without pushes, so that a user
can also do something else: pause, roam, leave.
"""

from __future__ import annotations

import abc
import http.client
import json
import random
import secrets
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import gevent
import gevent.queue
import websocket

from loadtest.locusts.options import OptionError, check_target

_TIMEOUT: Final = 10.0
_TAKE: Final = 1.0
# A gateway sends a heartbeat every 25 s.
_SILENCE: Final = 60.0
_WAITING: Final = 1000
_MAX_ANSWER: Final = 256 * 1024
# A push of a 64 KiB body, all of it escaped twice.
_MAX_LINE: Final = 1 << 20


class Disconnected(Exception):
    """The connection is gone or failed; ``after``: seconds that the gateway asks to wait."""

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.after = after


Push = dict[str, Any]


class WireConnection(abc.ABC):
    """A connection to a gateway."""

    @abc.abstractmethod
    def send(self, verb: Push) -> None:
        """Send a verb, or raise Disconnected."""

    @abc.abstractmethod
    def receive(self) -> list[Push]:
        """Return the next pushes, none after a second without; Disconnected at the end."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close it; idempotent. A waiting :meth:`receive` raises Disconnected."""


class WebSocketConnection(WireConnection):
    """A raw WebSocket. With ``receive_bytes`` the kernel buffers no more than so many unread."""

    def __init__(self, url: str, *, source: str = "", receive_bytes: int = 0) -> None:
        try:
            raw = _dial(url, source, receive_bytes)
            self._socket = websocket.create_connection(url, timeout=_TIMEOUT, socket=raw)
            self._socket.settimeout(_TAKE)
        except (OSError, websocket.WebSocketException) as exc:
            raise Disconnected(f"connect: {type(exc).__name__}") from exc

    def send(self, verb: Push) -> None:
        """See :meth:`WireConnection.send`."""
        try:
            self._socket.send(json.dumps(verb))
        except (OSError, websocket.WebSocketException) as exc:
            raise Disconnected(f"send: {type(exc).__name__}") from exc

    def receive(self) -> list[Push]:
        """See :meth:`WireConnection.receive`: one push at most."""
        try:
            text = self._socket.recv()
        except websocket.WebSocketTimeoutException:
            return []
        except (OSError, AttributeError, websocket.WebSocketException) as exc:
            raise Disconnected(f"receive: {type(exc).__name__}") from exc
        if not text:
            raise Disconnected("closed")
        return [_push(text)]

    def close(self) -> None:
        """See :meth:`WireConnection.close`: the socket is shut down without a close frame."""
        self._socket.shutdown()


class XhrStreamingConnection(WireConnection):
    """SockJS over xhr-streaming, for readers whose proxies don't support WebSocket."""

    def __init__(self, url: str, *, source: str = "") -> None:
        # Not a secret: the session is named by the reader itself.
        self._url = f"{url}/{random.randrange(1000):03d}/{secrets.token_hex(8)}"
        self._source = source
        self._waiting: gevent.queue.Queue = gevent.queue.Queue(_WAITING)
        self._reader = gevent.spawn(self._stream)

    def send(self, verb: Push) -> None:
        """See :meth:`WireConnection.send`: a POST to ``xhr_send``, on a connection of its own."""
        body = json.dumps([json.dumps(verb)]).encode()
        try:
            client = _client(self._url, self._source, _TIMEOUT)
            try:
                path = urlsplit(self._url).path + "/xhr_send"
                client.request("POST", path, body, {"Content-Type": "text/plain"})
                status = client.getresponse().status
            finally:
                client.close()
        except (OSError, http.client.HTTPException) as exc:
            raise Disconnected(f"send: {type(exc).__name__}") from exc
        if status != 204:
            raise Disconnected(f"send: {status}")

    def receive(self) -> list[Push]:
        """See :meth:`WireConnection.receive`: the pushes of one SockJS frame."""
        try:
            found = self._waiting.get(timeout=_TAKE)
        except gevent.queue.Empty:
            return []
        if isinstance(found, Disconnected):
            raise found
        return [_push(text) for text in found]

    def close(self) -> None:
        """See :meth:`WireConnection.close`; without waiting."""
        self._reader.kill(block=False)
        # A waiting reader must get this; a full queue must not make this call wait.
        while True:
            try:
                self._waiting.put_nowait(Disconnected("closed"))
                return
            except gevent.queue.Full:
                self._waiting.get_nowait()

    def opened(self) -> None:
        """Wait for SockJS's ``o``, which opens the session. Disconnected if none arrives."""
        try:
            found = self._waiting.get(timeout=_TIMEOUT)
        except gevent.queue.Empty:
            raise Disconnected("connect: no session") from None
        if isinstance(found, Disconnected):
            raise found

    def _stream(self) -> None:
        try:
            while True:
                self._answer()
        except Disconnected as lost:
            self._waiting.put(lost)
        except (OSError, ValueError, http.client.HTTPException) as exc:
            self._waiting.put(Disconnected(f"receive: {type(exc).__name__}"))

    def _answer(self) -> None:
        """Read one xhr_streaming reply, which a gateway ends after some 128 KiB."""
        client = _client(self._url, self._source, _SILENCE)
        try:
            client.request("POST", urlsplit(self._url).path + "/xhr_streaming", b"")
            answer = client.getresponse()
            if answer.status != 200:
                raise Disconnected(f"connect: {answer.status}")
            while line := answer.readline(_MAX_LINE):
                self._frame(line.rstrip(b"\n").decode("utf-8", "replace"))
        finally:
            client.close()

    def _frame(self, frame: str) -> None:
        if frame == "o":
            self._waiting.put([])
        elif frame.startswith("a"):
            self._waiting.put(json.loads(frame[1:]))
        elif frame.startswith("c"):
            raise Disconnected(f"closed: {json.loads(frame[1:])[0]}")


def endpoints(frontdesk: str, *, source: str, own: bool) -> list[dict[str, Any]]:
    """Return the gateways of ``frontdesk``, each checked as a target; or Disconnected."""
    try:
        client = _client(frontdesk, source, _TIMEOUT)
        try:
            client.request("GET", urlsplit(frontdesk).path + "/endpoints.json")
            document = json.loads(client.getresponse().read(_MAX_ANSWER))
        finally:
            client.close()
        gateways = [gateway for gateway in document["gateways"] if gateway["weight"] > 0]
        for gateway in gateways:
            check_target(gateway["websocket_url"], ("ws", "wss"), own=own)
            check_target(gateway["sockjs_url"], ("http", "https"), own=own)
    except OptionError as exc:
        raise Disconnected(str(exc), 5.0) from exc
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as exc:
        raise Disconnected(f"endpoints: {type(exc).__name__}", 1.0) from exc
    if not gateways:
        raise Disconnected("endpoints: no gateway is ready", 2.0)
    return gateways


def connect(
    gateway: dict[str, Any], *, fallback: bool, source: str, receive_bytes: int = 0
) -> WireConnection:
    """Connect to ``gateway``, or raise Disconnected."""
    if not fallback:
        url = gateway["websocket_url"]
        return WebSocketConnection(url, source=source, receive_bytes=receive_bytes)
    connection = XhrStreamingConnection(gateway["sockjs_url"], source=source)
    try:
        connection.opened()
    except BaseException:
        connection.close()
        raise
    return connection


def post(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    """Send a POST; return status and body. OSError or HTTPException without a reply."""
    client = _client(url, "", _TIMEOUT)
    try:
        client.request("POST", urlsplit(url).path, body, headers)
        answer = client.getresponse()
        return answer.status, answer.read(_MAX_ANSWER)
    finally:
        client.close()


def _push(text: str | bytes) -> Push:
    try:
        found = json.loads(text)
    except ValueError as exc:
        raise Disconnected("receive: not JSON") from exc
    if not isinstance(found, dict):
        raise Disconnected("receive: not an object")
    return found


def _dial(url: str, source: str, receive_bytes: int) -> socket.socket:
    parts = urlsplit(url)
    secure = parts.scheme == "wss"
    host, port = parts.hostname or "", parts.port or (443 if secure else 80)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    raw = socket.socket(family, socket.SOCK_STREAM)
    try:
        raw.settimeout(_TIMEOUT)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_bytes:
            # Before connecting, since the advertised window depends on it.
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        if source:
            raw.bind((source, 0))
        raw.connect((host, port))
        return _wrapped(raw, host) if secure else raw
    except BaseException:
        raw.close()
        raise


def _wrapped(raw: socket.socket, host: str) -> socket.socket:
    return ssl.create_default_context().wrap_socket(raw, server_hostname=host)


def _client(url: str, source: str, timeout: float) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    make: Callable[..., http.client.HTTPConnection] = (
        http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    )
    where = (source, 0) if source else None
    return make(parts.hostname or "", parts.port, timeout=timeout, source_address=where)
