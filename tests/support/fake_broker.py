"""A broker of a few lines: it greets like RabbitMQ, then sends the bytes that a test gives it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import pika.frame
import pika.spec

# The answers to a client's methods; other methods get no answer.
_ANSWERS: Final[dict[type[Any], Callable[[], Any]]] = {
    pika.spec.Connection.StartOk: lambda: pika.spec.Connection.Tune(2047, 131_072, 0),
    pika.spec.Connection.Open: lambda: pika.spec.Connection.OpenOk(),
    pika.spec.Connection.Close: lambda: pika.spec.Connection.CloseOk(),
    pika.spec.Channel.Open: lambda: pika.spec.Channel.OpenOk(),
    pika.spec.Channel.Close: lambda: pika.spec.Channel.CloseOk(),
    pika.spec.Confirm.Select: lambda: pika.spec.Confirm.SelectOk(),
    pika.spec.Basic.Qos: lambda: pika.spec.Basic.QosOk(),
    pika.spec.Basic.Consume: lambda: pika.spec.Basic.ConsumeOk("newsfabric"),
}

HANG_UP: Final = b""


class FakeBroker:
    """A broker that sends the bytes of ``says`` after ConsumeOk; without ``greets``, at once.

    It stops when there are no more, or the client is gone. :data:`HANG_UP` makes it close the
    socket. It doesn't answer the method ``deaf_to``."""

    def __init__(
        self,
        says: Callable[[], Iterator[bytes]],
        *,
        greets: bool = True,
        deaf_to: type[Any] | None = None,
    ) -> None:
        self._says = says
        self._greets = greets
        self._deaf_to = deaf_to
        self.connections = 0
        # Bytes written of the latest ``says``, some of them perhaps still in the sockets.
        self.sent_bytes = 0
        self.ended = asyncio.Event()
        self.url = ""

    @classmethod
    @contextlib.asynccontextmanager
    async def scripted(
        cls,
        says: Callable[[], Iterator[bytes]],
        *,
        greets: bool = True,
        deaf_to: type[Any] | None = None,
    ) -> AsyncIterator[FakeBroker]:
        broker = cls(says, greets=greets, deaf_to=deaf_to)
        server = await asyncio.start_server(broker._serve, "127.0.0.1", 0)
        broker.url = f"amqp://127.0.0.1:{server.sockets[0].getsockname()[1]}/%2F"
        try:
            yield broker
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.ended.clear()
        try:
            await reader.readexactly(8)
            if self._greets:
                start = pika.spec.Connection.Start(0, 9, {}, "PLAIN", "en_US")
                writer.write(pika.frame.Method(0, start).marshal())
                await self._answer(reader, writer)
            else:
                await self._send_script(writer)
                await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.ended.set()
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard = b""
        while data := await reader.read(65536):
            heard += data
            while heard:
                used, frame = pika.frame.decode_frame(heard)
                if not used:
                    break
                heard = heard[used:]
                asked = type(getattr(frame, "method", None))
                if (answer := _ANSWERS.get(asked)) and asked is not self._deaf_to:
                    writer.write(pika.frame.Method(frame.channel_number, answer()).marshal())
                if asked is pika.spec.Basic.Consume:
                    await self._send_script(writer)

    async def _send_script(self, writer: asyncio.StreamWriter) -> None:
        self.sent_bytes = 0
        for data in self._says():
            if data == HANG_UP:
                raise ConnectionAbortedError
            writer.write(data)
            await writer.drain()
            self.sent_bytes += len(data)
