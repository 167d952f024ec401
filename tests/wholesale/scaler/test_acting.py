"""A driver that works, fails, hangs, or isn't allowed to act."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

import pytest

from newsfabric.backoff import Backoff
from wholesale.scaler.acting import STALE, Acting
from wholesale.scaler.choice import Decision
from wholesale.scaler.drivers import DriverError, DriverLimit, Instance
from wholesale.scaler.plan import ScalingPlan
from wholesale.scaler.requirement import Demand, requirement

REQUIREMENT = requirement(Demand(readers=0, per_box=1000), ScalingPlan())


def decided(**fields: object) -> Decision:
    return Decision(wanted=2, requirement=REQUIREMENT, **fields)  # type: ignore[arg-type]


class FakeDriver:
    """A driver that obeys, or raises ``trouble``."""

    def __init__(self) -> None:
        self.trouble: Exception | None = None
        self.asked: list[object] = []
        self.hangs = asyncio.Event()
        self.hangs.set()

    async def boxes(self) -> tuple[Instance, ...] | None:
        await self._ask("boxes")
        return (Instance("b1", 5.0),)

    async def want(self, count: int) -> None:
        await self._ask(("want", count))

    async def end(self, names: Iterable[str]) -> None:
        await self._ask(("end", tuple(names)))

    async def close(self) -> None:
        pass

    async def _ask(self, what: object) -> None:
        self.asked.append(what)
        await self.hangs.wait()
        if self.trouble is not None and what != "boxes":
            raise self.trouble


class Steady(Backoff):
    """A back-off of four seconds, without jitter."""

    def failed(self, now: float, rng: random.Random | None = None) -> float:
        return 4.0


class ActingClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def machines() -> FakeDriver:
    return FakeDriver()


@pytest.fixture
def clock() -> ActingClock:
    return ActingClock()


@pytest.fixture
def acting(machines: FakeDriver, clock: ActingClock) -> Acting:
    return Acting(machines, lambda _: None, clock, every=0.01, timeout=0.05, backoff=Steady())


async def test_it_tells_the_driver_what_was_decided_and_that_once(
    acting: Acting, machines: FakeDriver
) -> None:
    acting.decided(decided(want=4, end=("b1",)))
    await acting.round()
    await acting.round()
    assert machines.asked == ["boxes", ("end", ("b1",)), ("want", 4), "boxes"]
    assert acting.well
    assert acting.driver_document()["told"] == 4


async def test_only_the_last_decision_counts(acting: Acting, machines: FakeDriver) -> None:
    acting.decided(decided(want=4))
    acting.decided(decided(want=6))
    await acting.round()
    assert machines.asked == ["boxes", ("want", 6)]


async def test_a_driver_that_fails_is_reported_and_asked_again_later(
    acting: Acting, machines: FakeDriver, clock: ActingClock
) -> None:
    machines.trouble = DriverError("no credits\nleft")
    acting.decided(decided(want=4))
    await acting.round()
    assert not acting.well
    document = acting.driver_document()
    assert (document["state"], document["trouble"]) == ("failing", "no credits left")
    acting.decided(decided(want=4))
    await acting.round()
    assert machines.asked == ["boxes", ("want", 4)]
    clock.now += 5.0
    machines.trouble = None
    await acting.round()
    assert machines.asked[2:] == ["boxes", ("want", 4)]
    assert acting.driver_document()["state"] == "well"


async def test_a_driver_that_hangs_is_left_after_its_time(
    acting: Acting, machines: FakeDriver
) -> None:
    machines.hangs.clear()
    await acting.round()
    assert acting.driver_document()["trouble"] == "boxes: no answer within 0.05 s"


async def test_what_a_driver_raises_beside_its_own_errors_stops_nothing(
    acting: Acting, machines: FakeDriver
) -> None:
    machines.trouble = KeyError("Instances" * 1000)
    acting.decided(decided(want=4))
    await acting.round()
    document = acting.driver_document()["trouble"]
    assert document.startswith("want: KeyError: 'Instances")
    assert len(document) == 300


async def test_a_driver_at_its_limit_is_no_reason_to_end_no_box(
    acting: Acting, machines: FakeDriver, clock: ActingClock
) -> None:
    machines.trouble = DriverLimit("there may be 3")
    acting.decided(decided(want=4))
    await acting.round()
    assert acting.driver_document()["state"] == "limit"
    assert acting.well
    # When fewer boxes are enough, it isn't at its limit any more.
    clock.now += 5.0
    acting.decided(decided())
    await acting.round()
    assert acting.driver_document()["state"] == "well"


async def test_a_list_that_is_old_says_nothing(acting: Acting, clock: ActingClock) -> None:
    assert not acting.well
    await acting.round()
    assert acting.well
    clock.now += STALE + 1
    assert not acting.well
    assert acting.driver_document()["state"] == "stale"


async def test_it_goes_on_until_it_is_cancelled(acting: Acting, machines: FakeDriver) -> None:
    task = asyncio.create_task(acting.run())
    async with asyncio.timeout(60):
        while len(machines.asked) < 3:  # noqa: ASYNC110 - a driver has no events
            await asyncio.sleep(0)
    acting.decided(decided(want=9))
    async with asyncio.timeout(60):
        while ("want", 9) not in machines.asked:  # noqa: ASYNC110
            await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
