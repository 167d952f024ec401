"""The process of a chaos run's readers: ``python -m newsfabric.chaos.crowd``.

Every delivery becomes a line on stdout; ``ready`` says that all are subscribed. The plan is the
first line of stdin, and they end when it is closed.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import orjson

from newsfabric.chaos.devices import Device
from newsfabric.chaos.reading import ChaosReader, Log, Plan


async def read_all(plans: Sequence[Plan], log: Log, *, seed: int) -> None:
    """All of them at once, until cancelled; says ``ready`` when each is subscribed."""
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    readers = [_reader(plan, log, random.Random(rng.random())) for plan in plans]  # noqa: S311
    async with asyncio.TaskGroup() as group:
        group.create_task(log.flush())
        for reader in readers:
            group.create_task(reader.run())
            await asyncio.sleep(0.01)
        for reader in readers:
            await reader.subscribed.wait()
        log.write("ready", "-", 0)


def _reader(plan: Plan, log: Log, rng: random.Random) -> ChaosReader:
    return (ChaosReader if plan.token is None else Device)(plan, log, rng)


async def _main(document: dict[str, Any]) -> None:
    plans = [
        Plan(**entry | {"topics": tuple(entry["topics"]), "regions": tuple(entry["regions"])})
        for entry in document["plans"]
    ]
    log = Log(sys.stdout, document["run"])
    reading = asyncio.create_task(read_all(plans, log, seed=document["seed"]))
    # Nothing more is written to us: stdin is readable when whoever started us closes it or dies.
    asyncio.get_running_loop().add_reader(sys.stdin, reading.cancel)
    with suppress(asyncio.CancelledError):
        await reading


if __name__ == "__main__":
    asyncio.run(_main(orjson.loads(sys.stdin.buffer.readline())))
