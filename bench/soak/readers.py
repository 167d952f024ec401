"""Readers of the soak: steady ones that count their messages, and visitors of every bad kind."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Awaitable, Callable
from typing import Final

import orjson

from bench.soak.messages import STEADY

_PATIENCE: Final = 20.0
_KEY: Final = "dGhlIHNhbXBsZSBub25jZQ=="
_DEFLATE: Final = "Sec-WebSocket-Extensions: permessage-deflate\r\n"
_TOPICS: Final = ("news.steady", "news.other", "live.score", "video.clip")


def handshake(path: str = "/websocket", more: str = "") -> bytes:
    """Return the head of a WebSocket request."""
    return (
        f"GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {_KEY}\r\n{more}\r\n"
    ).encode()


def frame(payload: bytes, first: int = 0x81) -> bytes:
    """Return a frame with a mask of zeros, which leaves the bytes as they are."""
    size = len(payload)
    if size < 126:
        return bytes((first, 0x80 | size)) + bytes(4) + payload
    return bytes((first, 0xFE)) + size.to_bytes(2, "big") + bytes(4) + payload


def subscribe(topic: str) -> bytes:
    """Return the framed verb ``subscribe``."""
    return frame(orjson.dumps({"action": "subscribe", "topic": topic}))


class Steady:
    """A reader that stays, and counts how often it received each steady message."""

    def __init__(self) -> None:
        self.got: dict[int, int] = {}
        self.lost: str | None = None
        self.ready = asyncio.Event()

    async def stay(self, port: int, *, sockjs: bool) -> None:
        """Read until cancelled; :attr:`lost` has the reason if reading ends earlier."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        try:
            path = f"/sockjs/000/s{random.getrandbits(32):x}/websocket" if sockjs else "/websocket"
            writer.write(handshake(path))
            await reader.readuntil(b"\r\n\r\n")
            verb = orjson.dumps({"action": "subscribe", "topic": STEADY})
            writer.write(frame(orjson.dumps([verb.decode()]) if sockjs else verb))
            while True:
                await self._next(reader, writer, sockjs=sockjs)
        except (OSError, asyncio.IncompleteReadError) as exc:
            self.lost = repr(exc)
        finally:
            writer.close()

    async def _next(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, sockjs: bool
    ) -> None:
        first, size = await reader.readexactly(2)
        if size >= 126:
            size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8), "big")
        payload = await reader.readexactly(size)
        if first == 0x89:
            writer.write(frame(payload, 0x8A))
        elif first == 0x88:
            self.lost = f"closed: {payload!r}"
        elif not sockjs:
            self._heard(payload)
        elif payload[:1] == b"a":
            for text in orjson.loads(payload[1:]):
                self._heard(text)

    def _heard(self, text: bytes | str) -> None:
        push = orjson.loads(text)
        if push["type"] == "subscribed":
            self.ready.set()
        elif push["type"] == "message":
            number = push["body"]["n"]
            self.got[number] = self.got.get(number, 0) + 1


async def _opened(port: int, receive_buffer: int = 0) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    try:
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    except BaseException:
        sock.close()
        raise
    return sock


def _reset(sock: socket.socket) -> None:
    linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


