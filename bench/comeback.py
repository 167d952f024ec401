"""A crowd that reconnects to a gateway which has just started, for the parts that measure that.

The gateway before it was killed; the messages that the readers want are in the store. One gateway
of the given engine runs in its own process. Its broker is the one in memory, which delivers only a
router's tick.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import orjson
import uvloop

from gateway.process.settings import GatewaySettings
from gateway.run import app, native_app
from gateway.wire.position import log_of
from newsfabric.amqp.stub import StubBroker
from newsfabric.messages.control import Tick, encode_tick
from newsfabric.messages.envelope import Envelope, id_of, identity_of
from newsfabric.store import Store
from newsfabric.store.logs import DirectoryRow, Log
from newsfabric.topics import TopicTable

ENGINES: Final = {"tornado": app.running, "native": native_app.running}
ROUTER: Final = "bench-router-1"
BODY: Final = b'{"text":"%s"}' % (b"x" * 500)
_AT_ONCE: Final = 500
_LIMIT_SECONDS: Final = 120.0
_WRITE: Final = 500


@dataclasses.dataclass(frozen=True, slots=True)
class Served:
    """The result: ``seconds`` until the last reader had everything, connecting included.

    ``asked_seconds`` counts from the first verb, sent when all were connected. ``whole`` counts the
    readers that received exactly the wanted messages and all the signs that say so.
    """

    readers: int
    whole: int
    seconds: float
    asked_seconds: float
    store_reads: int


class ReturningReader(asyncio.Protocol):
    """A reader that sends ``verbs`` and counts messages up to ``wanted``, with the least work.

    The reader knows that it has everything if each of ``signs`` is in the bytes received.
    """

    def __init__(
        self, verbs: Sequence[Mapping[str, object]], wanted: int, *, signs: Sequence[bytes]
    ) -> None:
        self._verbs = b"".join(map(_frame, map(orjson.dumps, verbs)))
        self._wanted, self._signs = wanted, signs
        self._heard = b""
        loop = asyncio.get_running_loop()
        self.upgraded: asyncio.Future[None] = loop.create_future()
        self.served: asyncio.Future[bool] = loop.create_future()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the upgrade (RFC 6455 section 4.1); asyncio calls this."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(
            b"GET /websocket HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )

    def data_received(self, data: bytes) -> None:
        """Take the first bytes as the upgrade and all others as pushes; asyncio calls this."""
        if not self.upgraded.done():
            self.upgraded.set_result(None)
            return
        self._heard += data
        count = self._heard.count(b'"type":"message"')
        if not self.served.done() and (count >= self._wanted or b'"type":"error"' in self._heard):
            knows = all(sign in self._heard for sign in self._signs)
            self.served.set_result(knows and count == self._wanted)

    def connection_lost(self, exc: Exception | None) -> None:
        """Set ``exc`` or a ConnectionError on the futures that still wait; asyncio calls this."""
        for future in (self.upgraded, self.served):
            if not future.done():
                future.set_exception(exc or ConnectionError("closed"))

    def send_verbs(self) -> None:
        """Send all verbs, one right after the other."""
        assert self.transport is not None
        self.transport.write(self._verbs)


def _frame(text: bytes) -> bytes:
    """Return a masked frame: RFC 6455 section 5.3 requires a mask; a zero mask changes nothing."""
    size = len(text)
    head = bytes([0x81, 0x80 | size]) if size < 126 else b"\x81\xfe" + size.to_bytes(2, "big")
    return head + bytes(4) + text


def come_back(
    module: str,
    arguments: Sequence[str],
    make_reader: Callable[[int], ReturningReader],
    readers: int,
    *,
    again: bool = False,
) -> Served:
    """Connect ``readers`` to a new gateway: ``module`` run with ``--serve`` and ``arguments``.

    With ``again`` the crowd connects twice, and the second time counts.
    """
    with _gateway(module, arguments) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        port = int(process.stdout.readline())
        if again:
            uvloop.run(_crowd(port, make_reader, readers))
        seconds, asked_seconds, whole = uvloop.run(_crowd(port, make_reader, readers))
        process.stdin.close()
        reads = int(process.stdout.readline())
    return Served(readers, whole, seconds, asked_seconds, reads)


@contextlib.contextmanager
def _gateway(module: str, arguments: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", module, "--serve", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def _crowd(
    port: int, make_reader: Callable[[int], ReturningReader], readers: int
) -> tuple[float, float, int]:
    loop = asyncio.get_running_loop()
    slots = asyncio.Semaphore(_AT_ONCE)

    async def connect(n: int) -> ReturningReader:
        async with slots:
            _, reader = await loop.create_connection(lambda: make_reader(n), "127.0.0.1", port)
            await reader.upgraded
            return reader

    began = time.monotonic()
    async with asyncio.timeout(_LIMIT_SECONDS):
        crowd = await asyncio.gather(*(connect(n) for n in range(readers)))
        asked = time.monotonic()
        for reader in crowd:
            reader.send_verbs()
        whole = sum(await asyncio.gather(*(reader.served for reader in crowd)))
    ended = time.monotonic()
    for reader in crowd:
        if reader.transport is not None:
            reader.transport.abort()
    return ended - began, ended - asked, whole


async def fill(store: Store, envelopes: Iterator[Envelope]) -> None:
    """Write all envelopes, settle each log up to its last one, and close the store."""
    last: dict[Log, int] = {}
    while batch := list(itertools.islice(envelopes, _WRITE)):
        await store.write(batch)
        last |= {log_of(one): one.seq for one in batch}
    for log, seq in last.items():
        await store.list_log(log)
        await store.change_log(DirectoryRow(log, version=2, low=seq))
    await store.close()


class Counting:
    """A store that counts the calls of some of its methods."""

    def __init__(self, store: Store, *names: str) -> None:
        self._store = store
        self._names = names
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        self.reads += name in self._names
        return getattr(self._store, name)


async def serve(
    engine: str,
    settings: GatewaySettings,
    table: TopicTable,
    store: Counting,
    *,
    epoch: int,
    last: int,
) -> None:
    """Run the gateway: print the port, serve until stdin ends, print the reads of the store.

    A tick of a router that began at ``epoch`` (ms) reports ``last`` as its last number.
    """
    broker, stop = StubBroker(), asyncio.Event()
    link = broker.connect()
    async with ENGINES[engine](settings, table, cast(Store, store), link, stop) as gateway:
        now_ms = int(time.time() * 1000)
        tick = Tick(origin="oregon", router=ROUTER, epoch=epoch, seq=last, sent_ms=now_ms, low=last)
        broker.publish("postoffice", encode_tick(tick))
        print(gateway.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)
        print(store.reads, flush=True)
        os._exit(0)


def envelope(topic: str, *, seq: int, ms: int, epoch: int) -> Envelope:
    """Return the envelope with number ``seq`` of the router, routed at ``ms``."""
    identity = identity_of(
        app_id="bench", message_id=str(seq), topic=topic, published_ms=None, body=b""
    )
    return Envelope(
        id=id_of(ms, identity),
        identity=identity,
        topic=topic,
        body=BODY,
        published_ms=ms,
        origin="oregon",
        router=ROUTER,
        epoch=epoch,
        seq=seq,
        message_id=str(seq),
        app_id="bench",
    )
