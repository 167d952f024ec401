"""The processor time that a gateway needs to accept a reader, beside the floor.

The floor accepts, reads the request and replies with a constant, and does nothing else. A crowd
connects as fast as it can, 256 at a time, so that every turn of the event loop has work.
"""

from __future__ import annotations

import asyncio
import statistics
from typing import Final

from bench.box import BenchBox, running_box, subscribe_verb
from bench.meter import processor_seconds
from bench.programs import running_crowd, running_floor
from bench.rows import BenchRow
from localfabric.nodes.ports import free_ports

READERS: Final = 15_000
TIMES: Final = 3
# Readers of the last round leave, and their closing must not be counted.
REST_SECONDS: Final = 1.5


async def measure() -> list[BenchRow]:
    """Return handshakes per second and core, without a subscription and with a confirmed one."""
    floors, raw, subscribed = [], [], []
    async with running_box("native") as box:
        for _ in range(TIMES):
            floors.append(await _floor())
            raw.append(await spent(box, "", readers=READERS))
            subscribed.append(await spent(box, subscribe_verb(), readers=READERS))
    floor, plain, answered = (statistics.median(each) for each in (floors, raw, subscribed))
    return [
        BenchRow("accept, read and answer, the floor", 1 / floor, "/s", digits=0),
        BenchRow(
            "handshakes/s and core, raw WebSocket",
            1 / plain,
            "/s",
            digits=0,
            at_least=20_000,
            floor=1 / floor,
        ),
        BenchRow(
            "… with subscribe answered",
            1 / answered,
            "/s",
            digits=0,
            at_least=12_000,
            floor=1 / floor,
        ),
    ]


async def _floor() -> float:
    (port,) = free_ports(1)
    async with running_floor(port=port, connections=READERS) as floor:
        before = processor_seconds(floor.pid)
        async with running_crowd(port, READERS, source="127.0.0.2") as crowd:
            await floor.next_reply()
            await crowd.next_reply()
            return (processor_seconds(floor.pid) - before) / READERS


async def spent(box: BenchBox, say: str, *, readers: int) -> float:
    """Return the gateway's processor seconds for each of ``readers`` that connect and ``say``."""
    before = box.spent()
    async with running_crowd(box.port, readers, source="127.0.0.12", say=say) as crowd:
        await crowd.next_reply()
        found = (box.spent() - before).total / readers
    await asyncio.sleep(REST_SECONDS)
    return found
