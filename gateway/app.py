"""A gateway put together: listeners, feed, drain. Tornado engine.

Everything runs in one process on one loop. The engine that keeps readers' sockets in a
process of their own comes beside this one and is held to the same behaviour suite.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any, Final

import tornado.web
from tornado.httpserver import HTTPServer

from gateway import sockjs
from gateway.admin import Rates, Urls, admin_application, shared_routes
from gateway.core import Core
from gateway.drain import drain
from gateway.feed import Feed
from gateway.listener import Listener
from gateway.settings import GatewaySettings
from gateway.sse import SseHandler
from gateway.websocket import WebSocketHandler
from newsfabric.amqp import Link
from newsfabric.store import Store
from newsfabric.topics import TopicTable

logger = logging.getLogger(__name__)

_LOOPBACK: Final = "127.0.0.1"
# A request's head must come within this time; so long an idle keep-alive connection is kept.
_IDLE_SECONDS: Final = 60.0


class Gateway:
    """A running gateway: its ports and URLs. Made by :func:`running`."""

    def __init__(self, core: Core, readers: Listener, admin: Listener, urls: Urls) -> None:
        self.core = core
        self.urls = urls
        self.port = readers.port
        self.admin_port = admin.port


@contextlib.asynccontextmanager
async def running(
    settings: GatewaySettings, table: TopicTable, store: Store, link: Link, stop: asyncio.Event
) -> AsyncIterator[Gateway]:
    """A gateway that serves until the block is left; it drains first.

    ``stop`` is set by ``POST /drain``; whoever owns it leaves the block then. ``link`` and
    ``store`` are closed at the end.
    """
    core = Core(settings, table, store)
    servers: list[HTTPServer] = []
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(core.close)
        stack.push_async_callback(link.close)
        stack.push_async_callback(_close_all, servers)
        fabric = sockjs.SockJs(core)
        stack.callback(fabric.stop)
        readers = _listen(servers, _readers_application(core, fabric), settings, settings.port)
        stack.callback(readers.stop)
        urls = Urls.under(settings.public_url or f"http://{settings.host}:{readers.port}")
        rates = Rates(core)
        admin = _listen(
            servers, admin_application(core, rates, urls, stop), settings, settings.admin_port
        )
        stack.callback(admin.stop)
        core.spawn(_sample(rates))
        await Feed(core).start(link)
        readers.start()
        admin.start()
        logger.info("readers on port %d, admin on port %d", readers.port, admin.port)
        yield Gateway(core, readers, admin, urls)
        await drain(core)


async def serve(
    settings: GatewaySettings, table: TopicTable, store: Store, link: Link, stop: asyncio.Event
) -> None:
    """Serve until ``stop`` is set, drain, and return."""
    async with running(settings, table, store, link, stop):
        await stop.wait()


def _readers_application(core: Core, fabric: sockjs.SockJs) -> tornado.web.Application:
    routes: list[Any] = [
        (r"/websocket", WebSocketHandler, {"core": core}),
        (r"/events", SseHandler, {"core": core}),
        *fabric.routes,
        *shared_routes(core),
    ]
    return tornado.web.Application(routes, log_function=lambda handler: None)


def _listen(
    servers: list[HTTPServer],
    application: tornado.web.Application,
    settings: GatewaySettings,
    port: int,
) -> Listener:
    server = HTTPServer(
        application,
        max_header_size=16 * 1024,
        # An xhr_send carries several verbs.
        max_body_size=4 * settings.reader.frame_bytes,
        idle_connection_timeout=_IDLE_SECONDS,
        body_timeout=_IDLE_SECONDS,
    )
    listener = Listener(server, settings.host if not servers else _LOOPBACK, port)
    servers.append(server)
    return listener


async def _sample(rates: Rates) -> None:
    while True:
        rates.sample()
        await asyncio.sleep(1.0)


async def _close_all(servers: list[HTTPServer]) -> None:
    for server in servers:
        await server.close_all_connections()
