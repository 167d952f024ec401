"""Connections to one HTTP server that are kept for the next request.

For servers that are asked each second: a TLS handshake costs a broker more than the reply. It isn't
for readers, and knows no redirects, cookies, proxies or compression.

h11 writes requests and takes replies apart. The connections are ours, for the clients that keep
them are larger than this module, or leak (docs/dependencies.md compares them).
"""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import ssl
from collections.abc import Mapping
from typing import Final, cast
from urllib.parse import urlsplit

import h11

from newsfabric.tls import ClientTls

#: The most connections of one client; further requests wait, within their deadline.
MAX_CONNECTIONS: Final = 4
#: Seconds after which a connection gets no further request. Age: its certificate or its address may
#: have been replaced. Idle: a broker closes it after 60 s, a firewall may drop it without a word.
MAX_AGE: Final = 300.0
MAX_IDLE: Final = 30.0

# RFC 9110 9.2.2: only such a request may be sent again when its connection was closed.
_IDEMPOTENT: Final = frozenset({"GET", "PUT", "DELETE"})


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """A server's reply, of any status; ``body`` is as it was sent."""

    status: int
    body: bytes


class KeptConnections:
    """Connections to the server at ``url``, which may have a path. :meth:`close` them.

    ``timeout``: seconds for a request, with its wait for a connection; ``max_bytes``: the largest
    body of a reply; ``headers`` are sent with each request. At ``https://`` the server must show a
    certificate that ``tls`` trusts, for the name in ``url``. After a renewal of the files of
    ``tls``, older connections get no further request.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        max_bytes: int,
        headers: Mapping[str, str],
        tls: ClientTls | None,
    ) -> None:
        self._url = url
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._headers = dict(headers)
        self._tls = tls
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()

    def close(self) -> None:
        """Close the connections; a request that waits for its reply fails."""
        for connection in (*self._idle, *self._busy):
            connection.abort()
        self._idle.clear()

    async def send(self, method: str, path: str, body: bytes = b"") -> Reply:
        """Return the reply to one request. OSError or ValueError if there is none.

        A request that is idempotent is sent once more, on a new connection, if a kept one was
        closed before a byte of the reply arrived.
        """
        parts = urlsplit(self._url)
        headers = {"Host": parts.netloc.rpartition("@")[2], **self._headers}
        if body:
            headers["Content-Length"] = str(len(body))
        request = _Request(method, parts.path + path, headers, body)
        try:
            async with asyncio.timeout(self._timeout), self._slots:
                return await self._send(request)
        except TimeoutError as exc:
            raise TimeoutError(f"no reply within {self._timeout:g} s") from exc
        except h11.ProtocolError as exc:
            raise ConnectionError(f"no HTTP: {exc}") from exc

    async def _send(self, request: _Request) -> Reply:
        context = self._tls.context() if self._tls else None
        kept = self._kept(context)
        if kept is not None:
            try:
                return await self._ask(kept, request)
            except _UnansweredError:
                if request.method not in _IDEMPOTENT:
                    raise
        return await self._ask(await self._open(context), request)

    def _kept(self, context: ssl.SSLContext | None) -> _Connection | None:
        """Return the connection that was used last, and close those that may not be used again."""
        now = asyncio.get_running_loop().time()
        usable = [each for each in self._idle if each.is_usable(now, context)]
        for connection in self._idle:
            if connection not in usable:
                connection.abort()
        self._idle = usable
        return usable.pop() if usable else None

    async def _ask(self, connection: _Connection, request: _Request) -> Reply:
        self._busy.add(connection)
        try:
            reply = await connection.ask(request)
            self._idle.append(connection)
        except BaseException:
            # The reply to a cancelled request must never answer the next one.
            connection.abort()
            raise
        finally:
            self._busy.discard(connection)
        return reply

    async def _open(self, context: ssl.SSLContext | None) -> _Connection:
        """Connect to the first address that accepts; the last one's OSError if none does."""
        loop = asyncio.get_running_loop()
        parts = urlsplit(self._url)
        port = parts.port or (443 if context else 80)
        error = OSError("the host has no address")
        # Not by name: asyncio hides a refusal among the errors of several addresses.
        for family, *_, address in await loop.getaddrinfo(
            parts.hostname, port, type=socket.SOCK_STREAM
        ):
            try:
                _, connection = await loop.create_connection(
                    lambda: _Connection(context, self._max_bytes),
                    str(address[0]),
                    port,
                    family=family,
                    ssl=context,
                    server_hostname=parts.hostname if context else None,
                )
            except OSError as exc:
                error = exc
            else:
                return connection
        raise error


class _UnansweredError(ConnectionError):
    """The connection was closed before a byte of the reply arrived."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Request:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


class _Connection(asyncio.Protocol):
    """A connection, for one request at a time."""

    def __init__(self, context: ssl.SSLContext | None, max_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = context
        self._max_bytes = max_bytes
        self._opened = self._used = self._loop.time()
        self._http = h11.Connection(h11.CLIENT)
        self._transport: asyncio.Transport | None = None
        self._reply: asyncio.Future[Reply] | None = None
        self._heard = False
        self._status = 0
        self._body = bytearray()

    def is_usable(self, now: float, context: ssl.SSLContext | None) -> bool:
        """Return whether another request may be sent, by a client that has ``context`` now."""
        return (
            self._transport is not None
            and self._context is context
            and now - self._opened < MAX_AGE
            and now - self._used < MAX_IDLE
            # DONE, or MUST_CLOSE after "Connection: close".
            and self._http.our_state is h11.IDLE
        )

    async def ask(self, request: _Request) -> Reply:
        assert self._transport is not None
        self._heard, self._status, self._body = False, 0, bytearray()
        self._reply = self._loop.create_future()
        self._transport.write(self._encoded(request))
        try:
            reply = await self._reply
        finally:
            self._reply = None
        self._used = self._loop.time()
        done = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        # Further bytes answer nothing that was asked.
        if done and not self._http.trailing_data[0]:
            self._http.start_next_cycle()
        return reply

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._reply is None or self._reply.done():
            # Nothing was asked: it must not answer the next request.
            self.abort()
            return
        self._heard = True
        self._read(data)

    def eof_received(self) -> None:
        if self._heard:
            # It may be the end of a body without a length.
            self._read(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._heard:
            self._fail(exc or ConnectionError("the connection was closed"))
        else:
            why = f": {exc}" if exc else ""
            self._fail(_UnansweredError(f"the connection was closed without a reply{why}"))

    def _encoded(self, request: _Request) -> bytes:
        head = h11.Request(
            method=request.method, target=request.target, headers=list(request.headers.items())
        )
        sent = [self._http.send(head)]
        if request.body:
            sent.append(self._http.send(h11.Data(data=request.body)))
        sent.append(self._http.send(h11.EndOfMessage()))
        return b"".join(each or b"" for each in sent)

    def _read(self, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            self._take_events()
        except h11.ProtocolError as exc:
            self._fail(exc)

    def _take_events(self) -> None:
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Response):
                self._status = event.status_code
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > self._max_bytes:
                    self._fail(ConnectionError(f"a reply of more than {self._max_bytes} bytes"))
                    return
            elif isinstance(event, h11.EndOfMessage):
                if self._reply is not None and not self._reply.done():
                    self._reply.set_result(Reply(self._status, bytes(self._body)))
                return
            elif not isinstance(event, h11.InformationalResponse):
                # More bytes are needed, or the connection is closed.
                return

    def _fail(self, exc: Exception) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(exc)
        self.abort()
