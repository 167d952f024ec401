"""A client that takes nothing of a reply is closed, and the bytes that wait for all are bounded."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import tornado.web
from authorities import certify
from gateways import until

from newsfabric.http import taking
from newsfabric.http.taking import TakingServer
from newsfabric.settings import ServerFiles
from newsfabric.tls import ServerTls

ANSWER = b"x" * (8 << 20)
FULL = (
    b"HTTP/1.1 429 Too Many Requests "
    b'{"error":{"reason":"address_full","detail":"too many connections of your address"}}'
)


class PartialPage(tornado.web.RequestHandler):
    def get(self, part: str) -> None:
        self.finish(ANSWER[: len(ANSWER) // int(part or 1)])


@contextlib.asynccontextmanager
async def served(**options: Any) -> AsyncIterator[tuple[TakingServer, int]]:
    """Yield a server whose page has 8 MiB, or so many times less (``/2``), and its port."""
    pages = tornado.web.Application([("/(.*)", PartialPage)], log_function=lambda _: None)
    server = TakingServer(pages, **options)
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    server.add_socket(listening)
    try:
        yield server, listening.getsockname()[1]
    finally:
        server.stop()
        await server.close_all_connections()


async def asked(port: int, path: str = "/") -> socket.socket:
    """Return a connection that has asked for the page, and reads nothing."""
    made, loop = socket.socket(), asyncio.get_running_loop()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.setblocking(False)
    await loop.sock_connect(made, ("127.0.0.1", port))
    await loop.sock_sendall(made, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return made


async def heard_by(made: socket.socket) -> bytes:
    """Return all bytes until the end of the connection; of a reply without its other headers."""
    heard, loop = b"", asyncio.get_running_loop()
    with contextlib.suppress(ConnectionResetError):
        while data := await loop.sock_recv(made, 4096):
            heard += data
    head, _, body = heard.partition(b"\r\n\r\n")
    return head.splitlines()[0] + b" " + body if head else b""


async def read(made: socket.socket, page: int = len(ANSWER)) -> int:
    """Return the number of bytes until the end of ``page`` bytes, or of the connection."""
    size, loop = 0, asyncio.get_running_loop()
    with contextlib.suppress(ConnectionResetError):
        while size < page and (data := await loop.sock_recv(made, 1 << 20)):
            size += len(data)
    return size


def waiting(server: TakingServer) -> int:
    return sum(one.stream.waiting for one in server._connections)


async def test_who_takes_nothing_is_closed() -> None:
    async with served(patience=0.2) as (server, port):
        stranger = await asked(port)
        await until(lambda: waiting(server))
        await until(lambda: not server._connections)
        assert await read(stranger) < len(ANSWER)
        stranger.close()


async def test_over_tls_it_is_the_same(tmp_path: Path) -> None:
    files = certify(tmp_path, "ours")
    shown = ServerTls(ServerFiles(files.certificate, files.key)).context
    trusting = ssl.create_default_context(cafile=files.authority)
    async with served(patience=0.2, ssl_options=shown) as (server, port):
        where = ("127.0.0.1", port)
        reader, writer = await asyncio.open_connection(*where, ssl=trusting, limit=4096)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: waiting(server))
        await until(lambda: not server._connections)
        got = 0
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 20):
                got += len(data)
        assert 0 < got < len(ANSWER)
        writer.transport.abort()


async def test_who_takes_something_gets_all_of_it() -> None:
    async with served() as (_, port):
        reader = await asked(port)
        assert await read(reader) >= len(ANSWER)
        reader.close()


async def test_what_waits_for_all_is_bounded_by_closing_those_with_the_most() -> None:
    async with served(most_bytes=20 << 20) as (server, port):
        # The kernel takes half of each answer at most.
        strangers = [await asked(port) for _ in range(12)]
        await until(lambda: 0 < len(server._connections) < 6 and waiting(server))
        assert waiting(server) <= 20 << 20
        # A new client is still served, as fewer bytes wait for it than for any of the others.
        reader = await asked(port, "/2")
        assert await read(reader, len(ANSWER) // 2) >= len(ANSWER) // 2
        for one in (reader, *strangers):
            one.close()


async def test_one_address_may_have_so_many_connections_until_one_is_closed() -> None:
    async with served(per_address=2) as (server, port):
        two = [await asked(port) for _ in range(2)]
        await until(lambda: len(server._connections) == 2)
        one_more = await asked(port)
        assert await heard_by(one_more) == FULL
        two[0].close()
        await until(lambda: len(server._connections) == 1)
        another = await asked(port)
        assert await read(another) >= len(ANSWER)
        for made in (two[1], one_more, another):
            made.close()


async def test_whoever_only_hears_that_there_is_no_room_hears_it_whatever_he_sends() -> None:
    async with served(per_address=1) as (server, port):
        one = await asked(port)
        await until(lambda: len(server._connections) == 1)
        sender = await connected(port)
        loop = asyncio.get_running_loop()
        body = b"x" * (256 << 10)
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
        await loop.sock_sendall(sender, head % len(body))
        await loop.sock_sendall(sender, body)
        assert await heard_by(sender) == FULL
        # The refused connection isn't counted: it takes no room from others.
        assert len(server._connections) == 1
        for made in (one, sender):
            made.close()


async def test_beyond_those_who_get_a_reason_others_are_closed_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(taking, "_NOTICES_AT_ONCE", 2)
    monkeypatch.setattr(taking, "_NOTICE_SECONDS", 600.0)
    async with served(per_address=1) as (server, port):
        one = await asked(port)
        await until(lambda: len(server._connections) == 1)
        silent = [await connected(port) for _ in range(2)]
        await until(lambda: len(server._notices) == 2)
        third = await asked(port)
        assert await heard_by(third) == b""
        silent[0].close()
        await until(lambda: len(server._notices) == 1)
        fourth = await asked(port)
        assert await heard_by(fourth) == FULL
        for made in (one, silent[1], third, fourth):
            made.close()


async def test_who_says_nothing_on_one_connection_too_many_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(taking, "_NOTICE_SECONDS", 0.05)
    async with served(per_address=1) as (server, port):
        one = await asked(port)
        await until(lambda: len(server._connections) == 1)
        silent = await connected(port)
        assert await heard_by(silent) == b""
        for made in (one, silent):
            made.close()


async def test_a_head_that_is_too_long_is_answered() -> None:
    async with served(max_header_size=1_000) as (_, port):
        made = await asked(port, "/" + "x" * 2_000)
        heard = await asyncio.get_running_loop().sock_recv(made, 4096)
        assert heard.startswith(b"HTTP/1.1 431 ")
        made.close()


async def test_who_never_ends_a_head_that_is_too_long_is_closed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(taking, "_DROPPED_SECONDS", 0.05)
    loop = asyncio.get_running_loop()
    async with served(max_header_size=1_000) as (server, port):
        made = await asked(port, "/" + "x" * 2_000)
        with contextlib.suppress(ConnectionError):
            while True:
                await loop.sock_sendall(made, b"x" * 4096)
        await until(lambda: not server._connections)
        made.close()


async def connected(port: int) -> socket.socket:
    """Return a connection that sends nothing."""
    made = socket.socket()
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
    return made
