"""Routers with a machine's clock that is set wrong, is set back, or was wrong at their start."""

from __future__ import annotations

import asyncio
import contextlib
import math
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from core_cluster import EPOCH, CoreCluster, message, running, until
from metric_values import value

from newsfabric.errors import StoreUnavailable
from newsfabric.messages.envelope import ms_of_id
from newsfabric.store.logs import DirectoryRow, Log
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicPolicy, TopicTable
from wholesale.router import clock_watch, counters
from wholesale.router.service import RouterService, RouterSettings

TOPICS = TopicTable([TopicPolicy(pattern="news.#", ttl=3_600.0)])
HOUR = 3_600_000


class Clocks:
    """The machine's clock, the store's, and the monotonic one."""

    def __init__(self) -> None:
        self.wall_ms = self.store_ms = EPOCH
        self.now = 0.0

    def go_on(self, ms: int) -> None:
        self.wall_ms += ms
        self.store_ms += ms
        self.now += ms / 1000


class ClockedStore(MemoryStore):
    """A store with a clock of its own."""

    def __init__(self, clocks: Clocks) -> None:
        super().__init__(TOPICS, now_ms=lambda: EPOCH)
        self.clocks = clocks
        self.compared = 0
        self.is_away = False

    async def clocks_ms(self) -> list[int]:
        if self.is_away:
            raise StoreUnavailable("away")
        self.compared += 1
        return [self.clocks.store_ms]

    async def compared_again(self) -> None:
        """Wait for two comparisons: the first may have begun already."""
        before = self.compared
        await until(lambda: self.compared >= before + 2)


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def store(clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> ClockedStore:
    monkeypatch.setattr(clock_watch, "COMPARE", 0.01)
    return ClockedStore(clocks)


@pytest.fixture
def core(core: CoreCluster, store: ClockedStore) -> CoreCluster:
    core.store, core.topics = store, TOPICS
    return core


def router_of(core: CoreCluster, clocks: Clocks, name: str = "oregon-router-1"):
    return running(
        core, name=name, epoch=0, now_ms=lambda: clocks.wall_ms, awake=lambda: clocks.now
    )


@contextlib.asynccontextmanager
async def service_of(
    core: CoreCluster, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RouterService]:
    """Run a whole router with the machine's clock."""
    made = clock_watch.ClockWatch.__init__

    def with_clocks(self, store, **_):
        made(self, store, wall_ms=lambda: clocks.wall_ms, now=lambda: clocks.now)

    monkeypatch.setattr(clock_watch.ClockWatch, "__init__", with_clocks)
    settings = RouterSettings(name="oregon-router-1", region="oregon", queues=("router.1",))
    links = core.link
    service = RouterService(settings, links=links, taking=links, store=core.store, topics=TOPICS)
    stop = asyncio.Event()
    task = asyncio.create_task(service.serve(stop))
    try:
        yield service
    finally:
        stop.set()
        await task


def times(core: CoreCluster) -> list[int]:
    return [ms_of_id(envelope.id) - EPOCH for envelope in core.envelopes()]


async def test_a_clock_that_is_set_back_with_the_stores_gives_no_earlier_times(
    core: CoreCluster, clocks: Clocks, store: ClockedStore
):
    async with router_of(core, clocks) as router:
        await until(lambda: router.stream.numbering.is_listed)
        clocks.go_on(1_000)
        core.publish(message(message_id="before"))
        await core.none_owed(router)
        clocks.wall_ms -= HOUR
        clocks.store_ms -= HOUR
        # It jumped, and is believed again since the store's clock agrees.
        await until(lambda: router.clock_is_right)
        await store.compared_again()
        core.publish(message(message_id="at once"))
        await core.none_owed(router)
        clocks.go_on(10_000)
        core.publish(message(message_id="later"))
        await core.none_owed(router)
        assert times(core) == [1_000, 1_000, 10_000]
        assert {envelope.epoch for envelope in core.envelopes()} == {EPOCH}


async def test_a_log_begins_later_than_all_that_the_directory_tells(
    core: CoreCluster, clocks: Clocks, store: ClockedStore
):
    # A running log of another region, an ended one, and one of a release that reported no time.
    dublin = Log("dublin", "dublin-router-1", EPOCH - 9 * HOUR)
    ended = Log("oregon", "oregon-router-2", EPOCH - 8 * HOUR)
    old = Log("oregon", "oregon-router-3", EPOCH - 7 * HOUR)
    for log, version in ((dublin, EPOCH + 5_000), (ended, EPOCH + 3_000), (old, 7)):
        await store.list_log(log)
        await store.change_log(DirectoryRow(log, version, ended=0 if log == ended else None))
    async with router_of(core, clocks) as router:
        core.publish(message(message_id="1"))
        await core.none_owed(router)
        assert router.stream.log.epoch == EPOCH + 5_001
        assert times(core) == [5_001]


async def test_a_row_that_tells_a_time_of_another_year_sets_no_clock(
    core: CoreCluster, clocks: Clocks, store: ClockedStore, expect_error_log
):
    """A bit has flipped in its version: all later ids would have the time of that year."""
    expect_error_log("more than a day ahead: it isn't believed")
    near, far = (Log("dublin", f"dublin-router-{n}", EPOCH - HOUR) for n in (1, 2))
    for log, version in ((near, EPOCH + 23 * HOUR), (far, EPOCH + (1 << 40))):
        await store.list_log(log)
        await store.change_log(DirectoryRow(log, version))
    async with router_of(core, clocks) as router:
        core.publish(message(message_id="1"))
        await core.none_owed(router)
        assert router.stream.log.epoch == EPOCH + 23 * HOUR + 1


async def test_a_router_whose_clock_is_years_behind_believes_the_directory_once_it_is_right(
    core: CoreCluster, clocks: Clocks, store: ClockedStore, expect_error_log
):
    expect_error_log("clock and the store's are")
    dublin = Log("dublin", "dublin-router-1", EPOCH - HOUR)
    await store.list_log(dublin)
    await store.change_log(DirectoryRow(dublin, EPOCH + 5_000))
    clocks.wall_ms = 1_000
    async with router_of(core, clocks) as router:
        await store.compared_again()
        clocks.wall_ms = clocks.store_ms
        core.publish(message(message_id="1"))
        await core.none_owed(router)
        assert router.stream.log.epoch == EPOCH + 5_001


async def test_rows_tell_the_time_of_their_writing(
    core: CoreCluster, clocks: Clocks, store: ClockedStore
):
    async with router_of(core, clocks) as router:
        clocks.go_on(4_000)
        core.publish(message(message_id="1"))
        await core.none_owed(router)
        log = router.stream.log
        await until(lambda: store._directory[log].low == 1)
        assert store._directory[log].stated_ms == EPOCH + 4_000


@pytest.mark.sockets
async def test_a_router_whose_clock_is_wrong_when_it_starts_waits_and_takes_nothing(
    core: CoreCluster,
    clocks: Clocks,
    store: ClockedStore,
    monkeypatch: pytest.MonkeyPatch,
    expect_error_log: Any,
):
    expect_error_log("are 25200 s apart")
    clocks.wall_ms -= 7 * HOUR
    core.publish(message(message_id="1"))
    async with service_of(core, clocks, monkeypatch) as service:
        await store.compared_again()
        assert "clock" in service.readiness().waiting_for
        assert (core.broker.depth("router.1"), core.envelopes()) == (1, [])
        assert value(counters.CLOCK_AHEAD) == -7 * 3_600
        clocks.wall_ms = clocks.store_ms
        await until(lambda: len(core.envelopes()) == 1)
        assert times(core) == [0]
        await until(lambda: service.readiness().ready)


@pytest.mark.sockets
async def test_a_router_whose_clock_goes_wrong_gives_back_what_it_hasnt_numbered(
    core: CoreCluster,
    clocks: Clocks,
    store: ClockedStore,
    monkeypatch: pytest.MonkeyPatch,
    expect_error_log: Any,
):
    expect_error_log("are 3600 s apart")
    async with service_of(core, clocks, monkeypatch) as service:
        await until(lambda: service.readiness().ready)
        clocks.wall_ms += HOUR
        await until(lambda: "clock" in service.readiness().waiting_for)
        await until(lambda: "consuming" in service.readiness().waiting_for)
        core.publish(message(message_id="1"))
        await store.compared_again()
        assert (core.broker.depth("router.1"), core.envelopes()) == (1, [])
        clocks.wall_ms -= HOUR
        await until(lambda: len(core.envelopes()) == 1)
        assert times(core) == [0]


async def test_what_a_router_has_not_numbered_when_its_clock_goes_wrong_it_can_give_back(
    core: CoreCluster, clocks: Clocks, store: ClockedStore, expect_error_log: Any
):
    expect_error_log("are 3600 s apart")
    async with router_of(core, clocks) as wrong:
        await until(lambda: wrong.stream.numbering.is_listed)
        clocks.wall_ms += HOUR
        await until(lambda: not wrong.clock_is_right)
        core.publish(message(message_id="1"))
        await until(lambda: wrong.under_way == 1)
        assert core.envelopes() == []
        wrong.pause()
        assert wrong.under_way == 0


def test_before_the_first_comparison_no_number_is_reported_as_if_the_clock_were_right():
    shown = (
        "from wholesale.router.counters import CLOCK_AHEAD;"
        "print(CLOCK_AHEAD.collect()[0].samples[0].value)"
    )
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, check=True, text=True)
    assert done.stdout == "nan\n"


async def test_nor_where_the_store_tells_no_time():
    watch = clock_watch.ClockWatch(MemoryStore(TOPICS), wall_ms=lambda: EPOCH, now=lambda: 0.0)
    counters.CLOCK_AHEAD.set(math.nan)
    await watch.compare()
    assert watch.is_right
    assert math.isnan(value(counters.CLOCK_AHEAD))


async def test_a_store_that_is_away_is_asked_again(
    core: CoreCluster, clocks: Clocks, store: ClockedStore, caplog: pytest.LogCaptureFixture
):
    store.is_away = True
    async with router_of(core, clocks) as router:
        await until(lambda: "can't read the store's clock" in caplog.text)
        store.is_away = False
        core.publish(message(message_id="1"))
        await core.none_owed(router)
        assert times(core) == [0]
