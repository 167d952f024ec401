"""A whole gateway: listeners, feed, drain. On the Tornado engine all is in one process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator
from typing import Any, Final

import tornado.web
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest

from gateway.core.core import Core
from gateway.core.drain import drain, rebalance
from gateway.process.settings import GatewaySettings
from gateway.readers.listener import ReaderListener
from gateway.run.admin import admin_application, urls_under
from gateway.transports import sockjs
from gateway.transports.catchup import CatchUpHandler
from gateway.transports.sse import SseHandler
from gateway.transports.streaming import TurnedAwayHandler
from gateway.transports.websocket import WebSocketHandler
from newsfabric.amqp import Link
from newsfabric.process.service import health_routes, serving, up
from newsfabric.store import Store
from newsfabric.topics import TopicTable

logger = logging.getLogger(__name__)

_LOOPBACK: Final = "127.0.0.1"
# Seconds that a start waits for the directory, and then again for the logs of our region.
START_SECONDS: Final = 2.0
# Time-out of a request's head, of its body, and of an idle keep-alive connection, in seconds.
_IDLE_SECONDS: Final = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway; readers connect to ``port``. Made by :func:`opened`."""

    core: Core
    port: int
    admin_port: int


@contextlib.asynccontextmanager
async def running(
    settings: GatewaySettings, table: TopicTable, store: Store, link: Link, stop: asyncio.Event
) -> AsyncIterator[Gateway]:
    """Run a gateway until the block is left, and drain it then.

    ``POST /drain`` sets ``stop``: then its owner must leave the block. ``link`` and ``store`` are
    closed at the end.
    """
    core = Core(settings, table, store)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(core.close)
        stack.push_async_callback(link.close)
        await core.authenticator.start()
        readers = ReaderListener(readers_server(stack, core), core.readers.budget, settings)
        stack.callback(readers.stop)
        core.follower.begin()
        gateway = await opened(stack, core, link, readers.port, stop)
        readers.start()
        yield gateway
        await drain(core)


async def opened(
    stack: contextlib.AsyncExitStack, core: Core, link: Link, port: int, stop: asyncio.Event
) -> Gateway:
    """Open the admin port, and consume the feed as soon as the start of each log is known here.

    Return when readers, who connect to ``port``, can be served, or after a few seconds. In the
    second case the gateway reports that it isn't ready, and admits readers once it can serve them.
    """
    settings = core.settings
    urls = urls_under(settings.public_url or f"http://{settings.host}:{port}")
    pages = serving(admin_application(core, urls, stop), host=_LOOPBACK, port=settings.admin_port)
    admin_port = await stack.enter_async_context(pages)
    if settings.endpoints:
        core.spawn(rebalance(core, urls["websocket_url"]))
    feed = core.spawn(core.feed.start(link))
    await asyncio.wait({feed}, timeout=START_SECONDS)
    if feed.done():
        feed.result()
        await core.follower.wait_until_ready(START_SECONDS)
    else:
        logger.warning("the directory of logs can't be read yet: not ready until it is")
    await core.upstream.start(link)
    logger.info("readers on port %d, admin on port %d", port, admin_port)
    up()
    return Gateway(core, port, admin_port)


class ReadersApplication(tornado.web.Application):
    """The routes for readers. A stream that is ``turned_away`` gets one answer to any request."""

    def __init__(self, core: Core, routes: list[Any]) -> None:
        super().__init__(routes, log_function=lambda handler: None)
        self._core = core

    def find_handler(self, request: HTTPServerRequest, **kwargs: Any) -> Any:
        """Return the handler of a request's head. WebSockets refuse a reader in their own way."""
        found: Any = super().find_handler(request, **kwargs)
        connection: Any = request.connection
        if not connection.stream.turned_away or issubclass(found.handler_class, WebSocketHandler):
            return found
        return self.get_handler_delegate(request, TurnedAwayHandler, {"core": self._core})


def readers_server(stack: contextlib.AsyncExitStack, core: Core) -> HTTPServer:
    """Return the server of readers' HTTP requests; its connections are closed with ``stack``."""
    router = sockjs.SessionRouter(core)
    stack.callback(router.stop)
    routes: list[Any] = [
        (r"/websocket", WebSocketHandler, {"core": core}),
        (r"/events", SseHandler, {"core": core}),
        (r"/history", CatchUpHandler, {"core": core}),
        *sockjs.routes(router),
        *health_routes(core.readiness),
    ]
    server = HTTPServer(
        ReadersApplication(core, routes),
        max_header_size=16 * 1024,
        # Unless a request's handler sets another limit.
        max_body_size=core.settings.reader.frame_bytes,
        idle_connection_timeout=_IDLE_SECONDS,
        body_timeout=_IDLE_SECONDS,
    )
    stack.push_async_callback(server.close_all_connections)
    return server
