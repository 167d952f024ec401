"""The Cassandra store on one node of this machine: writes, reads, a router process on it, and the
size on disk.

The node, the store and the programs that use it share the machine. Every envelope is written to two
tables, or three if it has a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson
import uvloop

from bench import router
from bench.prose import prose
from bench.rows import BenchRow
from localfabric.nodes.cassandra import LocalCassandra
from localfabric.world.cassandra_home import find_cassandra
from newsfabric.errors import StoreUnavailable
from newsfabric.messages.envelope import Envelope, id_of, identity_of
from newsfabric.store import Store, open_store
from newsfabric.store._cassandra_schema import Schema, cql_folder, load_migrations
from newsfabric.store._cassandra_url import parse_address
from newsfabric.store.logs import Log
from newsfabric.topics import TopicTable, load_topics

ROOT = Path(__file__).parent.parent
# As many as a router writes at once, and the topics of a busy minute.
BATCH = 256
TOPICS = [f"news.{n}" for n in range(20)]
# Of a headline and a teaser.
BODY_BYTES = 400
WARM_UP = 10_000
COUNT = 40_000
EPOCH_MS = 1_735_689_600_000
# Of two regions with ten routers each.
LOGS = 20
LOOKS = 2_000
KNOWN_WITHIN = 120.0


def measure() -> list[BenchRow]:
    """Return the store's rows, then a router's; SetupError without Java or Cassandra."""
    with _node() as node:
        url = with_tables(node)
        size = _bytes_on_disk(node, url)
    with cassandra() as url:
        batches = uvloop.run(writes(url, BATCH, at_once=1))
        singles = uvloop.run(writes(url, 1, at_once=200))
        one, history = uvloop.run(single(url)), uvloop.run(_histories(url))
        routed = router.messages_per_second(url)
        looks = uvloop.run(_directory(url))
    return [
        _rate("router process, on one Cassandra node", routed, at_least=3_400),
        _rate(f"envelopes written, one process, batches of {BATCH}", batches),
        _rate("… 200 single writes at once", singles),
        *_delays("one write alone", one),
        *_delays("history of 100", history),
        _rate(
            f"looks of gateways into a directory of {LOGS} open logs (200 gateways: 40)",
            looks,
            at_least=40,
        ),
        # The limit is 0.65 of the size when each body was stored twice.
        BenchRow(f"bytes on disk, body of {BODY_BYTES}", size, "bytes", digits=0, at_most=304),
    ]


@contextlib.contextmanager
def cassandra() -> Iterator[str]:
    """Start one node with our tables; yield the store's URL."""
    with _node() as node:
        yield with_tables(node)


@contextlib.contextmanager
def _node() -> Iterator[LocalCassandra]:
    with tempfile.TemporaryDirectory(prefix="newsfabric-bench-") as folder:
        home = find_cassandra(ROOT, os.environ)
        with LocalCassandra(Path(folder), home, heap_mb=512, optimised=True) as node:
            yield node


def with_tables(node: LocalCassandra, *, replicas: int = 1, keyspace: str = "bench") -> str:
    """Return the URL of a keyspace with our tables. Nodes that have just started get
    ``KNOWN_WITHIN`` seconds to learn of each other; then StoreUnavailable."""
    url = node.url(keyspace)
    migrations = load_migrations(cql_folder())
    deadline = time.monotonic() + KNOWN_WITHIN
    while True:
        try:
            with Schema(
                parse_address(url), None, migrations, replication={"oregon": replicas}
            ) as schema:
                schema.apply(lambda line: None)
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)
        else:
            return url


def _bytes_on_disk(cluster: LocalCassandra, url: str) -> float:
    """Return the table bytes of a node for each of many messages. The node is stopped first, so
    that it has written everything."""
    uvloop.run(writes(url, BATCH, at_once=1))
    (node,) = cluster.nodes
    cluster.stop(node.name)
    files = (node.folder / "data" / "bench").rglob("*-Data.db")
    return sum(file.stat().st_size for file in files) / (WARM_UP + COUNT)


