"""The program that forwards ports of this machine's loopback to machines.

Called as ``python -m fleet.forward_program NAMESPACE PORT=HOST:PORT,HOST:PORT …``. It listens on
127.0.0.1 first and then enters the fleet's network, so it can do both; it belongs to that network,
and is ended with it. Of a forward's hosts the first that replies is used. It prints ``ready`` when
it listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Final

from fleet.connect import enter

_CONNECT_SECONDS: Final = 3.0
# Of all forwards together; further connections are aborted.
_MOST_OPEN: Final = 512
_CHUNK: Final = 65_536
_BACKLOG: Final = 64

Hosts = Sequence[tuple[str, int]]


class Forward:
    """A forward: connects each incoming connection to one of ``hosts``."""

    def __init__(self, hosts: Hosts, places: asyncio.Semaphore) -> None:
        self._hosts = hosts
        self._places = places

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection, or abort it while 512 others are open; asyncio calls this."""
        if self._places.locked():
            writer.transport.abort()
            return
        async with self._places:
            try:
                there_reader, there_writer = await self._connect()
                try:
                    async with asyncio.TaskGroup() as both:
                        both.create_task(_copy(reader, there_writer))
                        both.create_task(_copy(there_reader, writer))
                finally:
                    there_writer.close()
            except* OSError:
                pass  # one side has closed, or no host replies
            finally:
                writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for host, port in self._hosts:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CONNECT_SECONDS):
                    return await asyncio.open_connection(host, port)
        raise ConnectionRefusedError("no host of this forward answers")


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until one side has no more data."""
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _serve(listeners: Sequence[tuple[socket.socket, Hosts]]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    places = asyncio.Semaphore(_MOST_OPEN)
    for listener, hosts in listeners:
        await asyncio.start_server(Forward(hosts, places), sock=listener)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await stop.wait()


def main() -> int:
    """Serve until SIGTERM; return 1 if a port is taken."""
    listeners = []
    for word in sys.argv[2:]:
        port, _, hosts = word.partition("=")
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", int(port)))
        except OSError as exc:
            sys.stdout.write(f"port {port} of 127.0.0.1: {exc.strerror}\n")
            return 1
        listener.listen(_BACKLOG)
        listeners.append((listener, [_address(host) for host in hosts.split(",")]))
    enter(sys.argv[1])
    asyncio.run(_serve(listeners))
    return 0


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    sys.exit(main())
