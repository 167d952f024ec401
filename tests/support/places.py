"""What outlives a gateway's processes, for tests in which they die or are replaced."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from gateways import TABLE, Box

from gateway.native.app import running
from gateway.settings import GatewaySettings, NativeSettings
from newsfabric.amqp.stub import StubBroker
from newsfabric.envelope import encode
from newsfabric.store.memory import MemoryStore


class Place:
    """Broker, store, numbers, the path of the control socket."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.settings = settings
        self.broker = StubBroker()
        self.store = MemoryStore(TABLE)
        self.socket = folder / "control"
        self.numbers = itertools.count(1)

    @contextlib.asynccontextmanager
    async def control_plane(self, **native: Any) -> AsyncIterator[Box]:
        told = GatewaySettings(
            name="box-1", region="oregon", drain_seconds=0.0, linger=0.2,
            native=NativeSettings(socket=self.socket, **native), **self.settings,
        )  # fmt: skip
        stop = asyncio.Event()
        async with running(told, TABLE, self.store, self.broker.connect(), stop) as gateway:
            yield Box(gateway, self.broker, self.store, stop, epoch=7, numbers=self.numbers)

    async def say(self, box: Box, body: Any) -> None:
        """A message as routers send it: stored, then published."""
        made = box.envelope(body=body)
        await self.store.write([made])
        self.broker.publish("postoffice", encode(made))
