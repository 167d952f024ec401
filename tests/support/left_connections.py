"""Connections that an event loop still has when it closes: a test's, or a command's in a test."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from tornado.ioloop import IOLoop
from tornado.platform.asyncio import BaseAsyncIOLoop


def close_connections(loop: asyncio.AbstractEventLoop) -> int:
    """Close tornado's connections in ``loop``, which must be open; return their number.

    A cancelled fetch goes on until its time-out (newsfabric/http/fetching.py), and the loop ends
    earlier. The garbage collector would find its socket in a later test, and fail that test.
    Listening sockets are left open: a test that opens a server must close it.
    """
    tornado = IOLoop._ioloop_for_asyncio.get(loop)
    if not isinstance(tornado, BaseAsyncIOLoop):
        return 0
    connected = [
        found
        for found, _ in tornado.handlers.values()
        if isinstance(found, socket.socket)
        and not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    ]
    for found in connected:
        tornado.remove_handler(found)
        found.close()
    return len(connected)


def close_connections_of_runners() -> None:
    """Close a runner's connections with the runner, from now on.

    All loops of tests have a runner, and so have ``asyncio.run`` and ``uvloop.run`` of the commands
    that tests call.
    """
    close = asyncio.Runner.close

    def closing(runner: asyncio.Runner) -> None:
        # A runner that is already closed has no loop.
        with contextlib.suppress(RuntimeError):
            close_connections(runner.get_loop())
        close(runner)

    asyncio.Runner.close = closing  # type: ignore[method-assign]
