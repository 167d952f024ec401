"""Closing a log: when it is allowed, and where the log ends."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from newsfabric.store.logs import DirectoryRow, Log, Number, NumberState
from wholesale.router.closing import EndSearch, LogWatch

LOG = Log("oregon", "oregon-router-1", 1_735_689_600_000)
ROW = DirectoryRow(LOG, version=4, low=9)


def ended(row: DirectoryRow, states: dict[int, NumberState], *, window: int = 4) -> DirectoryRow:
    search = EndSearch(row, window=window)
    while True:
        first, last = search.next
        found = [Number(n, states[n]) for n in range(first, last + 1) if n in states]
        if search.found(found):
            return search.ending


def test_a_row_that_stood_still_for_a_minute_may_be_closed():
    watch = LogWatch("oregon")
    assert not any(watch.may_close(ROW, at) for at in (500.0, 520.0, 540.0, 559.9))
    assert watch.may_close(ROW, 560.0)


def test_a_row_that_moved_is_watched_anew():
    watch = LogWatch("oregon")
    assert not any(watch.may_close(ROW, at) for at in (500.0, 530.0, 555.0))
    moved = dataclasses.replace(ROW, version=5)
    assert not any(watch.may_close(moved, at) for at in (559.0, 580.0, 600.0, 618.9))
    assert watch.may_close(moved, 619.0)


def test_what_couldnt_be_looked_at_for_half_a_minute_is_watched_anew():
    watch = LogWatch("oregon")
    assert not any(watch.may_close(ROW, at) for at in (500.0, 505.0))
    # The store was away, so no router could move its row.
    assert not any(watch.may_close(ROW, at) for at in (590.0, 600.0, 625.0, 649.9))
    assert watch.may_close(ROW, 650.0)


def test_neither_another_regions_log_nor_one_that_has_ended_is_closed():
    watch = LogWatch("dublin")
    assert not any(watch.may_close(ROW, at) for at in range(0, 100, 10))
    watch = LogWatch("oregon")
    over = dataclasses.replace(ROW, ended=9)
    assert not any(watch.may_close(over, at) for at in range(0, 100, 10))


def test_a_log_ends_with_its_last_whole_number_and_what_is_missing_before_is_void():
    # 10 was never written, 12 is half, 14 is void, 16 is half.
    states = {
        11: NumberState.MESSAGE,
        12: NumberState.HALF,
        13: NumberState.MESSAGE,
        14: NumberState.VOID,
        15: NumberState.GONE,
        16: NumberState.HALF,
    }
    assert ended(ROW, states) == DirectoryRow(
        LOG, version=5, low=9, ended=15, voids=((10, 10), (12, 12), (14, 14))
    )


def test_a_log_without_any_row_beyond_low_ends_there():
    assert ended(ROW, {}) == DirectoryRow(LOG, version=5, low=9, ended=9)


def test_void_and_half_numbers_alone_dont_lengthen_a_log():
    assert ended(ROW, {10: NumberState.VOID, 11: NumberState.HALF}).ended == 9


def test_the_search_goes_on_behind_every_row_that_shows_that_a_number_was_given_out():
    # Four may be under way: behind the void 13 it looks up to 17, behind 17 up to 21.
    assert ended(ROW, {13: NumberState.VOID, 17: NumberState.MESSAGE}).ended == 17
    assert ended(ROW, {13: NumberState.VOID, 18: NumberState.MESSAGE}).ended == 9


@given(st.lists(st.sampled_from([None, *NumberState]), max_size=60), st.integers(0, 5))
def test_nothing_whole_is_lost_while_gaps_are_shorter_than_the_window(
    rows: list[NumberState | None], low: int
):
    states = {low + n: state for n, state in enumerate(rows, 1) if state is not None}
    row = DirectoryRow(LOG, version=1, low=low)
    found = ended(row, states, window=61)
    whole = [n for n, state in states.items() if state in (NumberState.MESSAGE, NumberState.GONE)]
    voids = {n for first, last in found.voids for n in range(first, last + 1)}
    assert found.ended == max(whole, default=low)
    assert voids == set(range(low + 1, found.ended + 1)) - set(whole)
