"""The cost of one node: its start, its memory, and 1,000 bindings.

The node is as in worlds: the plugins of the fabric, one scheduler thread, the topology of a core
broker. Memory is the resident size (VmRSS) ten seconds after the last work.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Final

import psutil

from bench import router
from bench.brokers.rabbitmqs import Rabbitmq
from bench.brokers.turns import Figure, Found
from bench.meter import resident_bytes
from localfabric.nodes.rabbitmq import LocalNode
from newsfabric import topology
from newsfabric.amqp import Declare, Message, Properties

WAITING: Final = 10_000
BINDINGS: Final = 1_000
BODY: Final = b"x" * 1024
SETTLE_SECONDS: Final = 10.0
_BENCH: Final = "bench.bindings"

STARTED: Final = Figure("a node answers after", "s", 2)
STARTED_CPU: Final = Figure("… CPU until then", "s", 2)
IDLE: Final = Figure("memory of an idle node with a core broker's topology", "MB", 0)
FULL: Final = Figure(f"… with {WAITING:,} messages of 1 KB in {topology.router_queue(1)}", "MB", 0)
BOUND: Final = Figure(f"{BINDINGS:,} bindings to a topic exchange, one after another", "ms", 0)


def measure(rabbitmq: Rabbitmq) -> Found:
    """Start a node, measure it, stop it."""
    with tempfile.TemporaryDirectory(prefix="newsfabric-bench-") as folder:
        began = time.monotonic()
        with LocalNode(Path(folder), rabbitmq.home) as node:
            found = {STARTED: time.monotonic() - began}
            pid = node.pid(node.broker.name)
            found[STARTED_CPU] = _seconds_of_start(pid)
            asyncio.run(router.declare_core(node.amqp_url))
            found[IDLE] = _megabytes(pid)
            asyncio.run(_fill(node.amqp_url))
            found[FULL] = _megabytes(pid)
            found[BOUND] = asyncio.run(_bind(node.amqp_url))
    return found


def _seconds_of_start(pid: int) -> float:
    """Return processor seconds, with those of ended threads and of the scripts of the start."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system + times.children_user + times.children_system


def _megabytes(pid: int) -> float:
    time.sleep(SETTLE_SECONDS)
    return resident_bytes(pid) / 1e6


async def _fill(url: str) -> None:
    message = Message(router.TOPIC, BODY, Properties(app_id="bench"))
    await router.publish_all(url, topology.INTAKE, (message for _ in range(WAITING)))


async def _bind(url: str) -> float:
    """Return the milliseconds for all bindings, each of which is confirmed before the next."""
    took = 0.0

    async def declare(broker: Declare) -> None:
        nonlocal took
        await broker.exchange(_BENCH)
        await broker.queue(_BENCH)
        began = time.monotonic()
        for n in range(BINDINGS):
            await broker.bind(_BENCH, _BENCH, f"bench.{n}")
        took = (time.monotonic() - began) * 1000

    async with router.linked(url) as link:
        await (await link.publisher()).ready()
        await link.declare(declare)
    return took
