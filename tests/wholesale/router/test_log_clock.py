"""The clock of logs, with the steps that a wall clock makes."""

from __future__ import annotations

import pytest

from wholesale.router.log_clock import LogClock

NOON = 1_735_732_800_000
HOUR = 3_600_000


def right(wall_ms: int = NOON, now: float = 0.0) -> LogClock:
    """Return a clock whose wall clock agrees with the store's at ``now``."""
    clock = LogClock()
    clock.compare(wall_ms, now, [wall_ms])
    return clock


def test_it_follows_the_wall_clock():
    clock = right()
    assert [clock.now_ms(NOON + ms, ms / 1000) for ms in (1, 2, 1_000)] == [
        NOON + 1,
        NOON + 2,
        NOON + 1_000,
    ]


def test_nothing_is_known_of_a_clock_that_was_never_compared():
    assert not LogClock().is_right


@pytest.mark.parametrize("ahead_ms", [30_000, -30_000])
def test_half_a_minute_apart_is_right_and_more_is_not(ahead_ms: int):
    clock = LogClock()
    clock.compare(NOON, 0.0, [NOON - ahead_ms])
    assert (clock.is_right, clock.ahead_ms) == (True, ahead_ms)
    beyond = ahead_ms + (1 if ahead_ms > 0 else -1)
    clock.compare(NOON, 0.0, [NOON - beyond])
    assert (clock.is_right, clock.ahead_ms) == (False, beyond)


def test_of_three_nodes_of_the_store_one_may_be_wrong():
    clock = LogClock()
    clock.compare(NOON, 0.0, [NOON + 7 * HOUR, NOON, NOON - 7 * HOUR])
    assert clock.is_right


def test_a_store_without_a_clock_of_its_own_says_nothing_against_ours():
    clock = LogClock()
    clock.compare(NOON, 0.0, [])
    assert (clock.is_right, clock.ahead_ms) == (True, None)


def test_a_small_step_back_is_waited_for_at_nine_tenths_of_the_speed():
    clock = right()
    assert clock.now_ms(NOON + 10_000, 10.0) == NOON + 10_000
    # 20 s back: ten seconds later the wall clock reads 12:00:00.
    assert clock.now_ms(NOON, 20.0) == NOON + 19_000
    assert clock.is_right
    # 200 s after the step both read the same, and from then on it follows.
    assert clock.now_ms(NOON + 190_000, 210.0) == NOON + 190_000
    assert clock.now_ms(NOON + 200_000, 220.0) == NOON + 200_000


@pytest.mark.parametrize("step_ms", [-HOUR, HOUR, -31_000, 31_000])
def test_a_jump_is_not_followed_until_the_store_confirms_it(step_ms: int):
    clock = right()
    assert clock.now_ms(NOON + 1_000 + step_ms, 1.0) == NOON + 1_000
    assert not clock.is_right
    # The store doesn't confirm it: time goes on as before.
    clock.compare(NOON + 6_000 + step_ms, 6.0, [NOON + 6_000])
    assert not clock.is_right
    assert clock.now_ms(NOON + 7_000 + step_ms, 7.0) == NOON + 7_000


def test_a_jump_ahead_that_the_store_confirms_is_followed():
    clock = right()
    clock.now_ms(NOON + HOUR, 1.0)
    clock.compare(NOON + HOUR + 5_000, 6.0, [NOON + HOUR + 5_000])
    assert clock.now_ms(NOON + HOUR + 6_000, 7.0) == NOON + HOUR + 6_000


def test_after_a_jump_back_that_the_store_confirms_time_goes_on_more_slowly():
    # The example of log_clock.py: paused at 12:00:05, and an hour back.
    clock = right()
    clock.now_ms(NOON - HOUR, 0.0)
    clock.compare(NOON - HOUR + 5_000, 5.0, [NOON - HOUR + 5_000])
    assert clock.now_ms(NOON - HOUR + 5_000, 5.0) == NOON + 5_000
    after_ten_minutes = clock.now_ms(NOON - HOUR + 605_000, 605.0)
    assert after_ten_minutes == NOON + 5_000 + 540_000
    after_ten_hours = clock.now_ms(NOON + 9 * HOUR + 60_000, 36_060.0)
    assert after_ten_hours == NOON + 9 * HOUR + 60_000


def test_asked_many_times_in_a_ms_it_goes_on_nevertheless():
    clock = right()
    clock.now_ms(NOON - 20_000, 0.0)
    last = 0
    for tick in range(1, 10_001):
        last = clock.now_ms(NOON - 20_000 + tick // 10, tick / 10_000)
    assert last == NOON + 900


def test_it_is_later_than_what_the_directory_tells():
    clock = right()
    clock.at_least(NOON + 5_000)
    assert clock.now_ms(NOON, 0.0) == NOON + 5_001
    clock.at_least(NOON)
    assert clock.now_ms(NOON, 0.0) == NOON + 5_001


def test_a_clock_that_is_wrong_from_the_start_sets_nothing():
    clock = LogClock()
    clock.compare(NOON + 7 * HOUR, 0.0, [NOON])
    clock.compare(NOON + 1_000, 1.0, [NOON + 1_000])
    assert clock.now_ms(NOON + 1_000, 1.0) == NOON + 1_000
