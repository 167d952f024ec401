"""L5 of docs/design/0028, closing: no region concludes anything about a log of another region.

Real closers of two regions over one store that lists logs of three. Their routers move their rows,
end them, or are dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from typing import Any, cast

from envelopes import START_MS, envelope
from hypothesis import given, settings
from hypothesis import strategies as st
from quick_time import quick_loop, run
from unit_share import examples

from newsfabric.store import Store
from newsfabric.store.logs import DirectoryRow, Log
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicPolicy, TopicTable
from wholesale.router.closer import Closer
from wholesale.router.closing import CLOSE_AFTER

TABLE = TopicTable([TopicPolicy(pattern="news.#", ttl=86_400.0)])
REGIONS = ("oregon", "dublin", "tokyo")
# A router moves its row at least every ten seconds.
BEAT = 10.0


def now_ms() -> int:
    return START_MS + int(quick_loop().time() * 1000)


class CloserStore:
    """A closer's connection to the store; it records changes, and how long the row stood before."""

    def __init__(self, store: MemoryStore, moved_at: dict[Log, float]) -> None:
        self._store = store
        self._moved_at = moved_at
        self.changed: list[tuple[DirectoryRow, float]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def change_log(self, row: DirectoryRow) -> bool:
        self.changed.append((row, quick_loop().time() - self._moved_at[row.log]))
        return await self._store.change_log(row)


class ClosingFabric:
    """Routers of three regions that live and die, and closers of the first two regions."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.store = MemoryStore(TABLE, now_ms=now_ms)
        self.rows: dict[Log, DirectoryRow] = {}
        self._moved_at: dict[Log, float] = {}
        self.ways = {
            name: CloserStore(self.store, self._moved_at)
            for name in ("oregon", "oregon-2", "dublin")
        }

    def closers(self) -> list[Closer]:
        return [
            Closer(
                cast("Store", way),
                region=name.partition("-")[0],
                own=lambda name=name: Log("", name, 0),  # type: ignore[misc]
                now_ms=now_ms,
                now=quick_loop().time,
            )
            for name, way in self.ways.items()
        ]

    async def begins(self) -> None:
        region = self._dice.choice(REGIONS)
        log = Log(region, f"{region}-router-{len(self.rows)}", now_ms())
        assert await self.store.list_log(log)
        self.rows[log] = DirectoryRow(log)
        self._moved_at[log] = quick_loop().time()

    async def moves(self, log: Log, *, ends: bool = False) -> None:
        """Let the log's router route some messages and move its row, unless the log was closed."""
        row = self.rows[log]
        low = row.low + self._dice.randrange(3)
        made = {"origin": log.region, "router": log.router, "epoch": log.epoch}
        at = now_ms() - START_MS
        written = (envelope(n, at=at, **made) for n in range(row.low + 1, low + 1))
        await self.store.write(list(written))
        row = dataclasses.replace(
            row, version=row.version + 1, low=low, ended=low if ends else None
        )
        if await self.store.change_log(row):
            self.rows[log] = row
            self._moved_at[log] = quick_loop().time()

    async def live(self, seconds: float) -> None:
        dice = self._dice
        dead: set[Log] = set()
        until = quick_loop().time() + seconds
        while quick_loop().time() < until:
            if len(self.rows) < 9 and dice.random() < 0.3:
                await self.begins()
            for log, row in list(self.rows.items()):
                if log in dead or row.ended is not None:
                    continue
                if dice.random() < 0.05:
                    dead.add(log)
                else:
                    await self.moves(log, ends=dice.random() < 0.03)
            await asyncio.sleep(BEAT)

    async def listed(self) -> dict[Log, DirectoryRow]:
        days = await self.store.log_days()
        return {row.log: row for day in days for row in await self.store.directory(*day)}


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(25))
def test_l5_a_log_is_closed_by_its_own_region_alone_and_never_while_its_row_moves(
    seed: int,
) -> None:
    async def history() -> None:
        fabric = ClosingFabric(random.Random(seed))
        tasks = [asyncio.create_task(closer.run()) for closer in fabric.closers()]
        await fabric.live(random.Random(seed).uniform(30.0, 400.0))
        await asyncio.sleep(CLOSE_AFTER + 30.0)
        for name, way in fabric.ways.items():
            assert {row.log.region for row, _ in way.changed} <= {name.partition("-")[0]}
            assert all(stood >= CLOSE_AFTER for _, stood in way.changed)
        for log, row in (await fabric.listed()).items():
            # Tokyo has no closer: its logs stay as their routers left them.
            ended = fabric.rows[log].ended if log.region == "tokyo" else fabric.rows[log].low
            assert (row.low, row.ended) == (fabric.rows[log].low, ended)
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    run(history(), began=START_MS / 1000)
