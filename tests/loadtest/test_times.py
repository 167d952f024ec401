"""Times with how often each was there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadtest.times import added, of_counts, share_of


def test_a_share_is_of_all_that_was_counted() -> None:
    times = {2.0: 98, 10.0: 2}
    assert [share_of(times, share) for share in (0.0, 0.5, 0.97, 0.98, 1.0)] == [2, 2, 2, 10, 10]
    assert share_of({}, 0.5) is None


@given(st.lists(st.sampled_from((1.0, 2.0, 5.0, 9.0)), min_size=1), st.floats(0, 1))
def test_it_is_what_a_list_of_them_has_at_that_place(values: list[float], share: float) -> None:
    times = added({value: 1} for value in values)
    assert share_of(times, share) == sorted(values)[min(len(values) - 1, int(share * len(values)))]


def test_what_the_crowd_reports_is_in_microseconds() -> None:
    assert of_counts([[1500, 2], [7, 1]]) == {1.5: 2, 0.007: 1}
