"""What a router remembers of what it has routed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wholesale.router.window import Routed, Window


def test_what_was_routed_is_found_until_it_is_too_old():
    window = Window(keep_ms=1000)
    window.add(7, Routed(5000, 1), now_ms=5000)
    assert window.find(7, now_ms=5999) == Routed(5000, 1)
    assert window.find(7, now_ms=6000) is None


def test_what_was_never_routed_isnt_found():
    assert Window().find(7, now_ms=0) is None


def test_the_oldest_goes_when_there_are_too_many():
    window = Window(most=2)
    for identity in (1, 2, 3):
        window.add(identity, Routed(0, 0), now_ms=0)
    assert [window.find(n, now_ms=1) is not None for n in (1, 2, 3)] == [False, True, True]
    assert window.evicted_early == 1


def test_what_is_too_old_is_let_go_as_soon_as_something_comes():
    window = Window(keep_ms=1000)
    for identity in range(100):
        window.add(identity, Routed(identity, 0), now_ms=identity)
    window.add(100, Routed(1050, 0), now_ms=1050)
    assert len(window) == 50
    assert window.evicted_early == 0


@pytest.mark.parametrize("bounds", [{"keep_ms": 0}, {"most": 0}])
def test_a_window_without_room_is_an_error(bounds: dict[str, int]):
    with pytest.raises(ValueError, match="positive"):
        Window(**bounds)


STEPS = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 40), st.booleans()), min_size=1, max_size=60
)


@given(STEPS, st.integers(1, 6), st.integers(1, 50))
def test_it_agrees_with_a_list_of_everything_that_was_routed(
    steps: list[tuple[int, int, bool]], most: int, keep_ms: int
):
    window, log, now = Window(keep_ms=keep_ms, most=most), [], 0
    for identity, pause, add in steps:
        now += pause
        known = {i: ms for i, ms in log[-most:] if ms + keep_ms > now}
        found = window.find(identity, now_ms=now)
        assert (found.router_ms if found else None) == known.get(identity)
        if add and found is None:
            log = [(i, ms) for i, ms in log if i != identity and ms + keep_ms > now]
            log.append((identity, now))
            window.add(identity, Routed(now, 0), now_ms=now)
        assert len(window) <= most
