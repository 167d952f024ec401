"""A router's memory of the messages it has routed."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.messages.envelope import MAX_MS
from wholesale.router.window import FINGERPRINT, IdentityWindow, Routed


def test_what_was_routed_is_found_until_it_is_too_old():
    window = IdentityWindow(keep_ms=1000)
    window.add(7, Routed(5000, 1), now=3.0)
    assert window.find(7, now=3.999) == Routed(5000, 1)
    assert window.find(7, now=4.0) is None


@pytest.mark.parametrize("router_ms", [0, 5_000_000, MAX_MS])
def test_how_long_ago_it_was_has_nothing_to_do_with_the_time_in_its_id(router_ms: int):
    window = IdentityWindow(keep_ms=1000)
    for identity, now in ((1, 3.0), (2, 3.5)):
        window.add(identity, Routed(router_ms, FINGERPRINT), now=now)
    assert window.find(1, now=3.999) == Routed(router_ms, FINGERPRINT)
    window.add(3, Routed(0, 0), now=4.0)
    assert [window.find(n, now=4.0) is not None for n in (1, 2, 3)] == [False, True, True]
    assert len(window) == 2


def test_what_was_never_routed_isnt_found():
    assert IdentityWindow().find(7, now=0.0) is None


def test_the_oldest_goes_when_there_are_too_many():
    window = IdentityWindow(most=2)
    for identity in (1, 2, 3):
        window.add(identity, Routed(0, 0), now=0.0)
    assert [window.find(n, now=0.001) is not None for n in (1, 2, 3)] == [False, True, True]
    assert window.evicted_early == 1


def test_what_is_too_old_is_let_go_as_soon_as_something_comes():
    window = IdentityWindow(keep_ms=1000)
    for identity in range(8):
        window.add(identity, Routed(identity, 0), now=identity / 8)
    window.add(8, Routed(8, 0), now=1.5)
    assert len(window) == 4
    assert window.evicted_early == 0


def test_what_is_remembered_of_a_message_takes_as_much_as_its_id_and_hash_alone_would():
    window = IdentityWindow()
    # Ten years after the boot.
    window.add(7, Routed(MAX_MS, FINGERPRINT), now=3.2e8)
    (packed,) = window._routed.values()
    # CPython allocates memory in pieces of 16 bytes.
    assert -(-sys.getsizeof(packed) // 16) == -(-sys.getsizeof(MAX_MS << 32 | FINGERPRINT) // 16)


@pytest.mark.parametrize("bounds", [{"keep_ms": 0}, {"most": 0}])
def test_a_window_without_room_is_an_error(bounds: dict[str, int]):
    with pytest.raises(ValueError, match="positive"):
        IdentityWindow(**bounds)


# An identity; a pause in eighths of a second (exact in binary and in ms); the jump of ids' clock in
# ms during the pause; whether the message is routed.
STEPS = st.lists(
    st.tuples(
        st.integers(0, 8),
        st.integers(0, 40),
        st.sampled_from([0, 0, 0, 3_600_000, -3_600_000]),
        st.booleans(),
    ),
    min_size=1,
    max_size=60,
)


@given(STEPS, st.integers(1, 6), st.integers(1, 50))
def test_it_agrees_with_a_list_of_everything_that_was_routed(
    steps: list[tuple[int, int, int, bool]], most: int, keep: int
):
    window = IdentityWindow(keep_ms=keep * 125, most=most)
    # Identity, time of routing, and the time in its id.
    routed: list[tuple[int, int, int]] = []
    now, wall_ms = 0, 1_790_000_000_000
    for identity, pause, jump, add in steps:
        now += pause
        wall_ms += pause * 125 + jump
        known = {i: ms for i, at, ms in routed[-most:] if at + keep > now}
        found = window.find(identity, now=now / 8)
        assert (found.router_ms if found else None) == known.get(identity)
        if add and found is None:
            routed = [one for one in routed if one[0] != identity and one[1] + keep > now]
            routed.append((identity, now, wall_ms))
            window.add(identity, Routed(wall_ms, 0), now=now / 8)
        assert len(window) <= most
