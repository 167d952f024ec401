"""A crowd that comes back to a gateway which has just started: how soon all have what they missed.

The gateway before it was killed; what was routed since is in the store. The readers' positions
differ. One gateway of the given engine with a SQLite store, in a process of its own; its broker is
the one in memory, which brings it nothing but the routers' ticks.

``python -m bench.resume [ENGINE…]`` prints what it measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import orjson
import uvloop

from bench.rows import Row
from gateway import app
from gateway.native import app as native_app
from gateway.position import encode, entry, stream_hash
from gateway.settings import GatewaySettings
from newsfabric.amqp.stub import StubBroker
from newsfabric.control import Tick, encode_tick
from newsfabric.envelope import Envelope, id_of, identity_of
from newsfabric.store.sqlite import SqliteStore
from newsfabric.topics import TopicPolicy, TopicTable

TOPIC: Final = "news.bench"
READERS: Final = 10_000
# So many were missed by those who missed most; positions are spread over half of them.
MISSED: Final = 20
BODY: Final = b'{"text":"%s"}' % (b"x" * 500)
ROUTER: Final = "bench-router-1"
AT_ONCE: Final = 500
LIMIT_SECONDS: Final = 60.0
TABLE: Final = TopicTable([TopicPolicy(pattern="news.*", topic_class="gold")])
_RUNNING: Final = {"tornado": app.running, "native": native_app.running}


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """``seconds`` until the last reader had everything, connecting included.

    ``subscribed_seconds`` counts from the first subscribe, sent when all were connected.
    """

    readers: int
    served: int
    seconds: float
    subscribed_seconds: float
    store_reads: int


class CountingStore(SqliteStore):
    """Counts reads of any kind."""

    reads = 0

    async def since(self, topic: str, *, from_ms: int, limit: int) -> list[Envelope]:
        self.reads += 1
        return await super().since(topic, from_ms=from_ms, limit=limit)

    async def history(
        self, topic: str, *, limit: int, since_ms: int = 0, before: str | None = None
    ) -> list[Envelope]:
        self.reads += 1
        return await super().history(topic, limit=limit, since_ms=since_ms, before=before)


class Reader(asyncio.Protocol):
    """Asks for what came after ``position`` and counts the messages; as little work as can be."""

    def __init__(self, position: str, missed: int) -> None:
        verb = {"action": "subscribe", "topic": TOPIC, "position": position}
        self._verb, self._missed = orjson.dumps(verb), missed
        self._heard = b""
        loop = asyncio.get_running_loop()
        self.upgraded: asyncio.Future[None] = loop.create_future()
        self.served: asyncio.Future[bool] = loop.create_future()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(
            b"GET /websocket HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )

    def data_received(self, data: bytes) -> None:
        if not self.upgraded.done():
            self.upgraded.set_result(None)
            return
        self._heard += data
        if self.served.done() or self._heard.count(b'"type":"message"') < self._missed:
            return
        complete = self._heard.count(b'"type":"message"') == self._missed
        self.served.set_result(complete and b'"recovered":true' in self._heard)

    def connection_lost(self, exc: Exception | None) -> None:
        for future in (self.upgraded, self.served):
            if not future.done():
                future.set_exception(exc or ConnectionError("closed"))

    def ask(self) -> None:
        """Send the verb; RFC 6455 section 5.3 wants a mask, and a zero mask changes nothing."""
        assert self.transport is not None
        size = len(self._verb)
        head = bytes([0x81, 0x80 | size]) if size < 126 else b"\x81\xfe" + size.to_bytes(2, "big")
        self.transport.write(head + bytes(4) + self._verb)


async def _crowd(
    port: int, positions: list[tuple[str, int]], readers: int
) -> tuple[float, float, int]:
    loop = asyncio.get_running_loop()
    gate = asyncio.Semaphore(AT_ONCE)

    async def connect(n: int) -> Reader:
        async with gate:
            position, missed = positions[n % len(positions)]
            _, reader = await loop.create_connection(
                lambda: Reader(position, missed), "127.0.0.1", port
            )
            await reader.upgraded
            return reader

    began = time.monotonic()
    async with asyncio.timeout(LIMIT_SECONDS):
        crowd = await asyncio.gather(*(connect(n) for n in range(readers)))
        asked = time.monotonic()
        for reader in crowd:
            reader.ask()
        served = await asyncio.gather(*(reader.served for reader in crowd))
    ended = time.monotonic()
    for reader in crowd:
        if reader.transport is not None:
            reader.transport.abort()
    return ended - began, ended - asked, sum(served)


def _missed(now_ms: int) -> list[Envelope]:
    envelopes = []
    for seq in range(1, MISSED + 1):
        identity = identity_of(
            app_id="bench", message_id=str(seq), topic=TOPIC, published_ms=None, body=b""
        )
        ms = now_ms - 30_000 + seq
        envelopes.append(
            Envelope(
                id=id_of(ms, identity),
                identity=identity,
                topic=TOPIC,
                body=BODY,
                published_ms=ms,
                origin="oregon",
                router=ROUTER,
                epoch=now_ms - 3_600_000,
                seq=seq,
            )
        )
    return envelopes


@contextlib.contextmanager
def _gateway(engine: str, store: Path, epoch: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.resume", "--serve", engine, str(store), str(epoch)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def measure() -> list[Row]:
    """The rows of the native engine, which is what is asked to be that fast."""
    result = come_back("native")
    return [
        Row(
            figure=f"{READERS:,} readers resume at a gateway that has just started",
            value=result.seconds,
            unit="s",
            at_most=5,
        ),
        Row(
            figure="readers who had all, and knew it",
            value=result.served,
            unit="",
            digits=0,
            at_least=READERS,
        ),
        Row(
            figure="reads of the store for that",
            value=result.store_reads,
            unit="",
            digits=0,
            at_most=1,
        ),
    ]


def come_back(engine: str, *, readers: int = READERS) -> Result:
    """Let ``readers`` come back to a gateway of ``engine``."""
    now_ms = int(time.time() * 1000)
    missed = _missed(now_ms)
    epoch = missed[0].epoch
    stream = stream_hash(ROUTER, epoch)
    positions = [
        (encode(now_ms - 631_000, now_ms - 31_000, [entry(stream, seen)]), MISSED - seen)
        for seen in range(MISSED // 2)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        uvloop.run(_fill(path, missed))
        with _gateway(engine, path, epoch) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            port = int(process.stdout.readline())
            seconds, subscribed, served = uvloop.run(_crowd(port, positions, readers))
            process.stdin.close()
            reads = int(process.stdout.readline())
    return Result(readers, served, seconds, subscribed, reads)


async def _fill(path: Path, envelopes: list[Envelope]) -> None:
    store = SqliteStore(path, TABLE)
    await store.write(envelopes)
    await store.close()


async def _serve(engine: str, path: Path, epoch: int) -> None:
    """Be the gateway: print the port, serve until stdin ends, print the reads of the store."""
    broker, store = StubBroker(), CountingStore(path, TABLE)
    told = GatewaySettings(name="bench", region="oregon", drain_seconds=0)
    stop = asyncio.Event()
    async with _RUNNING[engine](told, TABLE, store, broker.connect(), stop) as gateway:
        now_ms = int(time.time() * 1000)
        tick = Tick(origin="oregon", router=ROUTER, epoch=epoch, seq=MISSED, sent_ms=now_ms)
        broker.publish("postoffice", encode_tick(tick))
        print(gateway.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)
        print(store.reads, flush=True)
        os._exit(0)


def main(arguments: list[str]) -> None:
    """Measure each engine named, or both."""
    if arguments[:1] == ["--serve"]:
        _, engine, path, epoch = arguments
        uvloop.run(_serve(engine, Path(path), int(epoch)))
        return
    for engine in arguments or list(_RUNNING):
        result = come_back(engine)
        print(
            f"{engine}: {result.served:,} of {result.readers:,} readers had all in "
            f"{result.seconds:.1f} s, {result.subscribed_seconds:.1f} s from the first subscribe; "
            f"{result.store_reads} store reads"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
