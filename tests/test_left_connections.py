"""tests/support/left_connections.py: no test fails for a connection that another test left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import threading

from left_connections import close_connections
from tornado.httpclient import HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from newsfabric.http.fetching import fetch


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


def test_what_a_command_leaves_in_its_own_loop_is_closed_with_that() -> None:
    ended = threading.Event()

    async def leaves_a_fetch(port: int) -> None:
        http = SimpleAsyncHTTPClient(force_instance=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await fetch(http, HTTPRequest(f"http://127.0.0.1:{port}/"))

    def hears(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            while connection.recv(65536):
                pass
        ended.set()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=hears, args=(listening,), daemon=True)
        thread.start()
        # The collector would close it as well, later, during another test.
        gc.disable()
        try:
            asyncio.run(leaves_a_fetch(listening.getsockname()[1]))
            assert ended.wait(10.0)
        finally:
            gc.enable()
        thread.join()
