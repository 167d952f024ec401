"""The cost of three Cassandra nodes that sync their commit log before they reply, beside
`periodic`, which replies before the sync.

Nodes, store and the programs that use it share the machine and its disk.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import uvloop

from bench import store
from bench.rows import BenchRow
from localfabric.nodes.cassandra import LocalCassandra
from localfabric.world.cassandra_home import find_cassandra
from newsfabric.store import open_store
from newsfabric.store.logs import DirectoryRow, Log

# The first mode is the floor of the others.
MODES: dict[str, dict[str, object]] = {
    "periodic": {
        "commitlog_sync": "periodic",
        "commitlog_sync_period": "10000ms",
    },
    # A node syncs as soon as a write waits; later writes wait for the next sync.
    "batch": {"commitlog_sync": "batch"},
    **{
        f"group {ms} ms": {"commitlog_sync": "group", "commitlog_sync_group_window": f"{ms}ms"}
        for ms in (2, 5, 10, 20)
    },
}
COUNT = 20_000
CHANGES = 60


def measure() -> list[BenchRow]:
    """Return the rows of each mode in turn; SetupError without Java or Cassandra."""
    rows: list[BenchRow] = []
    floors: dict[str, float] = {}
    for mode, settings in MODES.items():
        for figure, value, unit in _figures(settings):
            floor = floors.setdefault(figure, value)
            rows.append(BenchRow(f"{figure}, {mode}", value, unit, floor=floor))
    return rows


def _figures(settings: dict[str, object]) -> Iterator[tuple[str, float, str]]:
    with _nodes(settings) as (nodes, url):
        before = _cpu_seconds(nodes)
        rate = uvloop.run(store.writes(url, 1, at_once=200, count=COUNT))
        spent = (_cpu_seconds(nodes) - before) / (store.WARM_UP + COUNT)
        yield "200 single writes at once", rate, "/s"
        yield (
            "processor time of the nodes for each",
            spent * 1e6,
            "µs",
        )
        batches = uvloop.run(store.writes(url, store.BATCH, at_once=1, count=COUNT))
        yield f"batches of {store.BATCH}, one after the other", batches, "/s"
        for name, delays in (
            ("one write alone", uvloop.run(store.single(url))),
            ("a change of the directory", uvloop.run(_changes(url))),
        ):
            cuts = statistics.quantiles(delays, n=100)
            yield f"{name}, p50", cuts[49], "ms"
            yield f"{name}, p99", cuts[98], "ms"


@contextlib.contextmanager
def _nodes(settings: dict[str, object]) -> Iterator[tuple[LocalCassandra, str]]:
    with tempfile.TemporaryDirectory(prefix="newsfabric-bench-") as folder:
        home = find_cassandra(store.ROOT, os.environ)
        with LocalCassandra(
            Path(folder), home, nodes=3, heap_mb=512, optimised=True, settings=settings
        ) as nodes:
            yield nodes, store.with_tables(nodes, replicas=3)


def _cpu_seconds(nodes: LocalCassandra) -> float:
    times = [psutil.Process(nodes.pid(node.name)).cpu_times() for node in nodes.nodes]
    return sum(each.user + each.system for each in times)


async def _changes(url: str) -> list[float]:
    """Return the ms that changes of one row of the directory take, one after the other."""
    opened = open_store(url, store.topics())
    log = Log("oregon", "oregon-router-9", time.time_ns() // 1_000_000)
    await opened.list_log(log)
    delays = []
    for version in range(2, CHANGES + 2):
        began = time.monotonic()
        assert await opened.change_log(DirectoryRow(log, version, low=version))
        delays.append((time.monotonic() - began) * 1000)
    await opened.close()
    return delays
