"""The publishers' libraries: the confirmed messages a second that each publishes to one broker.

The broker shares the machine; its exchange has one bounded queue without a consumer, like the queue
of a shovel that is down. A program is run with few messages and with many, and the difference of
both counts: so neither its start nor the warm-up of a virtual machine is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import uvloop

from bench.drivers import ROOT, command
from bench.rows import BenchRow
from localfabric.nodes.rabbitmq import LocalNode
from localfabric.world.rabbitmq_home import find_rabbitmq
from newsfabric import topology
from newsfabric.amqp import Declare
from newsfabric.amqp.link import connect
from newsfabric.errors import SetupError
from newsfabric.topology import PUBLISH, Bounds

FEW: Final = 10_000
MANY: Final = 60_000
RUNS: Final = 3
_BOUNDS: Final = Bounds(max_length=1000, max_bytes=1 << 20)
_FIGURES: Final[tuple[tuple[str, str, float | None], ...]] = (
    ("Java", "java", 5_000),
    ("PHP", "php", 5_000),
    ("Python, asyncio", "python-async", None),
    ("Python, a thread", "python-sync", None),
)


def measure() -> list[BenchRow]:
    """Return one row for each library; SetupError when a toolchain is missing."""
    commands = {language: command(language) for _, language, _ in _FIGURES}
    with tempfile.TemporaryDirectory(prefix="newsfabric-bench-") as folder:
        home = find_rabbitmq(ROOT, os.environ)
        with LocalNode(Path(folder), home) as node:
            uvloop.run(_declare(node.amqp_url))
            return [
                BenchRow(
                    f"confirmed messages, {name}",
                    _rate(commands[language], node.amqp_url),
                    "messages/s",
                    digits=0,
                    at_least=asked,
                )
                for name, language, asked in _FIGURES
            ]


def _rate(program: list[str], url: str) -> float:
    """Return the median of three runs."""
    rates = []
    for _ in range(RUNS):
        seconds = _seconds(program, url, MANY) - _seconds(program, url, FEW)
        rates.append((MANY - FEW) / seconds)
    rates.sort()
    return rates[RUNS // 2]


def _seconds(program: list[str], url: str, count: int) -> float:
    settings = {"regions": [url], "app_id": "bench", "receipt": False}
    done = subprocess.run(
        [*program, json.dumps(settings)],
        check=False,
        input=json.dumps({"topic": "metrics.bench", "many": count}) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    if done.returncode:
        raise SetupError(f"{program[0]} failed: {done.stderr}")
    report = json.loads(done.stdout)
    assert report["failed"] == 0, report
    return float(report["seconds"])


async def _declare(url: str) -> None:
    async def declare(broker: Declare) -> None:
        await topology.declare_client(broker)
        await broker.queue("bench", arguments=_BOUNDS.arguments())
        await broker.bind("bench", PUBLISH, "#")

    link = await connect([url], name="bench")
    try:
        await link.on_connect(declare)
        async with asyncio.timeout(10):
            await (await link.publisher()).ready()
    finally:
        await link.close()
