"""A gateway put together: data plane, feed, drain. Native engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from gateway.app import Gateway, admin_listener, follow, readers_server
from gateway.drain import drain
from gateway.native.core import NativeCore
from gateway.native.program import find_program
from gateway.settings import GatewaySettings
from newsfabric.amqp import Link
from newsfabric.errors import ConfigError
from newsfabric.service import up
from newsfabric.store import Store
from newsfabric.topics import TopicTable

logger = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def running(
    settings: GatewaySettings, table: TopicTable, store: Store, link: Link, stop: asyncio.Event
) -> AsyncIterator[Gateway]:
    """As :func:`gateway.app.running`; SetupError if there is no data plane's program.

    When another control plane takes the data plane over, ``stop`` is set, and leaving the block
    drains only the readers of this process.
    """
    core = NativeCore(settings, table, store, find_program(), stop)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(core.close)
        stack.push_async_callback(link.close)
        await core.gate.start()
        core.server = readers_server(stack, core)
        try:
            await core.plane.attach()
        except OSError as exc:
            why = str(exc) or "it doesn't answer"
            raise ConfigError(f"can't attach to the data plane: {why}") from exc
        core.spawn(core.plane.stay_attached())
        admin = admin_listener(stack, core, core.plane.port, stop)
        core.follower.begin(core.left_logs)
        core.spawn(core.let_readers_in())
        core.spawn(core.remember())
        await follow(core, link)
        await core.upstream.start(link)
        admin.start()
        logger.info("readers on port %d, admin on port %d", core.plane.port, admin.port)
        up()
        yield Gateway(core, core.plane.port, admin.port)
        await drain(core)
