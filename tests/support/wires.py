"""A TCP relay whose connections a test can cut silently or reset."""

from __future__ import annotations

import asyncio
import contextlib


class Wire:
    """A relay from a port of its own at ``host`` to ``port`` of 127.0.0.1, both ways."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._target = port
        self._host = host
        self._flows = asyncio.Event()
        self._flows.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        #: The number of accepted connections.
        self.accepted = 0

    async def open(self) -> Wire:
        self._server = await asyncio.start_server(self._accept, self._host, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def cut(self) -> None:
        """Forward nothing from now on, without closing any connection."""
        self._flows.clear()

    def reset(self) -> None:
        """Reset every connection; accept new ones."""
        for writer in self._writers:
            writer.transport.abort()

    def kill(self) -> None:
        """Reset every connection and refuse new ones, as when a process dies."""
        assert self._server is not None
        self._server.close()
        self.reset()

    async def close(self) -> None:
        self.kill()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.add(writer)
        await self._flows.wait()
        try:
            far = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(far[1])
        for source, sink in ((reader, far[1]), (far[0], writer)):
            task = asyncio.create_task(self._pass(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await self._flows.wait()
                sink.write(data)
                await sink.drain()
        sink.transport.abort()
        self._writers.discard(sink)
