"""Brokers and links for tests: the stub, and a real node behind a proxy."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import urlsplit

from newsfabric.amqp import ConfirmingPublisher, Consumer, Delivery, Link, Queue
from newsfabric.amqp.link import connect
from newsfabric.amqp.stub import StubBroker
from newsfabric.settings import Node

# Seconds that a slow shared machine may need; only a broken test waits this long.
PATIENCE = 60.0


class Inbox:
    """A collector of the deliveries of one consumer; ``await next()`` for each."""

    def __init__(self) -> None:
        self._deliveries: asyncio.Queue[Delivery] = asyncio.Queue()
        self.consumer: Consumer | None = None
        self.acks_at_once = False

    async def consume(self, link: Link, queue: Queue, *, prefetch: int = 1000) -> Inbox:
        self.consumer = await link.consumer(queue, self._take, prefetch=prefetch)
        return self

    def _take(self, delivery: Delivery) -> None:
        self._deliveries.put_nowait(delivery)
        if self.acks_at_once:
            self.ack(delivery)

    async def next(self) -> Delivery:
        async with asyncio.timeout(PATIENCE):
            return await self._deliveries.get()

    async def bodies(self, count: int) -> list[bytes]:
        return [(await self.next()).message.body for _ in range(count)]

    def waiting(self) -> int:
        return self._deliveries.qsize()

    def ack(self, *deliveries: Delivery) -> None:
        assert self.consumer is not None
        for delivery in deliveries:
            self.consumer.ack(delivery)

    def reject(self, delivery: Delivery, *, requeue: bool) -> None:
        assert self.consumer is not None
        self.consumer.reject(delivery, requeue=requeue)


class BrokerHandle(Protocol):
    """A broker that can be cut off from its links."""

    async def link(self) -> Link:
        """Return a link that is up."""

    async def cut(self) -> None:
        """Disconnect every link, and refuse new connections until :meth:`heal`."""

    async def heal(self) -> None:
        """Let links connect again."""


class StubHandle:
    def __init__(self) -> None:
        self.broker = StubBroker()
        self._links: list[Link] = []

    async def link(self) -> Link:
        self._links.append(self.broker.connect())
        return self._links[-1]

    async def cut(self) -> None:
        self.broker.cut()

    async def heal(self) -> None:
        await self.broker.heal()

    async def close(self) -> None:
        for link in self._links:
            await link.close()


class Proxy:
    """A TCP relay on loopback that can reset and refuse connections, or fall silent."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._server: asyncio.Server | None = None
        self._port = 0
        self._relays: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._downstream: list[asyncio.StreamWriter] = []
        self.accepted = 0
        # Changes the bytes of either side before the other side receives them.
        self.passing: Callable[[bytes], bytes] = lambda data: data

    def before(self, url: str) -> str:
        """Return ``url`` with the proxy's port instead of the broker's."""
        return url.replace(f":{self._target[1]}/", f":{self._port}/")

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self._port}/%2F"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Reset all connections, and refuse new ones until :meth:`start`."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    def silence(self) -> None:
        """Keep connections open but forward nothing, like a dead route."""
        self._flowing.clear()

    def inject(self, data: bytes) -> None:
        """Send ``data`` to the links, as if the broker had sent it."""
        for writer in self._downstream:
            writer.write(data)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.current_task()
        assert relay is not None
        self.accepted += 1
        self._relays.add(relay)
        self._downstream.append(writer)
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(*self._target)
            try:
                await _first(
                    self._copy(reader, upstream_writer), self._copy(upstream_reader, writer)
                )
            finally:
                upstream_writer.transport.abort()
        except (OSError, asyncio.CancelledError):
            # The proxy was cut, or one end closed.
            return
        finally:
            writer.transport.abort()
            self._downstream.remove(writer)
            self._relays.discard(relay)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._flowing.wait()
            writer.write(self.passing(data))
            await writer.drain()


async def _first(*coroutines: object) -> None:
    tasks = [asyncio.ensure_future(each) for each in coroutines]  # type: ignore[call-overload]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def method(cls: int, number: int) -> bytes:
    """Return the first bytes of a method, from its numbers in AMQP 0-9-1's section 1."""
    return struct.pack(">HH", cls, number)


PUBLISH = method(60, 40)


def fall_silent(proxy: Proxy, last_words: bytes, *, answer: bytes = b"") -> None:
    """Let nothing pass any more after ``last_words``, sent by either side, but an ``answer``."""

    def passing(data: bytes) -> bytes:
        if (at := data.find(last_words)) < 0:
            return data
        proxy.silence()
        proxy.inject(answer)
        return data[: at + len(last_words)]

    proxy.passing = passing


class RabbitHandle:
    def __init__(self, proxy: Proxy, name: str) -> None:
        self.proxy = proxy
        self._name = name
        self._links: list[Link] = []

    @classmethod
    async def on(cls, node: Node, name: str) -> RabbitHandle:
        parts = urlsplit(node.amqp_url)
        proxy = Proxy(str(parts.hostname), int(parts.port or 0))
        await proxy.start()
        return cls(proxy, name)

    async def link(self) -> Link:
        link = await self.new_link()
        await ready(await link.publisher())
        return link

    async def new_link(self, *urls: str, **options: Any) -> Link:
        """Return a link that need not be up yet; it is closed with the others."""
        link = await connect(urls or [self.proxy.url], name=self._name, **options)
        self._links.append(link)
        return link

    async def cut(self) -> None:
        await self.proxy.cut()

    async def heal(self) -> None:
        await self.proxy.start()

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links))
        await self.proxy.cut()


async def ready(publisher: ConfirmingPublisher) -> ConfirmingPublisher:
    async with asyncio.timeout(PATIENCE):
        await publisher.ready()
    return publisher
