"""A whole gateway on a stub broker and real sockets, and readers that share none of its code.

``ENGINES`` lists the engines on which the behaviour suite (tests/gateway/behaviour) runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import websockets
from envelopes import envelope

from gateway.native.program import find_program
from gateway.process.settings import GatewaySettings
from gateway.run import native_app
from gateway.run.app import Gateway, running
from gateway.wire.position import log_of
from newsfabric.amqp.message import Message
from newsfabric.amqp.stub import StubBroker
from newsfabric.errors import SetupError
from newsfabric.http.pace import Rate
from newsfabric.messages.control import Tick, encode_tick
from newsfabric.messages.envelope import Envelope, encode, id_of
from newsfabric.store import Store
from newsfabric.store.logs import DirectoryRow
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicPolicy, TopicTable

ENGINES: dict[str, Any] = {"tornado": running}
with contextlib.ExitStack() as _stack:
    if os.environ.get("NEWSFABRIC_GATEWAY_ENGINE") != "native":
        # With "native" (as in CI) the native engine must be tested: a missing program is a failure.
        _stack.enter_context(contextlib.suppress(SetupError))
    find_program()
    ENGINES["native"] = native_app.running
PATIENCE = 60.0

TABLE = TopicTable(
    [
        TopicPolicy(pattern="news.latest", keep=10, latest=True),
        TopicPolicy(pattern="news.*", topic_class="gold", keep=10, slow="disconnect"),
        TopicPolicy(pattern="live.*", keep=10, slow="conflate"),
        TopicPolicy(pattern="video.*", topic_class="bronze", keep=10, slow="drop_oldest"),
        TopicPolicy(pattern="user.*", access="owner"),
        TopicPolicy(pattern="desk.#", access="registered"),
    ]
)


@dataclasses.dataclass
class Box:
    """A retail box: its gateway, its broker, the store, and the numbers of one router."""

    gateway: Gateway
    broker: StubBroker
    store: Store
    stop: asyncio.Event
    epoch: int
    numbers: Any = dataclasses.field(default_factory=lambda: itertools.count(1))
    last_ms: int = 0

    def envelope(self, topic: str = "news.breaking", body: Any = None, **fields: Any) -> Envelope:
        """Make the router's next message, routed now, in a millisecond of its own."""
        number = next(self.numbers)
        raw = (
            body
            if isinstance(body, bytes)
            else json.dumps({"n": number} if body is None else body).encode()
        )
        made = envelope(number, topic=topic, body=raw, epoch=self.epoch)
        self.last_ms = max(self.last_ms + 1, int(time.time() * 1000))
        ms = fields.pop("ms", self.last_ms)
        path = (f"oregon-router-1@{ms}",)
        fresh = {"id": id_of(ms, made.identity), "published_ms": ms, "path": path}
        return dataclasses.replace(made, **{**fresh, **fields})

    def publish(self, topic: str = "news.breaking", body: Any = None, **fields: Any) -> Envelope:
        """Publish a message through the broker."""
        made = self.envelope(topic, body, **fields)
        self.send_envelope(made)
        return made

    def send_envelope(self, made: Envelope) -> None:
        """Send a routed message to the box's exchange postoffice."""
        self.send(encode(made))

    def send(self, message: Message) -> None:
        """Send any message to the box's exchange postoffice."""
        self.broker.publish("postoffice", message)

    async def was_past(self, envelopes: Sequence[Envelope]) -> None:
        """Store ``envelopes``, noted as already given to readers: no reader waits for them."""
        await self.store.write(envelopes)
        for one in envelopes:
            self.gateway.core.hub.logs.mark_seen(log_of(one), one.seq)

    async def route(self, made: Envelope) -> None:
        """Route a message as a router does: store it, publish it, then settle it."""
        await self.store.write([made])
        self.send(encode(made, low=made.seq - 1))
        await settle(self.store, made)

    def tick(self, origin: str = "oregon", seq: int = 0, low: int = 0) -> None:
        """Send a tick of the router."""
        self.send(
            encode_tick(
                Tick(
                    origin=origin,
                    router="oregon-router-1",
                    epoch=self.epoch,
                    seq=seq,
                    low=low,
                    sent_ms=int(time.time() * 1000),
                )
            )
        )

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.gateway.port}"

    @contextlib.asynccontextmanager
    async def reader(self, *subscribe: str, **verb: Any) -> AsyncIterator[Reader]:
        """Open a reader on a raw WebSocket, subscribed to topics."""
        where = f"ws://{self.host}/websocket"
        async with websockets.connect(where, max_size=None, open_timeout=60) as connection:
            reader = Reader(connection)
            for topic in subscribe:
                await reader.subscribe(topic, **verb)
            yield reader

    async def request(
        self, method: str, path: str, body: bytes = b"", *, port: int = 0, **headers: str
    ) -> Response:
        """Send one HTTP request, and read the answer to its end."""
        async with self.opened(port) as raw:
            raw.send_request(method, path, body, Connection="close", **headers)
            return Response.of(await raw.read_all())

    @contextlib.asynccontextmanager
    async def opened(
        self, port: int = 0, *, receive_buffer: int = 0, source: str = ""
    ) -> AsyncIterator[RawSocket]:
        """Open a TCP connection to the readers' port, or to ``port``; ``source`` is our address."""
        sock = socket.socket()
        if source:
            sock.bind((source, 0))
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", port or self.gateway.port))
        # A small limit: otherwise asyncio reads ahead for a reader that doesn't read.
        streams = await asyncio.open_connection(sock=sock, limit=receive_buffer or 1 << 20)
        raw = RawSocket(*streams)
        try:
            yield raw
        finally:
            await raw.close()

    async def metric(self, sample: str) -> float:
        """Return the value of one line of /metrics, ``newsfabric_x_total{a="b"}``; 0 if missing."""
        page = await self.request("GET", "/metrics", port=self.gateway.admin_port)
        for line in page.body.decode().splitlines():
            name, _, value = line.rpartition(" ")
            if name == sample:
                return float(value)
        return 0.0


