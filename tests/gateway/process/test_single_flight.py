"""Work that many callers want at once is done once; a caller that leaves takes it from no other."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import pytest
from gateways import until

from gateway.process.tasks import SingleFlight
from newsfabric.errors import StoreUnavailable


class Work:
    """Work that counts its starts, and ends when ``released`` is open."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.released = asyncio.Event()
        self.fails = fails

    async def do(self, name: str) -> None:
        self.begun.append(name)
        await self.released.wait()
        if self.fails is not None:
            raise self.fails
        self.ended.append(name)


class Flights:
    """Callers that wait for ``work``, and the tasks in which it is done."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.tasks: list[asyncio.Task[None]] = []
        self._flight: SingleFlight[str, None] = SingleFlight(self._spawn)
        self._came = 0

    async def do(self, name: str) -> None:
        self._came += 1
        await self._flight.do(name, lambda: self.work.do(name))

    async def wanted(self, *names: str) -> list[asyncio.Task[None]]:
        """Return tasks that want these names, once all of them wait."""
        before = self._came
        waiting = [asyncio.create_task(self.do(name)) for name in names]
        await until(lambda: self._came == before + len(names))
        await until(lambda: set(names) <= set(self.work.begun))
        return waiting

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]


async def test_it_is_done_once_however_many_wait() -> None:
    flights = Flights(Work())
    waiting = await flights.wanted("a", "a", "a")
    assert [task.done() for task in waiting] == [False] * 3
    flights.work.released.set()
    await asyncio.gather(*waiting)
    assert (flights.work.begun, flights.work.ended) == (["a"], ["a"])


async def test_each_key_has_work_of_its_own() -> None:
    flights = Flights(Work())
    waiting = await flights.wanted("a", "b", "a")
    assert flights.work.begun == ["a", "b"]
    flights.work.released.set()
    await asyncio.gather(*waiting)
    assert flights.work.ended == ["a", "b"]


async def test_once_it_is_done_it_is_done_anew_for_who_wants_it_then() -> None:
    flights = Flights(Work())
    flights.work.released.set()
    await flights.do("a")
    await flights.do("a")
    assert flights.work.ended == ["a", "a"]


async def test_its_exception_is_everybodys_and_the_next_begins_anew() -> None:
    failure = StoreUnavailable("away")
    flights = Flights(Work(fails=failure))
    waiting = await flights.wanted("a", "a")
    flights.work.released.set()
    assert await asyncio.gather(*waiting, return_exceptions=True) == [failure, failure]
    flights.work.fails = None
    await flights.do("a")
    assert (flights.work.begun, flights.work.ended) == (["a", "a"], ["a"])


async def test_who_is_cancelled_doesnt_take_it_from_the_others() -> None:
    flights = Flights(Work())
    first, second = await flights.wanted("a", "a")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    flights.work.released.set()
    await second
    assert (flights.work.begun, flights.work.ended) == (["a"], ["a"])


async def test_it_goes_on_when_all_who_wanted_it_are_gone() -> None:
    flights = Flights(Work())
    (only,) = await flights.wanted("a")
    only.cancel()
    with pytest.raises(asyncio.CancelledError):
        await only
    (late,) = await flights.wanted("a")
    flights.work.released.set()
    await late
    assert (flights.work.begun, flights.work.ended) == (["a"], ["a"])


async def test_what_fails_when_all_who_wanted_it_are_gone_is_nobodys_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    flights = Flights(Work(fails=StoreUnavailable("away")))
    (only,) = await flights.wanted("a")
    only.cancel()
    with pytest.raises(asyncio.CancelledError):
        await only
    flights.work.released.set()
    await asyncio.wait(flights.tasks)
    # A task whose exception was never read logs that when it is deleted.
    flights.tasks.clear()
    gc.collect()
    assert [record.getMessage() for record in caplog.records] == []


async def test_work_that_is_cancelled_is_cancelled_for_all_and_can_begin_again() -> None:
    flights = Flights(Work())
    waiting = await flights.wanted("a", "a")
    flights.tasks[0].cancel()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [asyncio.CancelledError] * 2
    flights.work.released.set()
    await flights.do("a")
    assert flights.work.ended == ["a"]


async def test_one_that_has_just_ended_is_not_under_way() -> None:
    work = Work()
    flights = Flights(work)
    (first,) = await flights.wanted("a")
    late: list[asyncio.Task[None]] = []
    flights.tasks[0].add_done_callback(lambda _: late.append(asyncio.create_task(flights.do("a"))))
    work.released.set()
    await first
    await late[0]
    assert work.ended == ["a", "a"]