async def _directory(url: str) -> float:
    """Return how many times a second gateways can read the directory of all logs."""
    store = open_store(url, topics())
    began_ms = time.time_ns() // 1_000_000
    logs = [Log("oregon", f"oregon-router-{n}", began_ms) for n in range(LOGS)]
    for log in logs:
        await store.list_log(log)
    looks = itertools.count()

    async def gateway() -> None:
        while next(looks) < LOOKS:
            for region, day in await store.log_days():
                assert len(await store.directory(region, day, but=())) >= LOGS

    began = time.monotonic()
    await asyncio.gather(*(gateway() for _ in range(20)))
    rate = LOOKS / (time.monotonic() - began)
    await store.close()
    return rate


def envelopes(count: int, start: int = 0) -> list[Envelope]:
    """Return ``count`` envelopes, spread over :data:`TOPICS`; the first has number ``start``."""
    made = []
    ms = time.time_ns() // 1_000_000
    for n in range(start, start + count):
        identity = identity_of(
            app_id="bench", message_id=str(n), topic="", published_ms=None, body=b""
        )
        made.append(
            Envelope(
                id=id_of(ms, identity),
                identity=identity,
                topic=TOPICS[n % len(TOPICS)],
                body=orjson.dumps({"text": prose(BODY_BYTES - 11, n)}),
                published_ms=ms,
                origin="oregon",
                router="oregon-router-1",
                epoch=EPOCH_MS,
                seq=n,
                path=("oregon-router-1@1735689600000",),
                key=f"story-{n % 100}" if n % 4 == 0 else None,
                version=n if n % 8 == 0 else None,
                message_id=str(n),
                app_id="bench",
            )
        )
    return made


def topics() -> TopicTable:
    """Return the topics of this checkout."""
    return load_topics(ROOT / "topics.toml")


async def writes(url: str, batch: int, *, at_once: int, count: int = COUNT) -> float:
    """Return envelopes a second, ``count`` after :data:`WARM_UP`, in batches of ``batch``."""
    store = open_store(url, topics())
    numbers = itertools.count(0, batch)
    await _write(store, batch, WARM_UP, numbers, at_once)
    began = time.monotonic()
    await _write(store, batch, count, numbers, at_once)
    rate = count / (time.monotonic() - began)
    await store.close()
    return rate


async def _write(
    store: Store, batch: int, count: int, numbers: Iterator[int], at_once: int
) -> None:
    left = itertools.count(count, -batch)

    async def writer() -> None:
        while next(left) > 0:
            await store.write(envelopes(batch, next(numbers)))

    await asyncio.gather(*(writer() for _ in range(at_once)))


async def single(url: str) -> list[float]:
    """Return the ms that each write of one envelope takes, at 200 a second."""
    store = open_store(url, topics())
    delays = []
    for n, e in enumerate(envelopes(1_000, 10_000_000)):
        began = time.monotonic()
        await store.write([e])
        delays.append((time.monotonic() - began) * 1000)
        await asyncio.sleep(max(0.0, 0.005 - delays[n] / 1000))
    await store.close()
    return delays[100:]


async def _histories(url: str) -> list[float]:
    store = open_store(url, topics())
    delays = await histories(store, 300)
    await store.close()
    return delays[20:]


async def histories(store: Store, count: int) -> list[float]:
    """Return the ms that a reader's history of 100 takes, ``count`` times."""
    delays = []
    for n in range(count):
        began = time.monotonic()
        await store.history(TOPICS[n % len(TOPICS)], limit=100)
        delays.append((time.monotonic() - began) * 1000)
    return delays


def _rate(figure: str, value: float, *, at_least: float | None = None) -> BenchRow:
    return BenchRow(figure, value, "/s", digits=0, at_least=at_least)


def _delays(figure: str, delays: Sequence[float]) -> list[BenchRow]:
    cuts = statistics.quantiles(delays, n=100)
    return [
        BenchRow(f"{figure}, p50", cuts[49], "ms"),
        BenchRow(f"{figure}, p99", cuts[98], "ms"),
    ]
