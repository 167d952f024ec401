"""Connections that a test's loop still has when the test is over."""

from __future__ import annotations

import asyncio
import socket

from tornado.ioloop import IOLoop
from tornado.platform.asyncio import BaseAsyncIOLoop


def close_connections(loop: asyncio.AbstractEventLoop) -> int:
    """Close what tornado has connected in ``loop``, which must be open; returns how many.

    A fetch that is cancelled goes on until its time-out (newsfabric/fetching.py), and the loop of
    a test ends before. Its socket would be found by the garbage collector in some later test, which
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
