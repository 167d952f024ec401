"""Hole to reader: how long after its loss a message that was lost on the way is delivered.

A native gateway in processes of its own, with a broker in its memory and a SQLite store, is fed a
steady stream; now and then a message is stored and not sent, as when a queue lost it. What
counts is the time from when it should have come to when a reader has it. Three tenths of a second
of it are the gateway's patience with what may only be late.

And how soon a gateway is ready that begins with nothing, whatever was routed before.
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
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from bench.meter import processor_seconds
from bench.rows import Row
from bench.soak.messages import STEADY, TABLE, Router, line_of
from bench.soak.processes import ControlPlane, Dataplane
from gateway.position import log_of
from newsfabric.envelope import id_of
from newsfabric.store.logs import DirectoryRow
from newsfabric.store.sqlite import SqliteStore

_PATIENCE: Final = 10.0
# In ten minutes, and how long each is.
ROUTED: Final = 20_000
_BODY: Final = "x" * 500
_LOOK_AGAIN: Final = 0.02


@dataclasses.dataclass(frozen=True, slots=True)
class Beginning:
    """From its start a gateway took ``seconds`` to be ready, ``processor`` seconds of work."""

    seconds: float
    processor: float


@dataclasses.dataclass(frozen=True, slots=True)
class Repairs:
    """Seconds from loss to delivery of ``holes`` lost messages; infinite if one never came.

    ``doubled`` of ``messages`` came more than once, ``missed`` never.
    """

    p50: float
    worst: float
    holes: int
    messages: int
    doubled: int
    missed: int


def measure() -> list[Row]:
    """How long a reader waits for what was lost, and whether all came once."""
    repairs = uvloop.run(lose_and_repair())
    empty, full = (uvloop.run(begin(rows)) for rows in (0, ROUTED))
    return [
        Row(
            figure=f"a gateway that starts with {ROUTED:,} messages in its store: ready after",
            value=full.seconds,
            unit="s",
            digits=2,
        ),
        Row(figure="… with none", value=empty.seconds, unit="s", digits=2),
        Row(
            figure="… its control plane's work for a message",
            value=(full.processor - empty.processor) / ROUTED * 1e6,
            unit="µs",
            digits=0,
        ),
        Row(
            figure=f"{repairs.holes} messages lost on the way: loss to reader, p50",
            value=repairs.p50,
            unit="s",
            digits=2,
        ),
        Row(figure="… worst", value=repairs.worst, unit="s", digits=2, at_most=2),
        Row(
            figure=f"… missed or doubled, of {repairs.messages:,}",
            value=repairs.missed + repairs.doubled,
            unit="",
            digits=0,
            at_most=0,
        ),
    ]


async def begin(rows: int) -> Beginning:
    """Start a gateway with so many messages of the last ten minutes in its store."""
    with tempfile.TemporaryDirectory(prefix="newsfabric-repair-") as name:
        folder = Path(name)
        await _fill(folder / "store.sqlite", rows)
        dataplane = Dataplane(folder, "--threads", "2")
        told = {
            "store": str(folder / "store.sqlite"),
            "gateway": {},
            "native": {"socket": str(folder / "control")},
        }
        began = time.monotonic()
        control = await ControlPlane.start(told, folder / "control.log")
        try:
            await control.ready()
            await _until_ready(control)
            return Beginning(time.monotonic() - began, processor_seconds(control.pid))
        finally:
            control.signal(signal.SIGKILL)
            await control.ended()
            dataplane.process.kill()
            dataplane.process.wait()


async def _fill(path: Path, rows: int) -> None:
    store, router = SqliteStore(path, TABLE), Router()
    now_ms = int(time.time() * 1000)
    first_ms = now_ms - 590_000
    try:
        for n in range(rows):
            made = router.message(STEADY, {"n": n, "text": _BODY})
            ms = first_ms + (now_ms - first_ms) * n // rows
            stored = dataclasses.replace(
                made, id=id_of(ms, made.identity), published_ms=ms, epoch=first_ms
            )
            await store.write([stored])
        if rows:
            log = log_of(stored)
            await store.list_log(log)
            await store.change_log(DirectoryRow(log, version=2, low=rows, ended=rows))
    finally:
        await store.close()


async def _until_ready(control: ControlPlane) -> None:
    http = SimpleAsyncHTTPClient(force_instance=True)
    url = f"http://127.0.0.1:{control.admin_port}/healthz/ready"
    try:
        async with asyncio.timeout(_PATIENCE * 6):
            while (await http.fetch(url, raise_error=False)).code != 200:
                control.feed(b"tick\n")
                await asyncio.sleep(_LOOK_AGAIN)
    finally:
        http.close()


async def lose_and_repair(*, holes: int = 50, rate: float = 200.0, every: int = 20) -> Repairs:
    """Lose one message in ``every`` of ``rate`` a second, until ``holes`` were lost."""
    with tempfile.TemporaryDirectory(prefix="newsfabric-repair-") as name:
        folder = Path(name)
        dataplane = Dataplane(folder, "--threads", "2")
        store = SqliteStore(folder / "store.sqlite", TABLE)
        told = {
            "store": str(folder / "store.sqlite"),
            "gateway": {},
            "native": {"socket": str(folder / "control")},
        }
        control = await ControlPlane.start(told, folder / "control.log")
        try:
            await control.ready()
            url = f"ws://127.0.0.1:{dataplane.port}/websocket"
            async with websockets.connect(url) as reader:
                return await _lose_and_hear(store, control, reader, holes * every, rate, every)
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
    total: int,
    rate: float,
    every: int,
) -> Repairs:
    await reader.send(orjson.dumps({"action": "subscribe", "topic": STEADY}).decode())
    await reader.recv()
    lost: dict[int, float] = {}
    heard: dict[int, list[float]] = {}
    listening = asyncio.create_task(_listen(reader, heard, total))
    router, start = Router(), time.monotonic()
    for n in range(total):
        await asyncio.sleep(max(0.0, start + n / rate - time.monotonic()))
        message = router.message(STEADY, n)
        await store.write([message])
        if n % every == every // 2:
            lost[n] = time.monotonic()
        else:
            control.feed(line_of(message))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            await listening
    took = sorted(heard[n][0] - at if n in heard else math.inf for n, at in lost.items())
    return Repairs(
        p50=statistics.median(took),
        worst=took[-1],
        holes=len(lost),
        messages=total,
        doubled=sum(len(times) > 1 for times in heard.values()),
        missed=total - len(heard),
    )


async def _listen(
    reader: websockets.ClientConnection, heard: dict[int, list[float]], total: int
) -> None:
    """Note when each message came, until all have come and the gateway has no more."""
    fence = False
    async for text in reader:
        push = orjson.loads(text)
        if push["type"] == "pong":
            return
        if push["type"] == "message":
            heard.setdefault(push["body"], []).append(time.monotonic())
        if len(heard) == total and not fence:
            fence = True
            await reader.send('{"action":"ping"}')
