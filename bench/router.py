"""A router process against a real broker: its messages a second, and its delay.

The queue is filled before the router starts, and the clock stops when the router is done with the
last message. So neither the publisher's speed nor a backlog improves the figure. The broker shares
the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path

import orjson

from bench.rows import BenchRow
from localfabric.nodes.ports import free_ports
from localfabric.nodes.rabbitmq import LocalNode
from localfabric.world.rabbitmq_home import find_rabbitmq
from newsfabric import topology
from newsfabric.amqp import Declare, Delivery, Link, Message, Properties
from newsfabric.amqp.link import connect
from newsfabric.errors import SetupError
from newsfabric.settings import Fabric, Node, Region, dump_fabric
from newsfabric.topics import load_topics

ROOT = Path(__file__).parent.parent
TOPICS = ROOT / "topics.toml"
# Not bronze: an overloaded router drops bronze, and the count would never be complete.
TOPIC = "news.bench"
MESSAGES = 40_000
# Not timed: caches fill and the first batches form.
WARM_UP = 5_000
SINK = "bench.sink"
# The region of the Cassandra node: a log is listed in its own data centre.
REGION = "oregon"
# The size of a news headline.
PADDING = "x" * 220


@dataclasses.dataclass(frozen=True, slots=True)
class BenchRouter:
    """A router process that is ready."""

    pid: int
    metrics_url: str

    def routed(self) -> float:
        """Return the number of messages that the router is done with."""
        with urllib.request.urlopen(self.metrics_url, timeout=60) as page:
            text = page.read().decode()
        found = re.search(r'router_stage_left_messages_total\{stage="route"\} (\S+)', text)
        return float(found[1]) if found else 0.0


def messages_per_second(store: str = "memory:") -> float:
    """Return one router's messages/s; each is taken, stored, published twice and acknowledged."""
    with running_core() as node:
        asyncio.run(fill(node.amqp_url, MESSAGES))
        with running_router(node, store) as router:
            return _rate(router)


def added_delay(store: str) -> tuple[list[float], list[float]]:
    """Return delays in ms at 100 messages/s from intake to postoffice: by the router, by one line.

    The one line is a consumer that publishes each message: no checks, no store, no receipts.
    """
    with running_core() as node:
        with running_router(node, store):
            routed = asyncio.run(_delays(node.amqp_url))
        return routed, asyncio.run(_delays(node.amqp_url, forward=True))


def measure() -> list[BenchRow]:
    """Measure the rate with each of the stores that are no server, and the added delay."""
    with tempfile.TemporaryDirectory(prefix="newsfabric-bench-") as folder:
        stores = {"memory": "memory:", "SQLite": f"sqlite:{folder}/rate.sqlite"}
        rows = [
            BenchRow(
                f"router, {name} store",
                messages_per_second(store),
                "messages/s",
                digits=0,
                at_least=5_000 if name == "memory" else None,
            )
            for name, store in stores.items()
        ]
        routed, bare = added_delay(f"sqlite:{folder}/delay.sqlite")
    for name, cut in (("p50", 49), ("p99", 98)):
        with_it = statistics.quantiles(routed, n=100)[cut]
        without = statistics.quantiles(bare, n=100)[cut]
        figure = f"intake to postoffice, SQLite store, {name} (floor: one line instead)"
        rows.append(BenchRow(figure, with_it, "ms", digits=2, floor=without))
    return rows


@contextlib.contextmanager
def running_core() -> Iterator[LocalNode]:
    """Start a broker with a core cluster's topology, whose queues have no consumer."""
    with tempfile.TemporaryDirectory(prefix="newsfabric-bench-") as folder:
        home = find_rabbitmq(ROOT, os.environ)
        with LocalNode(Path(folder), home) as node:
            asyncio.run(declare_core(node.amqp_url))
            yield node


async def declare_core(url: str) -> None:
    """Declare the topology of a core broker on the broker at ``url``."""

    async def declare(broker: Declare) -> None:
        await topology.declare_part(broker, topology.core(load_topics(TOPICS)))

    async with linked(url) as link:
        await link.on_connect(declare)
        await (await link.publisher()).ready()


