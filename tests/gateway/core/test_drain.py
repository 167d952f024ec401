"""The spread of a drain over time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.drain import DrainSchedule


def test_readers_are_spread_evenly() -> None:
    pace = DrainSchedule(readers=100, seconds=10.0, per_second=1000)
    assert [pace.due(t) for t in (0.0, 2.5, 5.0, 9.99, 10.0, 99.0)] == [0, 25, 50, 99, 100, 100]


def test_never_more_than_so_many_a_second() -> None:
    pace = DrainSchedule(readers=5000, seconds=1.0, per_second=1000)
    assert pace.duration == 5.0
    assert pace.due(1.0) == 1000


def test_nobody_takes_no_time() -> None:
    assert DrainSchedule(readers=0, seconds=10.0, per_second=10).due(0.0) == 0
    assert DrainSchedule(readers=3, seconds=0.0, per_second=1000).due(0.003) == 3


def test_each_turn_tells_those_who_are_due_since_the_last_one() -> None:
    times = iter((50.0, 50.0, 52.5, 52.5, 59.5, 61.0))
    pace = DrainSchedule(readers=100, seconds=10.0, per_second=1000)
    assert list(pace.batches(lambda: next(times))) == [0, 25, 0, 70, 5]
    assert list(DrainSchedule(0, 10.0, 10).batches(lambda: 0.0)) == []


@given(
    st.integers(0, 10_000),
    st.floats(0, 60),
    st.integers(1, 10_000),
    st.lists(st.floats(0, 100), max_size=20),
)
def test_it_never_goes_back_and_ends_with_everybody(
    readers: int, seconds: float, per_second: int, times: list[float]
) -> None:
    pace = DrainSchedule(readers, seconds, per_second)
    due = [pace.due(t) for t in sorted(times)]
    assert due == sorted(due)
    assert pace.due(pace.duration) == readers
