"""The throughput of one of the fabric's shovels between two nodes, in messages a second.

The messages wait before the shovel starts, and no consumer reads them at the destination, so
neither a publisher nor a reader limits the throughput. The time is taken between two marker
messages: the last message of the warm-up, and the last of all.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import uvloop

from bench import router
from bench.brokers.node import BODY
from bench.brokers.rabbitmqs import Rabbitmq
from bench.brokers.turns import Figure, Found
from bench.chain import declaring, shovelling
from localfabric.nodes.rabbitmq import LocalNode
from newsfabric.amqp import Declare, Delivery, Message, Properties

WARM_UP: Final = 5_000
# With the warm-up below the bound of a queue of the bench, 64 MiB.
COUNT: Final = 50_000
CARRIED: Final = Figure("one shovel, messages of 1 KB", "messages/s", 0)
_IN, _OUT, _MARK = "bench.in", "bench.out", "bench.mark"
_PATIENCE: Final = 120.0


def measure(rabbitmq: Rabbitmq) -> Found:
    """Start two nodes, run a shovel on the second, stop both."""
    with tempfile.TemporaryDirectory(prefix="newsfabric-bench-") as folder:
        here, there = Path(folder) / "here", Path(folder) / "there"
        for each in (here, there):
            each.mkdir()
        with LocalNode(here, rabbitmq.home) as source, LocalNode(there, rabbitmq.home) as sink:
            return {CARRIED: uvloop.run(_rate(source, sink))}


async def _rate(source: LocalNode, sink: LocalNode) -> float:
    marks: list[float] = []
    done = asyncio.Event()

    async def declare(broker: Declare) -> None:
        await broker.queue(_MARK)
        await broker.bind(_MARK, _OUT, _MARK)

    def seen(delivery: Delivery) -> None:
        marks.append(time.monotonic())
        reader.ack(delivery)
        if len(marks) == 2:
            done.set()

    async with declaring(_addresses(source), _IN), declaring(_addresses(sink), _OUT) as link:
        await link.on_connect(declare)
        reader = await link.consumer(_MARK, seen)
        await router.publish_all(source.amqp_url, _IN, _messages())
        async with asyncio.timeout(_PATIENCE):
            async with shovelling(_addresses(sink), _addresses(source), _IN, _OUT):
                await done.wait()
    first, last = marks
    return COUNT / (last - first)


def _messages() -> Iterator[Message]:
    properties = Properties(app_id="bench")
    for n in range(1, WARM_UP + COUNT + 1):
        yield Message(_MARK if n in (WARM_UP, WARM_UP + COUNT) else "bench", BODY, properties)


def _addresses(node: LocalNode) -> dict[str, str]:
    return {"amqp_url": node.amqp_url, "management_url": node.management_url}