@contextlib.asynccontextmanager
async def linked(url: str) -> AsyncIterator[Link]:
    """Yield a link to the broker at ``url``."""
    link = await connect([url], name="bench")
    try:
        yield link
    finally:
        await link.close()


async def fill(url: str, count: int, first: int = 0) -> None:
    """Put ``count`` messages into the routers' queue, numbered from ``first`` on."""
    await publish_all(url, topology.INTAKE, map(_message, range(first, first + count)))


async def publish_all(url: str, exchange: str, messages: Iterable[Message]) -> None:
    """Publish ``messages`` as fast as the broker confirms them; return when all are confirmed."""
    async with linked(url) as link:
        publisher = await link.publisher()
        await publisher.ready()
        pending: list[Awaitable[None]] = []
        for message in messages:
            if publisher.in_flight >= 900:
                await publisher.ready()
                await pending[-1]
            pending.append(publisher.publish_nowait(exchange, message))
        for confirm in pending:
            await confirm


def _message(n: int) -> Message:
    body = orjson.dumps({"n": n, "sent_ns": time.monotonic_ns(), "text": PADDING})
    properties = Properties(content_type="application/json", app_id="bench", message_id=str(n))
    return Message(TOPIC, body, properties)


@contextlib.contextmanager
def running_router(node: LocalNode, store: str) -> Iterator[BenchRouter]:
    """Start a router process on ``node``."""
    here = Node("node", node.amqp_url, node.management_url)
    region = Region(
        name=REGION,
        frontdesk_url="http://127.0.0.1:1",
        client=(Node("client", node.amqp_url, node.management_url),),
        core=(here,),
    )
    fabric = node.folder / "fabric.json"
    fabric.write_text(dump_fabric(Fabric((region,))), encoding="utf-8")
    (port,) = free_ports(1)
    options = {
        "name": "bench-router-1",
        "region": REGION,
        "fabric": fabric,
        "topics": TOPICS,
        "store": store,
        "port": port,
        "log-level": "warning",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    process = subprocess.Popen([sys.executable, "-m", "wholesale", "router", *words])
    try:
        _await_ready(f"http://127.0.0.1:{port}/healthz/ready", process)
        yield BenchRouter(process.pid, f"http://127.0.0.1:{port}/metrics")
    finally:
        process.terminate()
        process.wait(timeout=20)


def _await_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=1).close()
            return
        time.sleep(0.02)
    raise SetupError("the router isn't ready")


def _rate(router: BenchRouter) -> float:
    started_at, started_with = 0.0, 0.0
    while True:
        count = router.routed()
        now = time.monotonic()
        if count < WARM_UP:
            started_at, started_with = now, count
        if count >= MESSAGES:
            return (count - started_with) / (now - started_at)
        time.sleep(0.05)


async def _delays(url: str, *, forward: bool = False, count: int = 1000) -> list[float]:
    delays: list[float] = []
    complete = asyncio.Event()

    def on_delivery(delivery: Delivery) -> None:
        sent = orjson.loads(delivery.message.body)["sent_ns"]
        delays.append((time.monotonic_ns() - sent) / 1e6)
        sink.ack(delivery)
        if len(delays) == count:
            complete.set()

    async def declare(broker: Declare) -> None:
        await broker.queue(SINK)
        await broker.bind(SINK, topology.POSTOFFICE, TOPIC)

    async with linked(url) as link:
        await link.on_connect(declare)
        publisher = await link.publisher()
        await publisher.ready()
        sink = await link.consumer(SINK, on_delivery)
        if forward:
            await _forward(link)
        await _send_steadily(lambda n: publisher.publish(topology.INTAKE, _message(n)), count)
        await complete.wait()
    return delays[100:]


async def _forward(link: Link) -> None:
    publisher = await link.publisher()
    await publisher.ready()

    def on_delivery(delivery: Delivery) -> None:
        publisher.publish_nowait(topology.POSTOFFICE, delivery.message)
        source.ack(delivery)

    source = await link.consumer(topology.router_queue(1), on_delivery)


async def _send_steadily(send: Callable[[int], Awaitable[None]], count: int) -> None:
    base = time.time_ns()
    start = time.monotonic()
    for n in range(count):
        await asyncio.sleep(max(0.0, start + n / 100 - time.monotonic()))
        await send(base + n)
