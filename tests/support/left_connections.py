"""Connections that a loop still has when it is closed, a test's or that of a command in a test."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from tornado.ioloop import IOLoop
from tornado.platform.asyncio import BaseAsyncIOLoop


def close_connections(loop: asyncio.AbstractEventLoop) -> int:
    """Close what tornado has connected in ``loop``, which must be open; returns how many.

    A fetch that is cancelled goes on until its time-out (newsfabric/http/fetching.py), and the loop
    ends before. Its socket would be found by the garbage collector in some later test, which
    then fails for it. What listens is left: a test that opens a server has to close it.
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
    """From now on a runner's connections are closed with it.

    All loops of tests have one, and so do ``asyncio.run`` and ``uvloop.run`` of the commands that
    tests call.
    """
    close = asyncio.Runner.close

    def closing(runner: asyncio.Runner) -> None:
        # One that is closed already has none.
        with contextlib.suppress(RuntimeError):
            close_connections(runner.get_loop())
        close(runner)

    asyncio.Runner.close = closing  # type: ignore[method-assign]
