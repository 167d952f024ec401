"""The data plane with ``--echo``, and a minimal control plane for it.

The limits fit a test suite that sends messages of 16 MiB; messages of any length are compressed for
readers that ask for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from gateway.native import commands
from gateway.native.events import AttachedEvent, Event, HandoverEvent
from gateway.native.link import ControlLink, connected
from gateway.native.program import find_program
from gateway.process.settings import GatewaySettings, NativeSettings
from gateway.wire.outbox import OutboxLimits
from gateway.wire.protocol import ReaderLimits

PATIENCE = 10.0
SETTINGS = GatewaySettings(
    name="echo",
    region="nowhere",
    heartbeat=3600.0,
    linger=1.0,
    reader=ReaderLimits(frame_bytes=64 << 20),
    outbox=OutboxLimits(hard_bytes=64 << 20, soft_bytes=64 << 20),
    native=NativeSettings(deflate_bytes=1),
)


def hang_up(connection: socket.socket, address: str) -> None:
    """Close connections whose requests aren't the data plane's; the default for ``handed_over``."""
    connection.close()


@contextlib.asynccontextmanager
async def echoing(
    settings: GatewaySettings = SETTINGS,
    handed_over: Callable[[socket.socket, str], None] = hang_up,
    *,
    threads: int = 1,
) -> AsyncIterator[int]:
    """Yield the port of a data plane that echoes; SetupError if none is built."""
    program = find_program()
    with tempfile.TemporaryDirectory(prefix="echo-") as folder:
        control = Path(folder) / "control.sock"
        process = await asyncio.create_subprocess_exec(
            program, "--control", control, "--threads", str(threads), "--echo",
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async with _attached(control, settings, handed_over) as port:
                yield port
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


@contextlib.asynccontextmanager
async def _attached(
    control: Path, settings: GatewaySettings, handed_over: Callable[[socket.socket, str], None]
) -> AsyncIterator[int]:
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def on_event(event: Event, descriptor: int | None) -> None:
        if isinstance(event, AttachedEvent):
            port.set_result(event.ports[0])
        elif isinstance(event, HandoverEvent):
            handed_over(socket.socket(fileno=descriptor), event.address)

    def on_lost(why: str) -> None:
        if not port.done():
            port.set_exception(ConnectionError(why))

    link = ControlLink(await _connected(control), on_event, on_lost)
    try:
        link.send(commands.hello())
        link.send(commands.settings(settings, capacity=settings.capacity))
        yield await asyncio.wait_for(port, PATIENCE)
    finally:
        link.close()


async def _connected(control: Path) -> socket.socket:
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                return connected(control)
            await asyncio.sleep(0.02)
