"""The time from which a shovel that reports to run is no longer believed."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from newsfabric.brokers.watch import RESTART_CAP, SILENT_AFTER, Watched


def _rng() -> random.Random:
    return random.Random(1)


def test_what_was_never_sent_is_never_missed() -> None:
    watched = Watched()
    assert not watched.silent(1e9)
    assert not watched.distrust(1e9, _rng())
    assert watched.age(1e9) is None
    assert not watched.fresh(1e9)


def test_a_shovel_that_brings_each_canary_is_believed() -> None:
    watched = Watched()
    for second in range(1000):
        watched.sent(float(second))
        watched.arrived(float(second), second + 0.1)
        assert not watched.distrust(second + 0.9, _rng())
    assert watched.age(1000.0) == 1.0
    assert watched.fresh(1000.0)


def test_one_that_brings_nothing_is_distrusted_after_ten_seconds() -> None:
    watched = Watched()
    watched.sent(5.0)
    assert not watched.distrust(5.0 + SILENT_AFTER, _rng())
    assert watched.distrust(5.1 + SILENT_AFTER, _rng())
    assert watched.restarts == 1


def test_one_that_works_off_a_backlog_brings_old_canaries_and_is_left_alone() -> None:
    watched = Watched()
    for second in range(100):
        watched.sent(float(second))
    for second in range(100, 300):
        watched.sent(float(second))
        # Half as fast as they are sent.
        watched.arrived((second - 100) / 2, float(second))
        assert not watched.distrust(second + 0.5, _rng())
    assert not watched.fresh(300.0)


def test_a_canary_that_overtook_another_doesnt_make_the_age_grow() -> None:
    watched = Watched()
    watched.arrived(10.0, 10.1)
    watched.arrived(8.0, 10.2)
    assert watched.age(11.0) == 1.0


@given(st.integers(0, 2**32))
def test_restarts_come_ever_more_seldom_and_never_in_step(seed: int) -> None:
    rng, watched = random.Random(seed), Watched()
    times = []
    for second in range(3600):
        watched.sent(float(second))
        if watched.distrust(float(second), rng):
            times.append(second)
    assert times[0] == SILENT_AFTER + 1
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert min(gaps) >= SILENT_AFTER
    assert max(gaps) <= SILENT_AFTER + RESTART_CAP + 1
    assert watched.restarts == len(times)


def test_a_new_shovel_gets_its_full_time() -> None:
    watched = Watched()
    watched.sent(0.0)
    watched.renewed()
    assert not watched.silent(100.0)
    watched.sent(100.0)
    assert not watched.silent(100.0 + SILENT_AFTER)
    assert watched.silent(100.1 + SILENT_AFTER)
