"""The processor time of one delivery by a gateway, beside the floor.

The floor is a loop of bare ``send()`` calls, which no server can beat. A processor isn't equally
fast at all times, so floor and gateway run at once, each with a crowd of its own, and take turns: a
pair of rounds in one order, the next pair in the other. The medians are compared.

Ten messages wait for a reader while an eleventh, published before them, is on its way to all
readers. The cost of that one is known from the single messages, and subtracted.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Final

from bench.box import BenchBox, running_box, subscribe_verb
from bench.meter import processor_seconds
from bench.programs import BareCrowd, Program, running_crowd, running_floor
from bench.rows import BenchRow
from localfabric.nodes.ports import free_ports

READERS: Final = 10_000
MESSAGES: Final = 10
GAP_SECONDS: Final = 0.25
PAIRS: Final = 8
WAITING: Final = 10
# One message takes 80 ms to reach all readers.
HEAD_START: Final = 0.02
# Longer than eleven messages take to reach all readers.
BURST_SECONDS: Final = 0.6
BURSTS: Final = 3
BURST_PAIRS: Final = 6


class Duet:
    """Floor and gateway with a crowd each. Rounds return µs of processor time per delivery."""

    def __init__(
        self, floor: Program, floor_crowd: BareCrowd, box: BenchBox, box_crowd: BareCrowd
    ) -> None:
        self._floor = floor
        self._floor_crowd = floor_crowd
        self._box = box
        self._box_crowd = box_crowd
        self.control: list[float] = []
        self.lost = 0

    async def floor(self, writes: int, frames: int, gap: float) -> float:
        """Let the floor write ``writes`` times to each reader, ``frames`` frames each time."""
        before = processor_seconds(self._floor.pid)
        await self._floor.send_command(f"{writes} {frames} {int(gap * 1000)}")
        spent = processor_seconds(self._floor.pid) - before
        await self._end_of_round(self._floor_crowd, writes * frames)
        return spent * 1e6 / (READERS * writes * frames)

    async def gateway(self, bursts: int, waiting: int, gap: float) -> float:
        """Publish ``bursts`` of one message, and ``waiting`` more while that one is on its way."""
        before, start = self._box.spent(), time.monotonic()
        for burst in range(1, bursts + 1):
            await self._box.publish()
            if waiting:
                await asyncio.sleep(HEAD_START)
                await self._box.publish(count=waiting)
            await asyncio.sleep(start + burst * gap - time.monotonic())
        spent = self._box.spent() - before
        size = 1 + waiting
        await self._end_of_round(self._box_crowd, bursts * size)
        deliveries = READERS * bursts * size
        self.control.append(spent.control * 1e6 / deliveries)
        return spent.total * 1e6 / deliveries

    async def _end_of_round(self, crowd: BareCrowd, messages: int) -> None:
        await crowd.has_got(READERS * messages)
        report = await crowd.send_command("report")
        self.lost += READERS * messages - report["frames"]


async def in_turn(
    pairs: int, floor: Callable[[], Awaitable[float]], gateway: Callable[[], Awaitable[float]]
) -> tuple[float, float]:
    """Return the medians of ``floor`` and ``gateway``, run in the order ABBA for ``pairs``."""
    samples: dict[Callable[[], Awaitable[float]], list[float]] = {floor: [], gateway: []}
    for pair in range(pairs):
        for side in (floor, gateway) if pair % 2 == 0 else (gateway, floor):
            samples[side].append(await side())
    return statistics.median(samples[floor]), statistics.median(samples[gateway])


async def measure() -> list[BenchRow]:
    """Return the rows of both engines."""
    rows = await _native()
    rows.insert(2, await _tornado(bare=rows[0].value))
    return rows


async def _native() -> list[BenchRow]:
    (port,) = free_ports(1)
    async with (
        running_box("native") as box,
        running_floor(port=port, connections=READERS) as floor,
        running_crowd(port, READERS, source="127.0.0.2") as floor_crowd,
        running_crowd(box.port, READERS, source="127.0.0.12", say=subscribe_verb()) as box_crowd,
    ):
        for program in (floor, floor_crowd, box_crowd):
            await program.next_reply()
        duet = Duet(floor, floor_crowd, box, box_crowd)
        await in_turn(2, lambda: duet.floor(2, 1, 0.3), lambda: duet.gateway(2, 0, 0.3))
        duet.control.clear()
        bare, single = await in_turn(
            PAIRS,
            lambda: duet.floor(MESSAGES, 1, GAP_SECONDS),
            lambda: duet.gateway(MESSAGES, 0, GAP_SECONDS),
        )
        control = statistics.median(duet.control)
        bare_ten, eleven = await in_turn(
            BURST_PAIRS,
            lambda: duet.floor(BURSTS, WAITING, BURST_SECONDS),
            lambda: duet.gateway(BURSTS, WAITING, BURST_SECONDS),
        )
    ten = (eleven * (WAITING + 1) - single) / WAITING
    return [
        BenchRow("a bare send(), the floor", bare, "µs", digits=2),
        BenchRow(
            f"CPU per delivery, {READERS:,} readers",
            single,
            "µs",
            digits=2,
            at_most=round(1.08 * bare, 2),
            floor=bare,
        ),
        BenchRow("… of that the control plane", control, "µs", digits=2),
        BenchRow(
            "messages/s and core, 10 waiting per reader",
            1e6 / ten,
            "/s",
            digits=0,
            at_least=round(0.9e6 / bare_ten),
            floor=1e6 / bare_ten,
        ),
        BenchRow("deliveries missing", duet.lost, "", digits=0, at_most=0),
    ]


async def _tornado(*, bare: float) -> BenchRow:
    async with (
        running_box("tornado") as box,
        running_crowd(box.port, READERS, source="127.0.0.12", say=subscribe_verb()) as crowd,
    ):
        await crowd.next_reply()
        before = box.spent()
        for _ in range(MESSAGES):
            await box.publish()
            await asyncio.sleep(2 * GAP_SECONDS)
        await crowd.has_got(READERS * MESSAGES)
        spent = box.spent() - before
    each = spent.total * 1e6 / (READERS * MESSAGES)
    return BenchRow("… Tornado engine", each, "µs", digits=2, floor=bare)
