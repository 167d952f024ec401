"""The process of a chaos run's readers: ``python -m localfabric.chaos.crowd``.

Every delivery becomes a line on stdout; the line ``ready`` means that all are subscribed. The first
line of stdin is the plan, a second one calls absent readers back, and its end ends the readers.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import orjson

from localfabric.chaos.devices import RecordedDevice
from localfabric.chaos.reading import ChaosReader, EventWriter, ReaderPlan


async def read_all(
    plans: Sequence[ReaderPlan], log: EventWriter, called: asyncio.Event, *, seed: int
) -> None:
    """Run all readers at once until cancelled; write ``ready`` when each is subscribed.

    Absent readers come back when they are ``called``.
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    readers = [
        (ChaosReader if plan.token is None else RecordedDevice)(
            plan,
            log,
            random.Random(rng.random()),  # noqa: S311
            called,
        )
        for plan in plans
    ]
    async with asyncio.TaskGroup() as group:
        group.create_task(log.flush())
        for reader in readers:
            group.create_task(reader.run())
            await asyncio.sleep(0.01)
        for reader in readers:
            await reader.subscribed.wait()
        log.write("ready", "-", 0)


async def _main(document: dict[str, Any]) -> None:
    plans = [
        ReaderPlan(**entry | {"topics": tuple(entry["topics"]), "regions": tuple(entry["regions"])})
        for entry in document["plans"]
    ]
    log = EventWriter(sys.stdout, document["run"])
    called = asyncio.Event()
    reading = asyncio.create_task(read_all(plans, log, called, seed=document["seed"]))

    def on_stdin() -> None:
        # End of file: the parent process has closed it or died.
        if sys.stdin.buffer.readline():
            called.set()
        else:
            reading.cancel()

    asyncio.get_running_loop().add_reader(sys.stdin, on_stdin)
    with suppress(asyncio.CancelledError):
        await reading


if __name__ == "__main__":
    asyncio.run(_main(orjson.loads(sys.stdin.buffer.readline())))