async def settle(store: Store, last: Envelope) -> None:
    """Write to the directory that the log of ``last`` is settled up to ``last``."""
    log = log_of(last)
    await store.list_log(log)
    rows = await store.directory(log.region, log.day)
    (row,) = [row for row in rows if row.log == log]
    assert await store.change_log(DirectoryRow(log, row.version + 1, last.seq))


class Reader:
    """A reader that uses an independent WebSocket library."""

    def __init__(self, connection: websockets.ClientConnection) -> None:
        self.connection = connection

    async def send_verb(self, **verb: Any) -> None:
        await self.connection.send(json.dumps(verb))

    async def hear(self) -> dict[str, Any]:
        text = await asyncio.wait_for(self.connection.recv(), PATIENCE)
        push: dict[str, Any] = json.loads(text)
        return push

    async def answer_to(self, **verb: Any) -> dict[str, Any]:
        await self.send_verb(**verb)
        return await self.hear()

    async def subscribe(self, topic: str, **verb: Any) -> dict[str, Any]:
        push = await self.answer_to(action="subscribe", topic=topic, **verb)
        assert push["type"] == "subscribed", push
        return push

    async def hear_bodies(self, count: int) -> list[Any]:
        return [(await self.hear())["body"] for _ in range(count)]

    async def hear_close(self) -> tuple[int | None, list[dict[str, Any]]]:
        """Return the close code, and the pushes received before it."""
        pushes: list[dict[str, Any]] = []
        try:
            while True:
                pushes.append(await self.hear())
        except websockets.ConnectionClosed as closed:
            return (closed.rcvd.code if closed.rcvd else None), pushes

    async def is_up_to_date(self) -> None:
        """Wait until all pushes sent before now have been received, and no other is on its way."""
        assert await self.answer_to(action="ping", ref="fence") == {"type": "pong", "ref": "fence"}


@dataclasses.dataclass
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    @classmethod
    def of(cls, raw: bytes) -> Response:
        head, _, body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        if headers.get("transfer-encoding") == "chunked":
            body = dechunked(body)
        return cls(int(first.split(" ")[1]), headers, body)

    def json(self) -> Any:
        return json.loads(self.body)


def dechunked(body: bytes) -> bytes:
    """Return the content of a chunked body, also of an unfinished one."""
    content = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        content += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return content


