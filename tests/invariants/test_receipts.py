"""L1 of docs/design/0028: each message that a receipt reports as routed is within its log.

Real routers, one after the other and side by side, on a broker and a store in memory. Each has its
own connection to the store, which refuses, doesn't reply, writes halves, is slow, or writes late;
any router dies at any moment. In the end all are dead, and a new router closes their logs.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import random
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any, cast

import pytest
from core_cluster import EPOCH, CoreCluster, message, running
from hypothesis import given, register_random, settings
from hypothesis import strategies as st
from quick_time import quick_loop, run
from unit_share import examples

from newsfabric import backoff
from newsfabric.amqp.stub import StubBroker
from newsfabric.errors import StoreError, StoreUnavailable
from newsfabric.messages.envelope import Envelope
from newsfabric.store import Store
from newsfabric.store.logs import DirectoryRow, Log, Number, NumberState
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicPolicy, TopicTable
from wholesale.router import closer, settling, stream
from wholesale.router import router as router_module
from wholesale.router.closing import CLOSE_AFTER, EndSearch
from wholesale.router.jobs import RoutingJob
from wholesale.router.numbering import Numbering
from wholesale.router.settling import Settling

register_random(backoff._SHARED)

TABLE = TopicTable([TopicPolicy(pattern="news.#", ttl=86_400.0)])
# At most so many numbers of a log are unsettled at once.
WINDOW = 3
Place = tuple[Log, int]


def now_ms() -> int:
    return EPOCH + int(quick_loop().time() * 1000)


class SharedStore(MemoryStore):
    """The store of all routers. It has only the index row of some numbers."""

    def __init__(self) -> None:
        super().__init__(TABLE, now_ms=now_ms)
        self.halves: set[Place] = set()

    async def numbers(
        self, log: Log, *, first: int, last: int, limit: int, at_home: bool = False
    ) -> list[Number]:
        found = await super().numbers(log, first=first, last=last, limit=last - first + 1)
        there = {number.seq for number in found}
        found += [
            Number(seq, NumberState.HALF)
            for of, seq in self.halves
            if of == log and first <= seq <= last and seq not in there
        ]
        return sorted(found, key=lambda number: number.seq)[:limit]


class RouterStore:
    """The connection of a router to the store."""

    def __init__(self, region: SharedStore, dice: random.Random) -> None:
        self._region = region
        self._dice = dice
        self._late: set[asyncio.Task[None]] = set()
        self.directory_is_away = self.is_away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._region, name)

    async def write(self, envelopes: Sequence[Envelope]) -> None:
        fate = self._dice.choice(["done"] * 6 + ["refused", "unanswered", "half", "slow", "late"])
        if self.is_away or fate == "refused":
            raise StoreUnavailable("away")
        if any((one.message_id or "").endswith("7") for one in envelopes):
            raise StoreError("it can't hold this")
        if fate == "slow":
            await asyncio.sleep(self._dice.uniform(1.0, 30.0))
        elif fate == "half":
            self._region.halves.update((Log(e.origin, e.router, e.epoch), e.seq) for e in envelopes)
            raise StoreUnavailable("half of it is written")
        elif fate == "late":
            self._late.add(asyncio.create_task(self._write_late(envelopes)))
            raise StoreUnavailable("no answer")
        await self._region.write(envelopes)
        if fate == "unanswered":
            raise StoreUnavailable("no answer")

    async def _write_late(self, envelopes: Sequence[Envelope]) -> None:
        await asyncio.sleep(self._dice.uniform(1.0, 200.0))
        await self._region.write(envelopes)

    async def list_log(self, log: Log) -> bool:
        return await self._change(self._region.list_log, log)

    async def change_log(self, row: DirectoryRow) -> bool:
        return await self._change(self._region.change_log, row)

    async def _change(self, change: Callable[[Any], Any], value: Any) -> bool:
        fate = self._dice.choice(["done"] * 6 + ["refused", "unanswered", "slow"])
        if self.directory_is_away or fate == "refused":
            raise StoreUnavailable("away")
        if fate == "slow":
            await asyncio.sleep(self._dice.uniform(0.0, 4.0))
        changed: bool = await change(value)
        if fate == "unanswered":
            raise StoreUnavailable("no answer")
        return changed

    async def log_days(self, *, at_home: bool = False) -> list[tuple[str, int]]:
        if self.directory_is_away:
            raise StoreUnavailable("away")
        return await self._region.log_days()

    async def directory(
        self, region: str, day: int, *, but: Collection[Log] = (), at_home: bool = False
    ) -> list[DirectoryRow]:
        if self.directory_is_away:
            raise StoreUnavailable("away")
        return await self._region.directory(region, day, but=but)


class Life:
    """A router from its start to its end."""

    def __init__(self, core: CoreCluster, name: str, store: object) -> None:
        self._link = core.broker.connect()
        self._open = contextlib.AsyncExitStack()
        self._running = running(
            CoreCluster(core.broker, core.link, cast("Store", store), TABLE),
            name=name,
            link=self._link,
            now_ms=now_ms,
            now=quick_loop().time,
            awake=quick_loop().time,
            epoch=now_ms(),
        )

    async def begin(self) -> None:
        self._router = await self._open.enter_async_context(self._running)

    async def dies(self) -> None:
        self._link.lose()
        await self._open.aclose()
        await self._link.close()

    async def stops(self) -> None:
        await self._open.aclose()
        await self._router.end_log()
        await self._link.close()

    async def loses_its_link(self) -> None:
        self._link.lose()
        await asyncio.sleep(1.0)
        await self._link.restore()


class RouterFabric:
    """Routers of one region, each with its connection to the store."""

    def __init__(self, dice: random.Random) -> None:
        self.region = SharedStore()
        self.lives: list[tuple[Life, RouterStore]] = []
        self._dice = dice
        broker = StubBroker(clock=quick_loop().time)
        self._core = CoreCluster(broker, broker.connect(), self.region, TABLE)
        self._names = itertools.cycle(["oregon-router-1", "oregon-router-2"])
        self._count = itertools.count(1)

    async def open(self) -> None:
        await self._core.open()
        for _ in range(2):
            await self.start()

    async def start(self) -> None:
        way = RouterStore(self.region, self._dice)
        life = Life(self._core, next(self._names), way)
        self.lives.append((life, way))
        await life.begin()

    def publish(self, count: int) -> None:
        made = (message(message_id=f"m{next(self._count)}", reply_to="me") for _ in range(count))
        self._core.publish(*made)

    async def wait(self, seconds: float) -> None:
        """Wait; publishers go on publishing meanwhile."""
        until = quick_loop().time() + seconds
        while (left := until - quick_loop().time()) > 0:
            self.publish(self._dice.randrange(3))
            await asyncio.sleep(min(left, self._dice.uniform(0.0, 3.0)))

    async def end(self) -> None:
        """Let all routers die, and a new router close their logs."""
        while self.lives:
            life, _ = self.lives.pop()
            await life.dies()
        last = Life(self._core, "oregon-router-3", self.region)
        await last.begin()
        await asyncio.sleep(CLOSE_AFTER + 30.0)
        await last.dies()

    async def is_kept(self, place: Place, identity: int) -> bool:
        """Return whether the number is within its log, not void, and has its rows."""
        log, seq = place
        rows = {row.log: row for row in await self.region.directory(log.region, log.day)}
        row = rows[log]
        found = await self.region.numbers(log, first=seq, last=seq, limit=1)
        return (
            seq <= (row.low if row.ended is None else row.ended)
            and not any(first <= seq <= last for first, last in row.voids)
            and [(n.state, n.envelope and n.envelope.identity) for n in found]
            == [(NumberState.MESSAGE, identity)]
        )


DEEDS = [
    *["publish"] * 4, *["wait"] * 8, "start", "dies", "stops", "store", "directory", "link",
]  # fmt: skip
WAITS = (0.01, 0.3, 0.3, 1.0, 3.0, 12.0, 40.0)


async def do_deed(fabric: RouterFabric, deed: str, dice: random.Random) -> None:
    if deed == "publish":
        fabric.publish(dice.randrange(1, 5))
    elif deed == "wait":
        await fabric.wait(dice.choice(WAITS))
    elif deed == "start" and len(fabric.lives) < 3:
        await fabric.start()
    if not fabric.lives:
        return
    at = dice.randrange(len(fabric.lives))
    life, way = fabric.lives[at]
    if deed == "store":
        way.is_away = not way.is_away
    elif deed == "directory":
        way.directory_is_away = not way.directory_is_away
    elif deed == "link":
        await life.loses_its_link()
    elif deed in ("dies", "stops"):
        del fabric.lives[at]
        await (life.dies() if deed == "dies" else life.stops())


@contextlib.asynccontextmanager
async def confirmed() -> AsyncIterator[list[tuple[Place, int]]]:
    """Yield the numbers for which receipts are sent meanwhile, and their messages' identities."""
    found: list[tuple[Place, int]] = []
    routed = Settling.routed

    def noted(ends: Settling, job: RoutingJob) -> None:
        assert job.stream is not None
        assert job.envelope is not None
        found.append(((job.stream.log, job.envelope.seq), job.envelope.identity))
        routed(ends, job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Settling, "routed", noted)
        patch.setattr(stream, "Numbering", functools.partial(Numbering, window=WINDOW))
        patch.setattr(closer, "EndSearch", functools.partial(EndSearch, window=WINDOW))
        # It logs an error for each message that the store can't take.
        patch.setattr(logging.getLogger(settling.__name__), "disabled", True)
        # Fewer ticks to play in quiet times.
        patch.setattr(router_module, "QUIET_SECONDS", 4.0)
        yield found


