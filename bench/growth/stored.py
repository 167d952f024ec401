"""A store with ever more messages: the cost of one more, and of reading.

Writes are of batches, as many as a router makes at once; reads are histories of 100, of topics that
get fuller and fuller.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import psutil
import uvloop

from bench.growth.table import Figure, Growth
from bench.meter import processor_seconds
from bench.router import TOPICS
from bench.store import BATCH, cassandra, envelopes, histories
from newsfabric.store import Store, open_store
from newsfabric.topics import load_topics

_READS: Final = 100


def stored(store: str, sizes: Sequence[int]) -> Growth:
    """Measure ``sqlite`` or ``cassandra``; SetupError without Java or Cassandra."""
    where = _sqlite() if store == "sqlite" else cassandra()
    with where as url:
        return uvloop.run(_fill(url, store, sizes))


@contextlib.contextmanager
def _sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="newsfabric-bench-") as folder:
        yield f"sqlite:{folder}/store.sqlite"


async def _fill(url: str, name: str, sizes: Sequence[int]) -> Growth:
    store = open_store(url, load_topics(TOPICS))
    steps: list[tuple[int, tuple[float, ...]]] = []
    held = 0
    for size in sizes:
        spent, took = await _write(store, held, size)
        each = 1e6 / (size - held)
        held = size
        delays = await histories(store, _READS)
        kept = [_bytes(url) / held] if name == "sqlite" else []
        values = spent * each, took * each, statistics.median(delays), max(delays), *kept
        steps.append((size, values))
    await store.close()
    figures = [
        Figure("a message written", "CPU µs", 1),
        Figure("… by the clock", "µs", 1),
        Figure("history of 100, p50", "ms"),
        Figure("… the longest", "ms"),
    ]
    if name == "sqlite":
        figures.append(Figure("a message kept", "bytes", 0))
    seen = "" if name == "sqlite" else "At the first size the node has only just started."
    return Growth(f"Messages in a {name} store", "messages", tuple(figures), tuple(steps), seen)


async def _write(store: Store, first: int, end: int) -> tuple[float, float]:
    """Write these numbers; return processor and elapsed seconds, without the time to make them."""
    # Cassandra's node; SQLite is in this process.
    nodes = [child.pid for child in psutil.Process().children() if child.name() == "java"]
    spent = took = 0.0
    for start in range(first, end, BATCH):
        batch = envelopes(min(BATCH, end - start), start)
        before, began = sum(map(processor_seconds, (os.getpid(), *nodes))), time.monotonic()
        await store.write(batch)
        took += time.monotonic() - began
        spent += sum(map(processor_seconds, (os.getpid(), *nodes))) - before
    return spent, took


def _bytes(url: str) -> int:
    """Return the size of SQLite's files."""
    file = Path(url.partition(":")[2])
    return sum(each.stat().st_size for each in file.parent.glob(f"{file.name}*"))