class Visitors:
    """Visits one at a time, of random kinds. ``count`` is called with the kind of each."""

    def __init__(self, port: int, rng: random.Random, count: Callable[[str], None]) -> None:
        self._port = port
        self._rng = rng
        self._count = count
        self._kinds: list[Callable[[], Awaitable[None]]] = [
            self.connects_and_resets,
            self.reads_a_little,
            self.sends_a_broken_head,
            self.sends_broken_frames,
            self.sends_half_a_head,
            self.never_reads,
            self.polls,
            self.streams,
            self.asks_for_info,
            self.floods,
            self.resets_while_subscribed,
        ]

    async def come(self) -> None:
        """Visit once. The gateway's reply doesn't matter here, only that the visit ends."""
        kind = self._rng.choice(self._kinds)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await kind()
        self._count(kind.__name__)

    async def connects_and_resets(self) -> None:
        """Connect twenty times, and reset each connection before any byte is sent."""
        for _ in range(20):
            with await _opened(self._port) as sock:
                _reset(sock)

    async def reads_a_little(self) -> None:
        """Subscribe, read for up to a second, and send a close frame."""
        more = _DEFLATE if self._rng.random() < 0.5 else ""
        with await _opened(self._port) as sock:
            await self._send(sock, handshake(more=more) + b"".join(map(subscribe, _TOPICS)))
            await self._read(sock, self._rng.random())
            await self._send(sock, frame(b"\x03\xe8", 0x88))
            await self._read(sock, 0.5)

    async def sends_a_broken_head(self) -> None:
        """Send TLS, or a request that is wrong, too long or no HTTP."""
        heads = [
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"GET /websocket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n",
            b"GET /websocket HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n",
            b"GET /websocket HTTP/1.1\r\nX: " + b"x" * 20_000,
            handshake(more="Sec-WebSocket-Version: 8\r\n"),
            bytes(self._rng.randrange(256) for _ in range(64)) + b"\r\n\r\n",
        ]
        with await _opened(self._port) as sock:
            await self._send(sock, self._rng.choice(heads))
            await self._read(sock, 0.2)

    async def sends_broken_frames(self) -> None:
        """Send frames against RFC 6455: no mask, no UTF-8, a long ping, an open fragment, noise."""
        frames = [
            b"\x81\x05hello",
            frame(b"\xff\xfe"),
            frame(b"x" * 126, 0x89),
            b"\xf1\x80\0\0\0\0",
            b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff",
            frame(b"\x03\xed", 0x88),
            frame(b"half", 0x01) + frame(b"and another", 0x01),
            bytes(self._rng.randrange(256) for _ in range(200)),
        ]
        path = self._rng.choice(["/websocket", "/sockjs/000/broken/websocket"])
        with await _opened(self._port) as sock:
            await self._send(sock, handshake(path) + self._rng.choice(frames))
            await self._read(sock, 0.3)

    async def sends_half_a_head(self) -> None:
        """Send a request that doesn't end, for three seconds."""
        with await _opened(self._port) as sock:
            await self._send(sock, handshake()[: self._rng.randrange(1, 100)])
            await self._read(sock, 3.0)

    async def never_reads(self) -> None:
        """Subscribe with a receive buffer of 4 KiB, and read nothing for up to six seconds."""
        more = _DEFLATE if self._rng.random() < 0.3 else ""
        with await _opened(self._port, receive_buffer=4096) as sock:
            await self._send(sock, handshake(more=more) + b"".join(map(subscribe, _TOPICS[1:])))
            await asyncio.sleep(self._rng.uniform(1, 6))

    async def polls(self) -> None:
        """Open a SockJS session over xhr, subscribe twice, poll once and leave."""
        session = f"/sockjs/000/p{self._rng.getrandbits(40):x}"
        for verb in (
            b"",
            *([b'["{\\"action\\":\\"subscribe\\",\\"topic\\":\\"live.score\\"}"]'] * 2),
        ):
            path = f"{session}/xhr_send" if verb else f"{session}/xhr"
            await self._post(path, verb)
        await self._post(f"{session}/xhr", b"")

    async def streams(self) -> None:
        """Read Server-Sent Events, ours or SockJS's, for up to a second; then close or reset."""
        path = self._rng.choice(["/events?topic=live.score", "/sockjs/000/e%x/eventsource"])
        path = path.replace("%x", f"{self._rng.getrandbits(40):x}")
        with await _opened(self._port) as sock:
            await self._send(sock, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            await self._read(sock, self._rng.random())
            if self._rng.random() < 0.5:
                _reset(sock)

    async def asks_for_info(self) -> None:
        """Send the requests of SockJS before it connects, and one for a path that doesn't exist."""
        with await _opened(self._port) as sock:
            for path in ("/sockjs/info", "/sockjs", "/nowhere"):
                await self._send(sock, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                await self._read(sock, 0.05)

    async def floods(self) -> None:
        """Send more pings at once than a gateway replies to, as verbs or as frames."""
        # The data plane replies to unrefused pings of the first kind, and to a few of the last.
        floods = [
            frame(b'{"action":"ping"}') * 400,
            frame(b'{ "action": "ping" }') * 400,
            frame(b"again", 0x89) * 4_000,
        ]
        with await _opened(self._port) as sock:
            await self._send(sock, handshake() + self._rng.choice(floods))
            await self._read(sock, 0.5)

    async def resets_while_subscribed(self) -> None:
        """Subscribe, and reset the connection while messages arrive."""
        with await _opened(self._port) as sock:
            await self._send(sock, handshake() + b"".join(map(subscribe, _TOPICS)))
            await self._read(sock, 0.2)
            _reset(sock)

    async def _post(self, path: str, body: bytes) -> None:
        with await _opened(self._port) as sock:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            await self._send(sock, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            await self._read(sock, 1.0)

    async def _send(self, sock: socket.socket, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(sock, data)

    async def _read(self, sock: socket.socket, seconds: float) -> None:
        """Read and discard, for ``seconds`` or to the end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while await asyncio.get_running_loop().sock_recv(sock, 65536):
                    pass
