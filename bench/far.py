"""Two distant regions: a gold message's delay, beside the delay of the wire itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from bench import latency
from bench.programs import ROOT, build
from bench.rows import BenchRow
from bench.world import newsfabric, running_world
from localfabric.world.toxiproxy import find_toxiproxy
from newsfabric.errors import SetupError

# Each way; about the delay between Oregon and Dublin.
WIRE_MS: Final = 80
# Gold is sent over several paths, and stored in both regions (topics.toml).
GOLD: Final = "news.breaking"
LOAD: Final = latency.Load(readers=100, rate=20.0, seconds=7.0)


def measure() -> list[BenchRow]:
    """Return delays in the publisher's region and in the other; SetupError without Toxiproxy."""
    build()
    if find_toxiproxy(ROOT, os.environ) is None:
        raise SetupError("Toxiproxy is missing, which makes links slow: scripts/setup toxiproxy")
    with running_world() as (status, _):
        here, there = status["regions"][:2]
        link = f"{here['name']}-{there['name']}-link"
        slow = ("chaos", "slow", link, "--latency", str(WIRE_MS), "--jitter", "0")
        newsfabric(Path(status["state"]), *slow)
        same = latency.between(here, here, LOAD, topic=GOLD)
        other = latency.between(here, there, LOAD, topic=GOLD)
    wire = float(WIRE_MS)
    return [
        BenchRow(f"{WIRE_MS} ms between them: same region, p50", same.p50, "ms"),
        BenchRow("… p99", same.p99, "ms"),
        BenchRow("… other region, p50", other.p50, "ms", floor=wire),
        BenchRow("… p99", other.p99, "ms", floor=wire),
        BenchRow(
            "… deliveries",
            same.count + other.count,
            "",
            digits=0,
            at_least=same.expected + other.expected,
        ),
    ]
