"""The effect on readers of the replacement of a gateway's processes under load. It should be none.

One box, one topic, some messages a second; each reader records which messages it received.
Meanwhile the control plane is killed and started again, or a new data plane takes over.

The gateway has no core of its own here: so much traffic, and a process that starts beside it, take
more than one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final

from bench.box import BenchBox, BenchGateway, running_box, subscribe_verb
from bench.programs import running_crowd
from bench.rows import BenchRow

READERS: Final = 15_000
PER_SECOND: Final = 20
SECONDS: Final = 10.0
# Seconds from the first message to the upgrade.
BEFORE_SECONDS: Final = 4.0
# Seconds from the death of a control plane to the start of the next one.
DEAD_SECONDS: Final = 1.0
# Each has a descriptor table of its own.
THREADS: Final = 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """The effect on ``readers`` readers.

    Counts of the ``deliveries`` that were ``lost`` or ``doubled``, or arrived ``late`` (behind a
    later message). Seconds: of the upgrade, until the new process serves; from the start of the new
    process to the first message after it; and the longest wait of one reader between two messages,
    where ``1 / PER_SECOND`` is usual.
    """

    readers: int
    disconnects: int
    deliveries: int
    lost: int
    doubled: int
    late: int
    seconds: float
    feed_back_seconds: float
    longest_wait_seconds: float


async def measure(*, readers: int = READERS) -> list[BenchRow]:
    """Measure a killed control plane, then a take-over, each on a box of its own."""
    killed = await _under_load(readers, _kill_and_start)
    taken = await _under_load(readers, _take_over)
    return [
        *_rows("control plane killed", killed),
        _seconds("… feed back after the new one's start", killed.feed_back_seconds, at_most=3),
        _seconds("… longest wait between two messages", killed.longest_wait_seconds),
        *_rows("data plane taken over", taken),
        _seconds("… take-over", taken.seconds, at_most=2),
        _seconds("… longest wait between two messages", taken.longest_wait_seconds),
    ]


async def _kill_and_start(gateway: BenchGateway) -> tuple[int, float]:
    await asyncio.to_thread(gateway.kill_control_plane)
    await asyncio.sleep(DEAD_SECONDS)
    return await _timed(gateway.start)


async def _take_over(gateway: BenchGateway) -> tuple[int, float]:
    return await _timed(gateway.take_over)


async def _timed(replace: Callable[[], None]) -> tuple[int, float]:
    """Return when ``replace`` began (CLOCK_MONOTONIC, ns), and how many seconds it took."""
    began = time.monotonic_ns()
    await asyncio.to_thread(replace)
    return began, (time.monotonic_ns() - began) / 1e9


async def _under_load(
    readers: int, upgrade: Callable[[BenchGateway], Awaitable[tuple[int, float]]]
) -> Upgrade:
    async with (
        running_box("native", threads=THREADS, own_core=False) as box,
        running_crowd(
            box.port, readers, source="127.0.0.2", say=subscribe_verb(), numbers=1
        ) as crowd,
    ):
        await crowd.next_reply()
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(_send_steadily(box))
            await asyncio.sleep(BEFORE_SECONDS)
            began, seconds = await upgrade(box.gateway)
        sent = sending.result()
        await crowd.has_got(readers * sent)
        report = await crowd.send_command(f"census {sent} {began}")
    first = report["first_since_ns"]
    return Upgrade(
        readers=readers,
        disconnects=report["gone"],
        deliveries=readers * sent,
        lost=report["lost"],
        doubled=report["doubled"],
        late=report["late"],
        seconds=seconds,
        feed_back_seconds=(first - began) / 1e9 if first else math.inf,
        longest_wait_seconds=report["longest_wait_ns"] / 1e9,
    )


async def _send_steadily(box: BenchBox) -> int:
    """Send messages numbered from 0; return their count."""
    total, start = int(PER_SECOND * SECONDS), time.monotonic()
    for number in range(total):
        await asyncio.sleep(max(0.0, start + number / PER_SECOND - time.monotonic()))
        await box.publish(first=number)
    return total


def _rows(what: str, upgrade: Upgrade) -> list[BenchRow]:
    load = f"{upgrade.readers:,} readers, {PER_SECOND} messages/s"
    return [
        _count(f"{what}, {load}: disconnects", upgrade.disconnects),
        _count(f"… lost or doubled of {upgrade.deliveries:,}", upgrade.lost + upgrade.doubled),
        _count("… behind a later message", upgrade.late),
    ]


def _count(figure: str, value: int) -> BenchRow:
    return BenchRow(figure, value, "", digits=0, at_most=0)


def _seconds(figure: str, value: float, *, at_most: float | None = None) -> BenchRow:
    return BenchRow(figure, value, "s", digits=2, at_most=at_most)
