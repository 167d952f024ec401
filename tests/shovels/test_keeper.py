"""The times at which the keeper looks again, and its report of things that it leaves alone."""

from __future__ import annotations

import random

import pytest
from fabrics import TOPICS, broker, fabric
from metric_values import value

from newsfabric.settings import Credentials
from newsfabric.topology import Bounds, Queue
from shovels.apply import ManagementClients, RegionState, TriedAction
from shovels.keeper import BASE, INTERVAL, ROUNDS, WAITING, Keeper, RoundTimer
from shovels.places import RegionPlan
from shovels.plan import Action


def test_a_settled_keeper_looks_about_every_five_seconds_and_never_in_step() -> None:
    pace = RoundTimer(random.Random(1))
    waits = [pace.settled(float(now)) for now in range(200)]
    assert min(waits) >= 0.8 * INTERVAL
    assert max(waits) <= 1.2 * INTERVAL
    assert len(set(waits)) == len(waits)


def test_at_the_start_it_looks_again_at_once_and_then_ever_more_seldom() -> None:
    pace = RoundTimer(random.Random(1))
    waits = [pace.unsettled(float(now)) for now in range(12)]
    assert waits[0] <= BASE
    assert waits[1] <= 2 * BASE
    assert all(wait <= INTERVAL for wait in waits)
    assert max(waits) > 2.0


class OtherKeeper:
    """A keeper of another release that undoes one change of a queue; brokers are simulated."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        self.wants = True
        monkeypatch.setattr("shovels.keeper.read_state", self._look)
        monkeypatch.setattr("shovels.keeper.carry_out", self._carry_out)

    async def _look(self, *_: object) -> RegionState:
        plan = RegionPlan(parts={}, places={}, moving=(), present={})
        bounds = Bounds(max_length=10, max_bytes=1_000)
        queue = Queue("shovel.publish.oregon.1", bounds)
        action = Action(broker("oregon-client-1"), "update", "queue", queue.name, queue)
        return RegionState(
            actions=(action,) if self.wants else (),
            plan=plan,
            actual={},
            unreachable={},
            unread=frozenset(),
        )

    async def _carry_out(self, _: object, found: RegionState) -> list[TriedAction]:
        self.made += len(found.actions)
        return [TriedAction(action) for action in found.actions]


def rounds(outcome: str) -> float:
    return value(ROUNDS.labels(outcome))


async def test_a_keeper_whose_queue_another_one_makes_anew_waits_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = OtherKeeper(monkeypatch)
    async with ManagementClients(fabric(), Credentials()) as brokers:
        keeper = Keeper(brokers, "oregon", TOPICS)
        before = [rounds(each) for each in ("unsettled", "waiting", "settled")]
        for _ in range(3):
            await keeper.round()
        assert other.made == 1
        assert value(WAITING) == 1
        assert "queue shovel.publish.oregon.1 on oregon-client-1 has other bounds" in (caplog.text)
        # An upgrade of the other keeper's host waits until this one is ready.
        assert "plan" not in keeper.readiness().waiting_for
        other.wants = False
        await keeper.round()
        assert value(WAITING) == 0
        after = [rounds(each) for each in ("unsettled", "waiting", "settled")]
        assert [b - a for a, b in zip(before, after, strict=True)] == [1, 2, 1]
