"""The cost of an idle reader: memory and processor time of both processes.

Memory is the slope between 2,000 and 18,000 readers, so that the gateway's own memory doesn't
count. The readers answer pings, as browsers do, and a router's tick arrives each second.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Final

from bench.box import TOPIC, BenchBox, running_box, subscribe_verb
from bench.login import Issuer
from bench.programs import BareCrowd, running_crowd
from bench.rows import BenchRow
from newsfabric.errors import SetupError

FEW: Final = 2_000
MANY: Final = 18_000
# Every reader's heartbeat is due once in 25 s, so each reader has two.
IDLE_SECONDS: Final = 50.0
SETTLE_SECONDS: Final = 2.0


async def measure() -> list[BenchRow]:
    """Measure memory and processor time of an idle reader."""
    rows = []
    async with running_box("native") as box, contextlib.AsyncExitStack() as crowds:
        slope = await _slope(box, crowds, subscribe_verb())
        rows.append(
            BenchRow(
                f"memory per idle reader, {FEW:,} to {MANY:,}, one topic",
                slope,
                "B",
                digits=0,
                at_most=512,
            )
        )
        before = box.spent()
        await asyncio.sleep(IDLE_SECONDS)
        spent = box.spent() - before
        each = 1e6 / IDLE_SECONDS / MANY
        figure = "CPU per idle reader and second"
        rows.append(BenchRow(figure, spent.total * each, "µs", digits=3, at_most=0.6))
        figure = "… of that the control plane"
        rows.append(BenchRow(figure, spent.control * each, "µs", digits=3))
    async with running_box("native") as box, contextlib.AsyncExitStack() as crowds:
        slope = await _slope(box, crowds, subscribe_verb(TOPIC + ".%d"))
        rows.insert(1, BenchRow("… each with a topic of its own", slope, "B", digits=0))
    rows.insert(2, await _logged_in())
    return rows


async def _logged_in() -> BenchRow:
    """Measure readers logged in as the same user; each connection still has its own auth state."""
    issuer = Issuer()
    with tempfile.TemporaryDirectory(prefix="newsfabric-bench-") as folder:
        options = issuer.options(Path(folder))
        async with (
            running_box("native", options=options) as box,
            contextlib.AsyncExitStack() as crowds,
        ):
            say = f"{issuer.verb('42')}\n{subscribe_verb()}"
            slope = await _slope(box, crowds, say)
            if box.gateway.metric('newsfabric_gateway_tokens_total{outcome="good"}') < MANY:
                raise SetupError("the logins were refused")
    return BenchRow("… one topic, logged in", slope, "B", digits=0)


async def _slope(box: BenchBox, crowds: contextlib.AsyncExitStack, say: str) -> float:
    """Return the bytes per reader that sends ``say``; readers stay until ``crowds`` is left."""

    async def come(first: int, count: int, source: str) -> int:
        crowd: BareCrowd = await crowds.enter_async_context(
            running_crowd(box.port, count, source=source, first=first, say=say)
        )
        await crowd.next_reply()
        await asyncio.sleep(SETTLE_SECONDS)
        return box.resident()

    few = await come(0, FEW, "127.0.0.2")
    many = await come(FEW, MANY - FEW, "127.0.0.12")
    return (many - few) / (MANY - FEW)
