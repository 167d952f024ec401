"""When the keeper looks again."""

from __future__ import annotations

import random

from shovels.keeper import BASE, INTERVAL, Pace


def test_a_settled_keeper_looks_about_every_five_seconds_and_never_in_step() -> None:
    pace = Pace(random.Random(1))
    waits = [pace.settled(float(now)) for now in range(200)]
    assert min(waits) >= 0.8 * INTERVAL
    assert max(waits) <= 1.2 * INTERVAL
    assert len(set(waits)) == len(waits)


def test_at_the_start_it_looks_again_at_once_and_then_ever_more_seldom() -> None:
    pace = Pace(random.Random(1))
    waits = [pace.unsettled(float(now)) for now in range(12)]
    assert waits[0] <= BASE
    assert waits[1] <= 2 * BASE
    assert all(wait <= INTERVAL for wait in waits)
    assert max(waits) > 2.0
