"""Hole to reader: the time from the loss of a message on its way until its delivery.

A native gateway in processes of its own, with a broker in its memory and a SQLite store, receives a
steady stream; now and then a message is stored and not sent, as if a queue had lost it. The time is
counted from the moment when it should have arrived until a reader has it. 0.2 s of it is the
gateway's wait for messages that may only be late.

On a busy log the next message shows that one before it exists. On a quiet log a router's tick does,
0.2 s after a message without a successor.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import orjson
import uvloop
import websockets

from bench.rows import BenchRow
from bench.soak.messages import STEADY, TABLE, NumberingRouter, line_of, tick_line
from bench.soak.processes import ControlPlane, Dataplane
from newsfabric.store.sqlite import SqliteStore
from wholesale.router.router import QUIET_SECONDS

_PATIENCE: Final = 10.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """``rate`` messages a second, of which one in ``every`` is lost, until ``holes`` were."""

    holes: int
    rate: float
    every: int


BUSY: Final = Load(holes=100, rate=200.0, every=20)
QUIET: Final = Load(holes=50, rate=2.0, every=2)


@dataclasses.dataclass(frozen=True, slots=True)
class Repairs:
    """Seconds from loss to delivery of ``holes`` lost messages; infinite if one never arrived.

    Of ``messages``, ``doubled`` arrived more than once, and ``missed`` never.
    """

    p50: float
    worst: float
    holes: int
    messages: int
    doubled: int
    missed: int


def measure() -> list[BenchRow]:
    """Measure a reader's wait for lost messages, and check that all arrived once."""
    busy, quiet = uvloop.run(lose_and_repair()), uvloop.run(lose_and_repair(QUIET))
    return [*_rows("a busy log", busy), *_rows("a quiet log", quiet)]


def _rows(where: str, repairs: Repairs) -> list[BenchRow]:
    return [
        BenchRow(
            f"{repairs.holes} messages of {where} lost on the way: loss to reader, p50",
            repairs.p50,
            "s",
            digits=2,
            at_most=0.5,
        ),
        BenchRow("… worst", repairs.worst, "s", digits=2, at_most=1),
        BenchRow(
            f"… missed or doubled, of {repairs.messages:,}",
            repairs.missed + repairs.doubled,
            "",
            digits=0,
            at_most=0,
        ),
    ]


async def lose_and_repair(load: Load = BUSY) -> Repairs:
    """Publish ``load`` to a gateway with a reader, and lose some of it on the way."""
    with tempfile.TemporaryDirectory(prefix="newsfabric-repair-") as name:
        folder = Path(name)
        dataplane = Dataplane(folder, "--threads", "2")
        store = SqliteStore(folder / "store.sqlite", TABLE)
        settings = {
            "store": str(folder / "store.sqlite"),
            "gateway": {},
            "native": {"socket": str(folder / "control")},
        }
        control = await ControlPlane.start(settings, folder / "control.log")
        try:
            await control.ready()
            url = f"ws://127.0.0.1:{dataplane.port}/websocket"
            async with websockets.connect(url) as reader:
                return await _lose_and_hear(store, control, reader, load)
        finally:
            control.signal(signal.SIGKILL)
            await control.ended()
            dataplane.process.kill()
            dataplane.process.wait()
            await store.close()


async def _lose_and_hear(
    store: SqliteStore,
    control: ControlPlane,
    reader: websockets.ClientConnection,
    load: Load,
) -> Repairs:
    await reader.send(orjson.dumps({"action": "subscribe", "topic": STEADY}).decode())
    await reader.recv()
    lost: dict[int, float] = {}
    received: dict[int, list[float]] = {}
    total = load.holes * load.every
    listening = asyncio.create_task(_listen(reader, received, total))
    router, start = NumberingRouter(), time.monotonic()
    for n in range(total):
        await asyncio.sleep(max(0.0, start + n / load.rate - time.monotonic()))
        message = router.message(STEADY, n)
        await store.write([message])
        if n % load.every == load.every // 2:
            lost[n] = time.monotonic()
        else:
            control.feed(line_of(message))
        if load.rate < 1 / QUIET_SECONDS:
            await asyncio.sleep(QUIET_SECONDS)
            control.feed(tick_line(router))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            await listening
    took = sorted(received[n][0] - at if n in received else math.inf for n, at in lost.items())
    return Repairs(
        p50=statistics.median(took),
        worst=took[-1],
        holes=len(lost),
        messages=total,
        doubled=sum(len(times) > 1 for times in received.values()),
        missed=total - len(received),
    )


async def _listen(
    reader: websockets.ClientConnection, received: dict[int, list[float]], total: int
) -> None:
    """Record the arrival of each message, until all have arrived and the gateway has no more."""
    fence = False
    async for text in reader:
        push = orjson.loads(text)
        if push["type"] == "pong":
            return
        if push["type"] == "message":
            received.setdefault(push["body"], []).append(time.monotonic())
        if len(received) == total and not fence:
            fence = True
            await reader.send('{"action":"ping"}')
