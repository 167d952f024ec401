"""100,000 readers on one gateway: each gets all messages once; the latency of another topic.

Six I/O threads, each with its own descriptor table, hold them even where one table may have 20,000.

The readers of the other topic are spread over all threads. Its messages are sent every 20 ms, only
while a message is on its way to the 100,000. Meanwhile the crowds have the lowest priority on their
core (SCHED_IDLE): real readers have computers of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, Final

from bench.box import BenchBox, running_box, subscribe_verb
from bench.programs import BareCrowd, running_crowd
from bench.rows import BenchRow

READERS: Final = 100_000
CROWDS: Final = 6
THREADS: Final = 6
MESSAGES: Final = 10
GAP_SECONDS: Final = 1.5
OTHER_TOPIC: Final = "metrics.other"
OTHER_READERS: Final = 60
OTHER_GAP_SECONDS: Final = 0.02
FANOUTS: Final = 20
# A message takes longer than this to reach 100,000 readers from one core.
FANOUT_SECONDS: Final = 0.6


async def measure() -> list[BenchRow]:
    """Connect the crowds, deliver to them, and measure the other topic meanwhile."""
    async with running_box("native", threads=THREADS) as box, contextlib.AsyncExitStack() as stack:
        start = time.monotonic()
        crowds = [await stack.enter_async_context(_crowd(box, number)) for number in range(CROWDS)]
        came = sum([(await crowd.next_reply())["connections"] for crowd in crowds])
        took = time.monotonic() - start
        for number in range(MESSAGES):
            await box.publish(first=number)
            await asyncio.sleep(GAP_SECONDS)
        reports = [await _report(crowd) for crowd in crowds]
        rows = _delivery_rows(came, took, reports, box.resident())
        other = await stack.enter_async_context(
            running_crowd(
                box.port,
                OTHER_READERS,
                source="127.0.0.100",
                say=subscribe_verb(OTHER_TOPIC),
                sample=1,
            )
        )
        await other.next_reply()
        for crowd in crowds:
            crowd.step_back()
        alone = await _quiet(box, other)
        busy = await _disturbed(box, other, crowds)
    rows.append(BenchRow("another topic's message, nothing else, p99", alone["p99_ms"], "ms"))
    rows.append(
        BenchRow(f"… during a {READERS:,}-reader fan-out, p99", busy["p99_ms"], "ms", at_most=20)
    )
    rows.append(BenchRow("… p50", busy["p50_ms"], "ms"))
    rows.append(
        BenchRow(
            "… deliveries measured",
            busy["delays"],
            "",
            digits=0,
            at_least=FANOUTS * _others_in_a_fanout() * OTHER_READERS,
        )
    )
    return rows


def _crowd(box: BenchBox, number: int) -> contextlib.AbstractAsyncContextManager[BareCrowd]:
    share = READERS // CROWDS + (number < READERS % CROWDS)
    return running_crowd(
        box.port, share, source=f"127.0.0.{10 * number + 2}", say=subscribe_verb(), numbers=1
    )


async def _report(crowd: BareCrowd) -> dict[str, Any]:
    await crowd.has_got(READERS // CROWDS * MESSAGES)
    return await crowd.send_command("report")


def _delivery_rows(
    came: int, took: float, reports: list[dict[str, Any]], resident: int
) -> list[BenchRow]:
    everything = [
        crowd["connections"]
        for crowd in reports
        if crowd["fewest"] == crowd["most"] == crowd["different"] == MESSAGES
        and crowd["twice"] == crowd["gone"] == 0
    ]
    return [
        BenchRow("readers connected and subscribed", came, "", digits=0, at_least=READERS),
        BenchRow("… took, on two cores with the crowds", took, "s"),
        BenchRow(
            f"readers in crowds that all got {MESSAGES} messages once each",
            sum(everything),
            "",
            digits=0,
            at_least=READERS,
        ),
        BenchRow("memory of both processes", resident / 1e6, "MB", digits=0, at_most=200),
    ]


def _others_in_a_fanout() -> int:
    return int(FANOUT_SECONDS / OTHER_GAP_SECONDS)


async def _quiet(box: BenchBox, other: BareCrowd) -> dict[str, Any]:
    for _ in range(2):
        await _send_others(box)
    await other.send_command("report")
    for _ in range(FANOUTS // 2):
        await _send_others(box)
    await asyncio.sleep(1)
    return await other.send_command("report")


async def _disturbed(box: BenchBox, other: BareCrowd, crowds: list[BareCrowd]) -> dict[str, Any]:
    for _ in range(FANOUTS):
        await box.publish()
        await _send_others(box)
        for crowd in crowds:
            await crowd.has_got(READERS // CROWDS)
            await crowd.send_command("report")
    return await other.send_command("report")


async def _send_others(box: BenchBox) -> None:
    start = time.monotonic()
    for number in range(1, _others_in_a_fanout() + 1):
        await asyncio.sleep(max(0.0, start + number * OTHER_GAP_SECONDS - time.monotonic()))
        await box.publish(OTHER_TOPIC)
