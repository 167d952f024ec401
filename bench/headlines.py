"""The published figures of other large systems, measured for ours on this machine, one for each.

docs/reports/headlines.md has theirs beside these, with the sources. The gateway of the one box has
one core; its readers and its broker share the other. So figures of "a box" here are of less than
the two cores that theirs had. Other parts measure more headlines: ``connect`` (new connections a
second), ``idle`` (bytes for a reader) and ``far`` (two regions).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path
from typing import Any, Final

import psutil

from bench import latency
from bench.box import BenchBox, running_box, subscribe_verb
from bench.meter import processor_seconds, resident_bytes
from bench.programs import BareCrowd, running_crowd
from bench.rows import BenchRow

# Each thread has a descriptor table of its own, and one may have 20,000.
THREADS: Final = 6
ARRIVING: Final = 15_000
# The numbers of readers present before each arrival.
PRESENT: Final = (0, 42_500, 85_000)
# The reference machine (EC2's c1.medium) had 1.7 GB.
BOX_MEMORY_MB: Final = 1_700

FANOUT_READERS: Final = 10_000
# Messages a second; each is delivered to all readers.
RATES: Final = (1, 4, 8, 12, 16, 20, 24)
RATE_SECONDS: Final = 5.0
DELAY_MS: Final = 200.0


async def measure() -> list[BenchRow]:
    """Measure a box full of readers, and a box full of deliveries."""
    return [*await _full(), *await _deliveries()]


async def _full() -> list[BenchRow]:
    """Measure connection times while the box fills up, and the memory of the full box."""
    rows: list[BenchRow] = []
    kernel_before = _kernel_bytes()
    async with running_box("native", threads=THREADS) as box, contextlib.AsyncExitStack() as stack:
        crowds = _Crowds(box, stack)
        for present in PRESENT:
            await crowds.come(present - crowds.came)
            arrival = await crowds.come(ARRIVING, at_once=ARRIVING)
            figure = f"{ARRIVING:,} arrive at once where {present:,} are: connect and subscribe"
            rows.append(BenchRow(f"{figure}, p50", arrival["p50_ms"], "ms"))
            rows.append(BenchRow("… p99", arrival["p99_ms"], "ms"))
            rows.append(BenchRow("… all of them after", arrival["seconds"], "s"))
        before = box.spent().total + _broker_seconds()
        start = time.monotonic()
        await asyncio.sleep(25)
        busy = (box.spent().total + _broker_seconds() - before) / (time.monotonic() - start)
        memory = (box.resident() + _broker_bytes()) / 1e6
        kernel = _kernel_bytes() - kernel_before
    rows += [
        BenchRow("readers of the full box", crowds.came, "", digits=0, at_least=100_000),
        BenchRow("… memory of gateway and broker", memory, "MB", digits=0, at_most=BOX_MEMORY_MB),
        BenchRow("… both, while nothing comes", 100 * busy, "% of a core"),
        BenchRow(
            "… memory of the kernel for a connection, both ends of it",
            kernel / crowds.came,
            "B",
            digits=0,
        ),
    ]
    return rows


class _Crowds:
    """Readers that stay; each crowd has addresses of its own."""

    def __init__(self, box: BenchBox, stack: contextlib.AsyncExitStack) -> None:
        self._box, self._stack = box, stack
        self._count = 0
        #: Readers that are connected and whose subscription was confirmed.
        self.came = 0

    async def come(self, readers: int, *, at_once: int = 256) -> dict[str, Any]:
        """Connect ``readers``, 15,000 at most per program; return the last program's first line."""
        reply: dict[str, Any] = {}
        while readers > 0:
            share = min(readers, ARRIVING)
            readers -= share
            self._count += 1
            crowd = await self._stack.enter_async_context(
                running_crowd(
                    self._box.port,
                    share,
                    source=f"127.0.{self._count}.2",
                    say=subscribe_verb(),
                    at_once=at_once,
                )
            )
            reply = await crowd.next_reply()
            self.came += reply["connections"]
        return reply


async def _deliveries() -> list[BenchRow]:
    """Measure delays at each rate until these are too long, or messages are missing."""
    rows: list[BenchRow] = []
    async with (
        running_box("native") as box,
        running_crowd(
            box.port, FANOUT_READERS, source="127.0.0.2", say=subscribe_verb(), numbers=1
        ) as crowd,
    ):
        await crowd.next_reply()
        for rate in RATES:
            report = await _at_rate(box, crowd, rate)
            messages = int(rate * RATE_SECONDS)
            figure = f"{rate * FANOUT_READERS:,} deliveries/s"
            rows.append(BenchRow(f"{figure}, p50", report["p50_ms"], "ms"))
            rows.append(BenchRow("… p99", report["p99_ms"], "ms"))
            rows.append(_once(report, messages))
            if report["p99_ms"] > DELAY_MS or not rows[-1].reached:
                break
    return rows


def _once(report: dict[str, Any], messages: int) -> BenchRow:
    """Return the number of messages that every reader received, or 0 if one had a duplicate."""
    is_once = report["most"] == report["different"] and report["twice"] == report["gone"] == 0
    return BenchRow(
        "… messages that every reader got once",
        report["different"] if is_once else 0,
        "",
        digits=0,
        at_least=messages,
    )


async def _at_rate(box: BenchBox, crowd: BareCrowd, rate: int) -> dict[str, Any]:
    await crowd.send_command("report")
    sent = await latency.steadily(
        lambda n, due: box.publish(first=n, due_ns=due), rate=rate, seconds=RATE_SECONDS
    )
    await crowd.has_got(sent * FANOUT_READERS)
    return await crowd.send_command("report")


def _brokers() -> list[psutil.Process]:
    """Return the box's broker, which this process has started."""
    return [p for p in psutil.Process().children(recursive=True) if p.name() == "beam.smp"]


def _broker_bytes() -> int:
    return sum(resident_bytes(broker.pid) for broker in _brokers())


def _broker_seconds() -> float:
    return sum(processor_seconds(broker.pid) for broker in _brokers())


def _kernel_bytes() -> int:
    """Return the bytes of the kernel's own structures, and of data that waits in sockets."""
    page = os.sysconf("SC_PAGE_SIZE")
    memory = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    (tcp,) = (
        line for line in Path("/proc/net/sockstat").read_text().splitlines() if line[:4] == "TCP:"
    )
    return int(memory["Slab"].split()[0]) * 1024 + int(tcp.split()[-1]) * page
