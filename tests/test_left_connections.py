"""tests/support/left_connections.py: no test fails for a connection that another one left."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from left_connections import close_connections
from tornado.httpclient import HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from newsfabric.fetching import fetch


async def test_the_connection_of_a_cancelled_fetch_is_closed_and_what_listens_is_not() -> None:
    loop = asyncio.get_running_loop()
    heard = asyncio.Event()

    async def hears(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.set()
        assert await reader.read() != b""
        writer.close()
        ended.set()

    ended = asyncio.Event()
    async with await asyncio.start_server(hears, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        http = SimpleAsyncHTTPClient(force_instance=True)
        task = asyncio.create_task(fetch(http, HTTPRequest(f"http://127.0.0.1:{port}/")))
        await heard.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert close_connections(loop) == 1
        assert close_connections(loop) == 0
        await ended.wait()
        with socket.create_connection(("127.0.0.1", port)) as still:
            assert still.getpeername()[1] == port
        http.close()
