"""Full jitter between zero and a growing, capped step."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.backoff import Backoff


class Highest(random.Random):
    """A source that always draws the upper end, which is the step itself."""

    def uniform(self, a: float, b: float) -> float:
        return b


def steps(backoff: Backoff, count: int, *, now: float = 0.0) -> list[float]:
    return [backoff.failed(now, Highest()) for _ in range(count)]


def test_steps_double_up_to_the_cap():
    assert steps(Backoff(base=0.5, cap=5.0), 6) == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_a_cap_below_the_base_holds_from_the_start():
    assert steps(Backoff(base=2.0, cap=1.0), 2) == [1.0, 1.0]


def test_after_a_long_night_of_failures_it_still_waits_the_cap():
    assert set(steps(Backoff(cap=30.0), 5_000)[10:]) == {30.0}


@given(st.integers(0, 2**32), st.integers(0, 40))
def test_a_delay_is_anywhere_between_nothing_and_the_step(seed, failures):
    backoff = Backoff(base=0.5, cap=30.0)
    steps(backoff, failures)
    step = min(30.0, 0.5 * 2.0**failures)
    assert 0.0 <= backoff.failed(0.0, random.Random(seed)) <= step


def test_delays_spread_over_the_whole_step():
    rng = random.Random(1)
    draws = [Backoff(base=8.0).failed(0.0, rng) for _ in range(1_000)]
    assert min(draws) < 0.1
    assert max(draws) > 7.9
    assert sum(draws) / len(draws) == pytest.approx(4.0, abs=0.3)


def test_the_steps_start_over_after_enough_stability():
    backoff = Backoff(base=1.0, cap=60.0, reset_after=10.0)
    assert steps(backoff, 3) == [1.0, 2.0, 4.0]
    backoff.succeeded(100.0)
    assert backoff.failed(110.0, Highest()) == 1.0
    assert backoff.failed(111.0, Highest()) == 2.0


def test_a_success_that_does_not_last_changes_nothing():
    backoff = Backoff(base=1.0, cap=60.0, reset_after=10.0)
    assert steps(backoff, 2) == [1.0, 2.0]
    backoff.succeeded(100.0)
    assert backoff.failed(109.9, Highest()) == 4.0


def test_stability_counts_from_the_first_success():
    backoff = Backoff(base=1.0, cap=60.0, reset_after=10.0)
    steps(backoff, 2)
    for now in (100.0, 105.0, 109.0):
        backoff.succeeded(now)
    assert backoff.failed(110.0, Highest()) == 1.0


def test_a_failure_ends_the_stability_before_it():
    backoff = Backoff(base=1.0, cap=60.0, reset_after=10.0)
    backoff.succeeded(0.0)
    assert backoff.failed(5.0, Highest()) == 1.0
    assert backoff.failed(50.0, Highest()) == 2.0


def test_without_a_generator_it_draws_by_itself():
    assert 0.0 <= Backoff(base=0.5).failed(0.0) <= 0.5
