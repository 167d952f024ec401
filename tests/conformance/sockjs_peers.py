"""The servers that the SockJS suite talks to: our gateway on either engine, and sockjs-node.

Our gateway expects verbs and sends pushes, but SockJS's own tests want an echo. So the method
``received`` of a connection, which takes verbs, is replaced while one of our peers is open; the
transports below it are those of readers. All endpoints have the prefix ``/sockjs`` and a port each.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import echo_dataplane
from dialogue import PATIENCE, SuiteServer
from tornado.httpserver import HTTPServer

from gateway.core.core import Core
from gateway.logs.logs import LogsSnapshot
from gateway.process.settings import GatewaySettings
from gateway.readers.budget import Budget
from gateway.readers.connection import Connection, OpenReaders
from gateway.readers.listener import ReaderListener, serve_connection
from gateway.run.app import readers_server
from gateway.transports.sockjs import PREFIX
from gateway.transports.streaming import AfterGoodbye
from gateway.wire.frames import TEXT, Framing, sockjs_close, websocket_close, websocket_frame
from gateway.wire.protocol import ReaderLimits
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicPolicy, TopicTable

TABLE: Final = TopicTable([TopicPolicy(pattern="#")])
SETTINGS: Final = GatewaySettings(
    name="echo",
    region="nowhere",
    sockjs_legacy=True,
    sockjs_response_bytes=4096,
    linger=0.2,
    reader=ReaderLimits(frame_bytes=64 << 10),
)
# Endpoints with settings of their own.
SPECIAL: Final = {
    "hasty": dataclasses.replace(SETTINGS, heartbeat=0.1, sockjs_disconnect_delay=0.3),
    "cookie": dataclasses.replace(SETTINGS, sockjs_cookie=True),
    "no_websocket": dataclasses.replace(SETTINGS, websocket=False),
}
ENDPOINTS: Final = ("echo", "close", *SPECIAL)


class ClosingReaders(OpenReaders):
    """Readers of which each is sent away when it joins."""

    def joined(self, connection: Connection) -> None:
        super().joined(connection)
        # The connection isn't complete yet.
        asyncio.get_running_loop().call_soon(_send_away, connection)


def _send_away(connection: Any) -> None:
    """Close as ``close`` does, but without the ``disconnect`` push, which no other server has."""
    if not connection.is_open:
        return
    connection._unregister("test")
    if connection.framing is Framing.SOCKJS:
        connection._close_reason = 3000, "Go away!"
        connection.promote()
        connection.unblocked()
        return
    last = websocket_close(3000, "Go away!")
    if connection.framing is Framing.SOCKJS_WEBSOCKET:
        last = websocket_frame(TEXT, sockjs_close(3000, "Go away!")) + last
    connection._send_last(last, AfterGoodbye.WAIT)


def _echo(connection: Connection, data: str | bytes) -> None:
    connection.push(data if isinstance(data, bytes) else data.encode())


@contextlib.asynccontextmanager
async def tornado_peer() -> AsyncIterator[SuiteServer]:
    """Yield our gateway on the Tornado engine."""
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(patch.object(Connection, "received", _echo))
        ports = {}
        for name, (server, budget) in _servers(stack).items():
            listener = ReaderListener(server, budget, _settings_of(name))
            stack.callback(listener.stop)
            listener.start()
            ports[name] = (listener.port, PREFIX)
        yield SuiteServer("tornado", ports)


@contextlib.asynccontextmanager
async def native_peer() -> AsyncIterator[SuiteServer]:
    """Yield our gateway on the native engine. WebSockets of all endpoints echo, even ``close``."""
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(patch.object(Connection, "received", _echo))
        ports = {}
        for name, (server, budget) in _servers(stack).items():
            port = await stack.enter_async_context(
                echo_dataplane.echoing(_settings_of(name), _handing_to(server, budget))
            )
            ports[name] = (port, PREFIX)
        yield SuiteServer("native", ports)


@contextlib.asynccontextmanager
async def sockjs_node_peer(folder: Path) -> AsyncIterator[SuiteServer]:
    """Yield sockjs-node, as installed in ``folder``."""
    process = await asyncio.create_subprocess_exec(
        "node", Path(__file__).with_name("sockjs-node") / "server.js", folder,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        port = int(await asyncio.wait_for(process.stdout.readline(), PATIENCE))
        yield SuiteServer("sockjs-node", {name: (port, f"/{name}") for name in ENDPOINTS})
    finally:
        process.kill()
        await process.wait()


def _servers(stack: contextlib.AsyncExitStack) -> dict[str, tuple[HTTPServer, Budget]]:
    made = {}
    for name in ENDPOINTS:
        core = Core(_settings_of(name), TABLE, MemoryStore(TABLE))
        if name == "close":
            core.readers = ClosingReaders(
                settings=core.settings,
                verbs=core.readers.verbs,
                hub=core.hub,
                dispatcher=core.dispatcher,
                clock=core.clock,
                spawn=core.spawn,
            )
        core.follower.begin(LogsSnapshot((), 0))
        stack.push_async_callback(core.close)
        made[name] = readers_server(stack, core), core.readers.budget
    return made


def _settings_of(endpoint: str) -> GatewaySettings:
    return SPECIAL.get(endpoint, SETTINGS)


def _handing_to(server: HTTPServer, budget: Budget) -> Callable[[Any, str], None]:
    def handed_over(connection: Any, address: str) -> None:
        serve_connection(server, connection, (address, 0), budget, lambda _: None)

    return handed_over
