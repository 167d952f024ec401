"""A storm of registered readers: each connects, logs in, and gets the mailbox that it left behind.

The gateway before it was killed. Ten thousand different users ask for ten thousand mailboxes, so
there is nothing to share between them. One gateway of the given engine with a store of the given
kind (SQLite, or a Cassandra of one node) in a process of its own; its broker is the one in memory,
which brings it nothing but the routers' ticks. Tokens were made before.

``python -m bench.mailbox [ENGINE…] [--store URL]`` prints what it measured.
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import jwt
import orjson
import uvloop
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bench.rows import Row
from gateway import app
from gateway.gate import TokenSettings
from gateway.native import app as native_app
from gateway.settings import GatewaySettings
from newsfabric.amqp.stub import StubBroker
from newsfabric.control import Tick, encode_tick
from newsfabric.envelope import Envelope, id_of, identity_of
from newsfabric.mailbox import Kept
from newsfabric.store import Store, open_store
from newsfabric.topics import TopicPolicy, TopicTable

READERS: Final = 10_000
LETTERS: Final = 5
BODY: Final = b'{"text":"%s"}' % (b"x" * 500)
ROUTER: Final = "bench-router-1"
AT_ONCE: Final = 500
LIMIT_SECONDS: Final = 120.0
# Routed over the last hour: most of it before the window of identities.
SPREAD_MS: Final = 3_600_000
TABLE: Final = TopicTable(
    [TopicPolicy(pattern="user.*", topic_class="gold", access="owner", keep=50)]
)
_RUNNING: Final = {"tornado": app.running, "native": native_app.running}
_WRITE: Final = 500


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """``seconds`` until the last reader had its mailbox, connecting and logging in included."""

    readers: int
    served: int
    seconds: float
    store_reads: int


class Reader(asyncio.Protocol):
    """Logs in, opens its mailbox and counts the messages; as little work as can be."""

    def __init__(self, user: str, token: str) -> None:
        verbs: Sequence[dict[str, str]] = (
            {"action": "login", "token": token},
            {"action": "subscribe", "topic": f"user.{user}"},
        )
        self._verbs = b"".join(map(_frame, map(orjson.dumps, verbs)))
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
        count = self._heard.count(b'"type":"message"')
        if not self.served.done() and (count >= LETTERS or b'"type":"error"' in self._heard):
            whole = b'"type":"logged_in"' in self._heard and b'"recovered":true' in self._heard
            self.served.set_result(whole and count == LETTERS)

    def connection_lost(self, exc: Exception | None) -> None:
        for future in (self.upgraded, self.served):
            if not future.done():
                future.set_exception(exc or ConnectionError("closed"))

    def ask(self) -> None:
        """Send both verbs, one right after the other."""
        assert self.transport is not None
        self.transport.write(self._verbs)


def _frame(text: bytes) -> bytes:
    """RFC 6455 section 5.3 wants a mask, and a zero mask changes nothing."""
    size = len(text)
    head = bytes([0x81, 0x80 | size]) if size < 126 else b"\x81\xfe" + size.to_bytes(2, "big")
    return head + bytes(4) + text


async def _crowd(port: int, tokens: Sequence[str]) -> tuple[float, int]:
    loop = asyncio.get_running_loop()
    gate = asyncio.Semaphore(AT_ONCE)

    async def connect(n: int) -> Reader:
        async with gate:
            _, reader = await loop.create_connection(
                lambda: Reader(f"u{n}", tokens[n]), "127.0.0.1", port
            )
            await reader.upgraded
            return reader

    began = time.monotonic()
    async with asyncio.timeout(LIMIT_SECONDS):
        crowd = await asyncio.gather(*(connect(n) for n in range(len(tokens))))
        for reader in crowd:
            reader.ask()
        await asyncio.gather(*(reader.served for reader in crowd))
    seconds = time.monotonic() - began
    for reader in crowd:
        if reader.transport is not None:
            reader.transport.abort()
    return seconds, sum(reader.served.result() for reader in crowd)


def _letters(readers: int, now_ms: int) -> Iterator[Envelope]:
    for seq in range(1, readers * LETTERS + 1):
        topic = f"user.u{seq % readers}"
        identity = identity_of(
            app_id="bench", message_id=str(seq), topic=topic, published_ms=None, body=b""
        )
        ms = now_ms - SPREAD_MS + seq * SPREAD_MS // (readers * LETTERS) - 1
        yield Envelope(
            id=id_of(ms, identity),
            identity=identity,
            topic=topic,
            body=BODY,
            published_ms=ms,
            origin="oregon",
            router=ROUTER,
            epoch=now_ms - 2 * SPREAD_MS,
            seq=seq,
            message_id=str(seq),
            app_id="bench",
        )


@contextlib.contextmanager
def _gateway(arguments: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.mailbox", "--serve", *arguments],
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
    """The rows of the native engine with SQLite."""
    result = come_back("native")
    return [
        Row(
            figure=f"{READERS:,} registered readers, each with a mailbox of {LETTERS}, all served",
            value=result.seconds,
            unit="s",
            at_most=10,
        ),
        Row(
            figure="readers who had all, and knew it",
            value=result.served,
            unit="",
            digits=0,
            at_least=READERS,
        ),
        Row(
            figure="trips to the store for that",
            value=result.store_reads,
            unit="",
            digits=0,
        ),
    ]


def come_back(engine: str, *, readers: int = READERS, store: str | None = None) -> Result:
    """Let ``readers`` come back to a gateway of ``engine`` with the store at ``store``."""
    now_ms = int(time.time() * 1000)
    key = Ed25519PrivateKey.generate()
    claims = {"exp": now_ms // 1000 + 3_600, "iat": now_ms // 1000 - 60}
    tokens = [jwt.encode({**claims, "sub": f"u{n}"}, key, "EdDSA") for n in range(readers)]
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys.pem"
        keys.write_bytes(
            key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )
        url = store or f"sqlite:{folder}/store.db"
        uvloop.run(_fill(url, readers, now_ms))
        with _gateway([engine, url, str(keys), str(readers * LETTERS), str(now_ms)]) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            port = int(process.stdout.readline())
            seconds, served = uvloop.run(_crowd(port, tokens))
            process.stdin.close()
            reads = int(process.stdout.readline())
    return Result(readers, served, seconds, reads)


async def _fill(url: str, readers: int, now_ms: int) -> None:
    store = open_store(url, TABLE)
    batch: list[Envelope] = []
    for envelope in _letters(readers, now_ms):
        batch.append(envelope)
        if len(batch) == _WRITE:
            await store.write(batch)
            batch = []
    await store.write(batch)
    await store.close()


class _Counting:
    """A store that counts the reads of mailboxes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads = 0

    async def mailboxes(self, topics: Sequence[str], *, limit: int) -> list[list[Kept]]:
        self.reads += 1
        return await self._store.mailboxes(topics, limit=limit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def _serve(engine: str, url: str, keys: str, last: int, now_ms: int) -> None:
    """Be the gateway: print the port, serve until stdin ends, print the reads of the store."""
    broker, store = StubBroker(), _Counting(open_store(url, TABLE))
    told = GatewaySettings(
        name="bench", region="oregon", drain_seconds=0, tokens=TokenSettings(keys=keys)
    )
    stop = asyncio.Event()
    async with _RUNNING[engine](told, TABLE, cast(Store, store), broker.connect(), stop) as gateway:
        tick = Tick(
            origin="oregon", router=ROUTER, epoch=now_ms - 2 * SPREAD_MS, seq=last, sent_ms=now_ms
        )
        broker.publish("postoffice", encode_tick(tick))
        print(gateway.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)
        print(store.reads, flush=True)
        os._exit(0)


def main(arguments: list[str]) -> None:
    """Measure each engine named, or both."""
    if arguments[:1] == ["--serve"]:
        _, engine, url, keys, last, now_ms = arguments
        uvloop.run(_serve(engine, url, keys, int(last), int(now_ms)))
        return
    store = None
    if "--store" in arguments:
        at = arguments.index("--store")
        store = arguments[at + 1]
        arguments = arguments[:at] + arguments[at + 2 :]
    for engine in arguments or list(_RUNNING):
        result = come_back(engine, store=store)
        print(
            f"{engine}: {result.served:,} of {result.readers:,} readers had their mailboxes in "
            f"{result.seconds:.1f} s; {result.store_reads} trips to the store"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
