"""The parts that outlive a gateway's processes, for tests in which these die or are replaced."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from gateways import TABLE, Box, settle

from gateway.process.settings import GatewaySettings, NativeSettings
from gateway.run.native_app import running
from newsfabric.amqp.stub import StubBroker
from newsfabric.errors import LinkError
from newsfabric.messages.control import Tick, encode_tick
from newsfabric.store.logs import Log
from newsfabric.store.memory import MemoryStore


class RouterPlace:
    """A broker, a store, one router's log, and the path of the control socket."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.settings = settings
        self.broker = StubBroker()
        self.store = MemoryStore(TABLE)
        self.socket = folder / "control"
        self.numbers = itertools.count(1)
        self.log = Log("oregon", "oregon-router-1", int(time.time() * 1000))
        self.last = 0

    @contextlib.asynccontextmanager
    async def control_plane(self, **native: Any) -> AsyncIterator[Box]:
        """Run the next control plane, with a router that is up: its log is listed, and it ticks."""
        settings = GatewaySettings(
            name="box-1", region="oregon", drain_seconds=0.0, linger=0.2,
            native=NativeSettings(socket=self.socket, **native), **self.settings,
        )  # fmt: skip
        stop = asyncio.Event()
        await self.store.list_log(self.log)
        ticking = asyncio.create_task(self._tick())
        try:
            async with running(settings, TABLE, self.store, self.broker.connect(), stop) as gateway:
                # After this, a data plane knows that there is room for readers.
                await gateway.core.refresh_metrics()
                ticking.cancel()
                yield Box(
                    gateway, self.broker, self.store, stop,
                    epoch=self.log.epoch, numbers=self.numbers,
                )  # fmt: skip
        finally:
            ticking.cancel()

    async def send_message(self, box: Box, body: Any) -> None:
        """Send a message like a router: store it, publish it, then settle it."""
        made = box.envelope(body=body)
        self.last = made.seq
        await box.route(made)

    async def lose(self, box: Box, body: Any) -> None:
        """Settle a message that the box's queue never receives."""
        made = box.envelope(body=body)
        self.last = made.seq
        await self.store.write([made])
        await settle(self.store, made)

    async def _tick(self) -> None:
        """Tick until cancelled, so that a gateway hears a tick as soon as it listens."""
        while True:
            region, router, epoch = self.log
            now_ms = int(time.time() * 1000)
            tick = Tick(
                origin=region, router=router, epoch=epoch,
                seq=self.last, low=self.last, sent_ms=now_ms,
            )  # fmt: skip
            # Before the first gateway the exchange doesn't exist.
            with contextlib.suppress(LinkError):
                self.broker.publish("postoffice", encode_tick(tick))
            await asyncio.sleep(0.05)