async def lost(fabric: RouterFabric, places: list[tuple[Place, int]]) -> list[Place]:
    """End all; return the numbers that receipts reported as routed and that their logs lack."""
    await fabric.end()
    return [place for place, identity in places if not await fabric.is_kept(place, identity)]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(25))
def test_l1_what_was_confirmed_to_its_publisher_is_a_message_within_its_log(seed: int) -> None:
    async def history() -> None:
        dice = random.Random(seed)
        fabric = RouterFabric(dice)
        async with confirmed() as receipts:
            await fabric.open()
            for _ in range(dice.randrange(60)):
                await do_deed(fabric, dice.choice(DEEDS), dice)
            assert await lost(fabric, receipts) == []

    run(history(), began=EPOCH / 1000)


def test_l1_a_router_that_cant_write_the_directory_confirms_nothing_beyond_the_end() -> None:
    """Other routers close its log meanwhile."""

    async def history() -> None:
        fabric = RouterFabric(random.Random(1))
        async with confirmed() as receipts:
            await fabric.open()
            await asyncio.sleep(5.0)
            _, way = fabric.lives[0]
            way.directory_is_away = True
            await fabric.wait(120.0)
            assert receipts != []
            assert await lost(fabric, receipts) == []

    run(history(), began=EPOCH / 1000)
