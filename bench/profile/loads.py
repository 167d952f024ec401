"""The loads of a gateway and a router while they are profiled: parts of the bench."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

import uvloop

from bench import connect, router
from bench.box import BenchBox, running_box, subscribe_verb
from bench.delivery import GAP_SECONDS, READERS
from bench.profile.recording import Perf, PySpy, Recorder
from bench.programs import ROOT, build, off_the_server_core, running_crowd
from gateway.native.program import NAME, VARIABLE

# Messages that wait for the router: more would be too much for the broker's memory.
_WAITING: Final = router.MESSAGES
_REFILL: Final = _WAITING // 2
# Each request of the router's metrics is work for the router.
_LOOK_SECONDS: Final = 0.5


async def _delivery(recorder: Recorder, seconds: float) -> None:
    async with (
        running_box("native") as box,
        running_crowd(box.port, READERS, source="127.0.0.12", say=subscribe_verb()) as crowd,
    ):
        await crowd.next_reply()
        with recorder.recording(*_gateway("delivery", box)):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                await box.publish()
                await asyncio.sleep(GAP_SECONDS)


async def _connect(recorder: Recorder, seconds: float) -> None:
    async with running_box("native") as box:
        with recorder.recording(*_gateway("connect", box)):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                await connect.spent(box, subscribe_verb(), readers=connect.READERS)


def _router(recorder: Recorder, seconds: float) -> None:
    with router.running_core() as node:
        asyncio.run(router.fill(node.amqp_url, _WAITING))
        with (
            router.running_router(node, "memory:") as process,
            recorder.recording(PySpy("router", process.pid)),
        ):
            end, waited = time.monotonic() + seconds, _WAITING
            while time.monotonic() < end:
                if waited - process.routed() < _REFILL:
                    asyncio.run(router.fill(node.amqp_url, _REFILL, waited))
                    waited += _REFILL
                time.sleep(_LOOK_SECONDS)


def _gateway(load: str, box: BenchBox) -> tuple[PySpy, Perf]:
    control, data = box.pids
    return (
        PySpy(f"{load}-control-plane", control),
        Perf(f"{load}-data-plane", data),
    )


def _on_a_box(
    play: Callable[[Recorder, float], Coroutine[Any, Any, None]],
) -> Callable[[Recorder, float], None]:
    def load(recorder: Recorder, seconds: float) -> None:
        build()
        os.environ[VARIABLE] = str(_build_for_perf())
        with off_the_server_core():
            uvloop.run(play(recorder, seconds))

    return load


def _build_for_perf() -> Path:
    """Build the data plane with frame pointers and line tables, beside the released one."""
    command = ["cargo", "build", "--quiet", "--profile", "profiling"]
    flags = {"RUSTFLAGS": "-C force-frame-pointers=yes"}
    subprocess.run([*command, "--package", NAME], check=True, cwd=ROOT, env=os.environ | flags)
    return ROOT / "target" / "profiling" / NAME


#: Each runs for the given seconds, while its processes are recorded. `delivery` is a message to
#: 10,000 readers four times a second. `connect` is 15,000 readers that connect, subscribe and
#: leave, again and again. `router` is a full queue that is routed.
LOADS: Final[Mapping[str, Callable[[Recorder, float], None]]] = {
    "delivery": _on_a_box(_delivery),
    "connect": _on_a_box(_connect),
    "router": _router,
}
