"""The requests of a SockJS case and a server's replies, byte by byte and recorded.

The notes of the same case with two servers are compared field by field. Values that differ in each
run (dates, random numbers, session ids) are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import Final

import websockets

PATIENCE: Final = 60.0
NONCE: Final = "x3JJHMbDL1EzLkh9GBhXDw=="
# Headers whose values are part of SockJS.
_VALUES: Final = ("content-type", "cache-control", "allow", "vary", "set-cookie", "upgrade",
                  "access-control-allow-origin", "access-control-allow-credentials",
                  "access-control-allow-headers", "access-control-allow-methods",
                  "access-control-max-age", "sec-websocket-accept")  # fmt: skip
# Headers of which only the presence is compared.
_PRESENCE: Final = ("expires", "etag", "last-modified")
# The values that are compared: (step, field) → value.
Notes = dict[tuple[str, str], str]


@dataclasses.dataclass(frozen=True, slots=True)
class SuiteServer:
    """A server with the suite's endpoints: name → port and prefix."""

    name: str
    endpoints: Mapping[str, tuple[int, str]]


@dataclasses.dataclass(frozen=True, slots=True)
class Response:
    """The head of a reply, and its body if it was read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class Stream:
    """A reply whose body is read as it arrives, in any HTTP encoding."""

    def __init__(self, head: Response, reader: asyncio.StreamReader) -> None:
        self.head = head
        self._reader = reader
        self._content = b""
        length = head.headers.get("content-length")
        self._left = None if length is None else int(length)

    async def until(self, mark: bytes) -> bytes:
        """Return the content up to ``mark``; EOFError with the rest if the reply ends before."""
        while mark not in self._content:
            more = await self._more()
            if not more:
                raise EOFError(self._content)
            self._content += more
        found, _, self._content = self._content.partition(mark)
        return found + mark

    async def rest(self) -> bytes:
        """Return the content up to the reply's end."""
        while more := await self._more():
            self._content += more
        found, self._content = self._content, b""
        return found

    async def _more(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            if self._left is not None:
                size, self._left = self._left, 0
                return await self._reader.readexactly(size)
            if self.head.headers.get("transfer-encoding") != "chunked":
                return await self._reader.read(65536)
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            chunk = await self._reader.readexactly(size + 2)
            return chunk[:-2]


class Dialogue:
    """A case with one server. Each reply is noted under the number of its request."""

    def __init__(self, peer: SuiteServer, endpoint: str = "echo") -> None:
        self.peer = peer
        self.endpoint = endpoint
        self.port, self.prefix = peer.endpoints[endpoint]
        # Unknown to every server: sessions of other cases may still exist.
        self._unique = secrets.token_hex(8)
        self.session = f"/000/{self._unique}"
        self.notes: Notes = {}
        self._steps = 0

    def note(self, field: str, value: object) -> None:
        """Have ``value`` compared with the other server's."""
        step, text = self._step("heard"), str(value)
        self.notes[step, field] = text

    async def get(self, path: str, **headers: str) -> Response:
        """Send a GET request; return the whole reply."""
        return await self.request("GET", path, **headers)

    async def post(self, path: str, body: bytes = b"", **headers: str) -> Response:
        """Send a POST request; return the whole reply."""
        return await self.request("POST", path, body, **headers)

    async def request(
        self, method: str, path: str, body: bytes = b"", *, version: str = "1.1", **headers: str
    ) -> Response:
        """Send a request on a connection of its own. ``path`` is below the endpoint's prefix."""
        headers.setdefault("Connection", "close")
        async with self.stream(method, path, body, version=version, **headers) as stream:
            empty = stream.head.status in (204, 304) or method == "HEAD"
            content = b"" if empty else await stream.rest()
        step = list(self.notes)[-1][0]
        self.notes[step, "body"] = _readable(content)
        return dataclasses.replace(stream.head, body=content)

    @contextlib.asynccontextmanager
    async def stream(
        self, method: str, path: str, body: bytes = b"", *, version: str = "1.1", **headers: str
    ) -> AsyncIterator[Stream]:
        """Send a request whose reply is read as it arrives; its head is noted."""
        step = self._step(f"{method} {path.replace(self._unique, 'S')}")
        async with self.connected() as (reader, writer):
            head = await exchange(
                reader, writer, method, self.prefix + path, body, version=version, **headers
            )
            self.notes[step, "status"] = str(head.status)
            for name in _VALUES:
                if name in head.headers:
                    self.notes[step, name] = _normal(name, head.headers[name])
            for name in _PRESENCE:
                if name in head.headers:
                    self.notes[step, name] = "there"
            yield Stream(head, reader)

    @contextlib.asynccontextmanager
    async def begun(self, method: str, path: str) -> AsyncIterator[asyncio.StreamWriter]:
        """Send a request without waiting for the reply; the server has had time to see it."""
        async with self.connected() as (_, writer):
            send(writer, method, self.prefix + path)
            await asyncio.sleep(0.25)  # no server reports this
            yield writer

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Yield a TCP connection to the server."""
        streams = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield streams
        finally:
            streams[1].close()
            with contextlib.suppress(OSError):
                await streams[1].wait_closed()

    @contextlib.asynccontextmanager
    async def websocket(self, path: str) -> AsyncIterator[WebSocket]:
        """Yield a WebSocket on an independent library, without compression."""
        url = f"ws://127.0.0.1:{self.port}{self.prefix}{path}"
        async with websockets.connect(url, compression=None, max_size=None) as connection:
            yield WebSocket(self, connection)

    def _step(self, what: str) -> str:
        self._steps += 1
        return f"{self._steps:02} {what}"


class WebSocket:
    """A WebSocket whose messages are noted when they are received."""

    def __init__(self, dialogue: Dialogue, connection: websockets.ClientConnection) -> None:
        self._dialogue = dialogue
        self.connection = connection

    async def hear(self) -> str | bytes:
        """Return the next message."""
        message = await asyncio.wait_for(self.connection.recv(), PATIENCE)
        self._dialogue.note("message", repr(message))
        return message

    async def outcome(self) -> None:
        """Note the next message, or the close if there is none."""
        with contextlib.suppress(websockets.ConnectionClosed):
            await self.hear()
            return
        await self.closed()

    async def closed(self) -> tuple[int, str]:
        """Return the close frame's code and reason, 1006 for none. Messages before it are noted."""
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                await self.hear()
        received = self.connection.protocol.close_rcvd
        found = (received.code, received.reason) if received else (1006, "")
        self._dialogue.note("close", found)
        return found


async def exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    method: str,
    path: str,
    body: bytes = b"",
    *,
    version: str = "1.1",
    **headers: str,
) -> Response:
    """Send one request, read the reply's head."""
    send(writer, method, path, body, version=version, **headers)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
    first, *rest = head[:-4].decode("latin-1").split("\r\n")
    fields = (line.partition(":") for line in rest)
    return Response(int(first.split()[1]), {n.lower(): v.strip() for n, _, v in fields})


def send(
    writer: asyncio.StreamWriter,
    method: str,
    path: str,
    body: bytes = b"",
    *,
    version: str = "1.1",
    **headers: str,
) -> None:
    """Send one request."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if method == "POST":
        named["Content-Length"] = str(len(body))
    lines = [f"{method} {path} HTTP/{version}", "Host: x", *(f"{n}: {v}" for n, v in named.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)


def _normal(name: str, value: str) -> str:
    if name in ("cache-control", "allow", "access-control-allow-methods"):
        return ", ".join(sorted(part.strip() for part in value.split(",")))
    if name in ("content-type", "upgrade"):
        return value.lower().replace(" ", "")
    return value


def _readable(content: bytes) -> str:
    return repr(content if len(content) <= 4096 else content[:2048] + b"..." + content[-2048:])
