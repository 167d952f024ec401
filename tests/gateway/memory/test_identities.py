"""Identities of copies: known for ten minutes, and bounded in number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.memory.identities import SeenIdentities


def test_an_identity_is_known_for_the_window_and_then_forgotten() -> None:
    seen = SeenIdentities(seconds=600, limit=100)
    seen.add(7, now=1000.0)
    seen.add(8, now=1600.0)
    assert 7 in seen
    seen.add(9, now=1610.0)
    assert 7 not in seen


def test_at_the_bound_the_oldest_go_first() -> None:
    seen = SeenIdentities(seconds=600, limit=3)
    for n in range(3):
        seen.add(n, now=n * 10.0)
    seen.add(3, now=30.0)
    assert [n for n in range(4) if n in seen] == [1, 2, 3]
    assert seen.evicted_early == 1


def test_a_burst_beyond_the_bound_loses_its_older_half() -> None:
    seen = SeenIdentities(seconds=600, limit=4)
    for n in range(5):
        seen.add(n, now=1.0)
    assert [n for n in range(5) if n in seen] == [2, 3, 4]


def test_a_clock_set_back_keeps_what_is_new() -> None:
    seen = SeenIdentities(seconds=600, limit=100)
    seen.add(1, now=5000.0)
    seen.add(2, now=10.0)
    seen.add(3, now=5000.0)
    assert 2 in seen


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 30)), max_size=200))
def test_it_is_bounded_and_what_was_added_last_is_known(steps: list[tuple[int, float]]) -> None:
    seen, now = SeenIdentities(seconds=60, limit=10), 0.0
    for identity, wait in steps:
        now += wait
        seen.add(identity, now)
        assert identity in seen
        assert len(seen) <= 10
