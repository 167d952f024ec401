"""The time until a gateway with empty memory is ready, for any number of messages routed before.

A native gateway in processes of its own, with a broker in its memory and a SQLite store. Its log
was routed over the last ten minutes and has ended, as when its router was restarted just now.
"""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import uvloop
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from bench.rows import BenchRow
from bench.soak.messages import STEADY, TABLE, NumberingRouter, tick_line
from bench.soak.processes import ControlPlane, Dataplane
from gateway.wire.position import log_of
from newsfabric.messages.envelope import Envelope, id_of
from newsfabric.store.logs import DirectoryRow
from newsfabric.store.sqlite import SqliteStore

# Messages of the last ten minutes: of a small fabric, and of 1,700 a second.
ROUTED: Final = (0, 20_000, 1_000_000)
_BODY: Final = "x" * 200
_BATCH: Final = 2_000
_PATIENCE: Final = 120.0
_LOOK_AGAIN: Final = 0.02


def measure() -> list[BenchRow]:
    """Measure the start of a gateway, with each number of messages in its store."""
    return [
        BenchRow(
            f"a gateway that starts with {routed:,} messages in its store: ready after",
            uvloop.run(begin(routed)),
            "s",
            digits=2,
            at_most=1,
        )
        for routed in ROUTED
    ]


async def begin(routed: int) -> float:
    """Start a gateway with ``routed`` messages in its store; return the seconds until ready."""
    with tempfile.TemporaryDirectory(prefix="newsfabric-start-") as name:
        folder = Path(name)
        await _fill(folder / "store.sqlite", routed)
        dataplane = Dataplane(folder, "--threads", "2")
        settings = {
            "store": str(folder / "store.sqlite"),
            "gateway": {},
            "native": {"socket": str(folder / "control")},
        }
        began = time.monotonic()
        control = await ControlPlane.start(settings, folder / "control.log")
        try:
            await control.ready()
            await _until_ready(control)
            return time.monotonic() - began
        finally:
            control.signal(signal.SIGKILL)
            await control.ended()
            dataplane.process.kill()
            dataplane.process.wait()


async def _fill(path: Path, routed: int) -> None:
    store = SqliteStore(path, TABLE)
    try:
        messages = _messages(routed)
        while batch := [made for made, _ in zip(messages, range(_BATCH), strict=False)]:
            await store.write(batch)
            log = log_of(batch[-1])
        if routed:
            await store.list_log(log)
            await store.change_log(DirectoryRow(log, version=2, low=routed, ended=routed))
    finally:
        await store.close()


def _messages(count: int) -> Iterator[Envelope]:
    """Yield ``count`` messages of one log, evenly over the last ten minutes."""
    router = NumberingRouter()
    now_ms = int(time.time() * 1000)
    first_ms = now_ms - 590_000
    for n in range(count):
        made = router.message(STEADY, {"n": n, "text": _BODY})
        ms = first_ms + (now_ms - first_ms) * n // count
        yield dataclasses.replace(
            made, id=id_of(ms, made.identity), published_ms=ms, epoch=first_ms
        )


async def _until_ready(control: ControlPlane) -> None:
    http = SimpleAsyncHTTPClient(force_instance=True)
    url = f"http://127.0.0.1:{control.admin_port}/healthz/ready"
    try:
        async with asyncio.timeout(_PATIENCE):
            while (await http.fetch(url, raise_error=False)).code != 200:
                control.feed(tick_line())
                await asyncio.sleep(_LOOK_AGAIN)
    finally:
        http.close()