class RawSocket:
    """A socket for bytes that a well-behaved library wouldn't send."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = b""

    @property
    def port(self) -> int:
        """The local port."""
        return int(self._writer.get_extra_info("sockname")[1])

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def send_request(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        version = headers.pop("version", "HTTP/1.1")
        if method == "POST":
            headers["Content-Length"] = str(len(body))
        headers.setdefault("Host", "127.0.0.1")
        self.send_fields(method, path, headers, version=version)
        self.send(body)

    def send_fields(
        self, method: str, path: str, fields: dict[str, str], *, version: str = "HTTP/1.1"
    ) -> None:
        """Send a request with exactly these header fields."""
        named = [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
        self.send("\r\n".join([f"{method} {path} {version}", *named, "", ""]).encode())

    async def upgrade(self, path: str = "/websocket", **headers: str) -> Response:
        """Do a WebSocket handshake; the bytes after its head stay unread."""
        self.send_request(
            "GET",
            path,
            Upgrade="websocket",
            Connection="Upgrade",
            Sec_WebSocket_Version="13",
            Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQ==",
            **headers,
        )
        return Response.of(await self.read_until(b"\r\n\r\n"))

    def send_verb(self, **verb: Any) -> None:
        self.send_frame(0x81, json.dumps(verb).encode())

    def send_frame(self, first: int, payload: bytes) -> None:
        size = len(payload)
        length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
        self.send(bytes((first,)) + length + bytes(4) + payload)

    async def read_frame(self) -> tuple[int, bytes]:
        """Read the next frame: its first byte and its payload."""
        head = await self.read(2)
        size = head[1]
        if size >= 126:
            size = int.from_bytes(await self.read(2 if size == 126 else 8), "big")
        return head[0], await self.read(size)

    async def read_pushes(self) -> list[dict[str, Any]]:
        """Read pushes up to the close frame or the end of the connection; pings are skipped."""
        pushes: list[dict[str, Any]] = []
        with contextlib.suppress(EOFError):
            while True:
                first, payload = await self.read_frame()
                if first == 0x88:
                    break
                if first == 0x81:
                    pushes.append(json.loads(payload))
        return pushes

    async def read(self, size: int) -> bytes:
        while len(self._buffer) < size:
            await self._more()
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    async def read_until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            await self._more()
        at = self._buffer.index(mark) + len(mark)
        return await self.read(at)

    async def read_all(self) -> bytes:
        rest = await asyncio.wait_for(self._reader.read(), PATIENCE)
        data, self._buffer = self._buffer + rest, b""
        return data

    @property
    def segments(self) -> int:
        """TCP segments with data received: without Nagle, about one for each small write."""
        info = self._writer.get_extra_info("socket").getsockopt(
            socket.IPPROTO_TCP, socket.TCP_INFO, 160
        )
        # tcpi_data_segs_in of linux/tcp.h.
        return int.from_bytes(info[152:156], "little")

    @property
    def at_end(self) -> bool:
        """True if the gateway has closed the connection."""
        return self._reader.at_eof() or self._reader.exception() is not None

    async def _more(self) -> None:
        data = await asyncio.wait_for(self._reader.read(65536), PATIENCE)
        if not data:
            raise EOFError(self._buffer)
        self._buffer += data

    def reset(self) -> None:
        """Reset the connection (RST), without a close frame."""
        sock = self._writer.get_extra_info("socket")
        linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


@contextlib.asynccontextmanager
async def opened_box(
    engine: str = "tornado",
    *,
    store: Store | None = None,
    table: TopicTable = TABLE,
    **settings: Any,
) -> AsyncIterator[Box]:
    """Run a box on free ports, and drain and close it at the end."""
    broker, stop = StubBroker(), asyncio.Event()
    store = store or MemoryStore(table)
    fast: dict[str, Any] = {
        "region": "oregon",
        "drain_seconds": 0.0,
        "linger": 0.2,
        # Tests ask for histories more often than readers may.
        "history_rate": Rate(burst=1_000_000, per_second=1.0),
    }
    of_box = GatewaySettings(name="box-1", **{**fast, **settings})
    async with ENGINES[engine](of_box, table, store, broker.connect(), stop) as gateway:
        # After this, a data plane knows that there is room for readers.
        await gateway.core.refresh_metrics()
        # A recent time that no other router of the test has.
        epoch = int(time.time() * 1000) - int.from_bytes(os.urandom(2), "big") * 10
        yield Box(gateway, broker, store, stop, epoch=epoch)


async def until(condition: Callable[[], Any]) -> None:
    """Wait until ``condition`` holds; TimeoutError after PATIENCE seconds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.005)
