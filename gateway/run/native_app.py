"""A gateway of the native engine, put together: data plane, feed, drain."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from gateway.core.core import Core
from gateway.core.drain import drain
from gateway.native.plane import Plane
from gateway.native.program import control_socket, find_program
from gateway.native.serving import DataplaneService
from gateway.process.settings import GatewaySettings
from gateway.run.app import Gateway, opened, readers_server
from newsfabric.amqp import Link
from newsfabric.errors import ConfigError
from newsfabric.store import Store
from newsfabric.topics import TopicTable


@contextlib.asynccontextmanager
async def running(
    settings: GatewaySettings, table: TopicTable, store: Store, link: Link, stop: asyncio.Event
) -> AsyncIterator[Gateway]:
    """Run a gateway, as :func:`gateway.run.app.running`; SetupError if the data plane isn't built.

    When another control plane takes the data plane over, ``stop`` is set, and leaving the block
    drains only the readers of this process.
    """
    plane = Plane(settings, find_program(), control_socket(settings))
    core = Core(settings, table, store, plane)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(core.close)
        stack.push_async_callback(link.close)
        await core.authenticator.start()
        serving = DataplaneService(core, plane, readers_server(stack, core), stop)
        try:
            await plane.attach()
        except OSError as exc:
            plane.abandon()
            why = str(exc) or "it doesn't answer"
            raise ConfigError(f"can't attach to the data plane: {why}") from exc
        core.spawn(plane.stay_attached())
        core.follower.begin(serving.left_logs)
        core.spawn(serving.update_capacity())
        core.spawn(serving.save_logs())
        yield await opened(stack, core, link, plane.port, stop)
        await drain(core)
