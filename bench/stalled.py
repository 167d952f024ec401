"""10,000 readers that read nothing, beside 1,000 good ones: the cost for the good ones.

The good ones get a message fifty times a second. The others each request a history of 320 KB, a
reply that isn't shared, and read nothing from then on, while messages of 16 KB are sent to them.
After half a minute they are closed. All processes share all cores here. An attacker's readers are
elsewhere, but the unread bytes cost the kernel the same.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.box import TOPIC, BenchBox, running_box, subscribe_verb
from bench.programs import BareCrowd, running_crowd
from bench.rows import BenchRow

STALLED: Final = 10_000
GOOD: Final = 1_000
HEAVY_TOPIC: Final = "news.breaking"
HEAVY_BYTES: Final = 16_000
HISTORY: Final = 20
PER_SECOND: Final = 50
# Longer than stalled readers may stay.
SECONDS: Final = 45
ALONE_SECONDS: Final = 20
# Time to build and send 10,000 histories, 3 GB.
ASKING_SECONDS: Final = 15
BUDGET: Final = 256 << 20
_ASK: Final = json.dumps({"action": "history", "topic": HEAVY_TOPIC, "limit": HISTORY})
_SLOW: Final = 'newsfabric_gateway_closes_total{reason="slow_reader"}'
_WAITING: Final = "newsfabric_gateway_outbox_bytes"


def measure(stalled: int = STALLED) -> list[BenchRow]:
    """Measure good readers alone, then beside ``stalled`` bad ones."""
    return uvloop.run(_measure(stalled))


async def _measure(stalled: int) -> list[BenchRow]:
    async with (
        running_box("native", own_core=False) as box,
        running_crowd(box.port, GOOD, say=subscribe_verb(), sample=1, numbers=1) as good,
        running_crowd(
            box.port,
            stalled,
            source="127.0.0.50",
            receive_buffer=4_096,
            say=subscribe_verb(HEAVY_TOPIC),
        ) as bad,
    ):
        await good.next_reply()
        came = (await bad.next_reply())["connections"]
        await box.publish(HEAVY_TOPIC, count=2 * HISTORY, text_bytes=HEAVY_BYTES)
        await bad.has_got(came * 2 * HISTORY)
        before = box.resident()
        alone = await _report(box, good, ALONE_SECONDS)
        with _watched(box) as seen:
            await bad.send_command(f"stall {_ASK}")
            asking = await _report(box, good, ASKING_SECONDS, heavy=True)
            beside = await _report(box, good, SECONDS, heavy=True)
        closed = await asyncio.to_thread(box.gateway.metric, _SLOW)
    return [
        BenchRow("readers who take nothing", came, "", digits=0, at_least=stalled),
        # The other readers have no backlog: the kernel took all their bytes.
        BenchRow("… closed as slow", closed, "", digits=0),
        BenchRow("memory of both processes before", before / 1e6, "MB", digits=0),
        BenchRow(
            "… at its most while they took nothing",
            max(seen["resident"]) / 1e6,
            "MB",
            digits=0,
            at_most=(before + 2 * BUDGET) / 1e6,
        ),
        BenchRow(
            "waiting in outboxes at its most",
            max(seen["waiting"]) / 1e6,
            "MB",
            digits=0,
            at_most=BUDGET / 1e6,
        ),
        BenchRow(
            "memory that the kernel had for all sockets at its most",
            max(seen["kernel"]) / 1e6,
            "MB",
            digits=0,
        ),
        BenchRow(f"{GOOD:,} good readers alone, p99", alone["p99_ms"], "ms"),
        BenchRow("… while those ask for 3 GB, p99", asking["p99_ms"], "ms"),
        BenchRow("… beside those that take nothing, p99", beside["p99_ms"], "ms"),
        BenchRow("… p50", beside["p50_ms"], "ms"),
        BenchRow("… the worst delivery", beside["worst_ms"], "ms"),
        BenchRow(
            "… deliveries lost or doubled",
            sum(one["lost"] + one["doubled"] for one in (alone, asking, beside)),
            "",
            digits=0,
            at_most=0,
        ),
        BenchRow("… closed", asking["gone"] + beside["gone"], "", digits=0, at_most=0),
    ]


async def _report(
    box: BenchBox, good: BareCrowd, seconds: int, *, heavy: bool = False
) -> dict[str, Any]:
    """Return the good readers' report of ``seconds``; ``heavy``: the others get 16 KB a second."""
    await good.send_command("report")
    start = time.monotonic()
    messages = seconds * PER_SECOND
    for number in range(messages):
        await asyncio.sleep(max(0.0, start + number / PER_SECOND - time.monotonic()))
        await box.publish(TOPIC, first=number)
        if heavy and number % PER_SECOND == 0:
            await box.publish(HEAVY_TOPIC, text_bytes=HEAVY_BYTES)
    await good.has_got(GOOD * messages)
    census = await good.send_command(f"census {messages} 0")
    return await good.send_command("report") | census


@contextmanager
def _watched(box: BenchBox) -> Iterator[dict[str, list[float]]]:
    """Record memory four times a second, in a thread that delays no measurement."""
    seen: dict[str, list[float]] = {"resident": [], "waiting": [], "kernel": []}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.25):
            seen["resident"].append(box.resident())
            seen["kernel"].append(_socket_bytes())
            seen["waiting"].append(box.gateway.metric(_WAITING))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield seen
    finally:
        over.set()
        watching.join()


def _socket_bytes() -> int:
    """Return TCP's share of the kernel's memory, of the whole machine (proc(5), ``sockstat``)."""
    for line in Path("/proc/net/sockstat").read_text().splitlines():
        if line.startswith("TCP:"):
            return int(line.split()[-1]) * 4_096
    return 0
