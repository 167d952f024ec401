"""A gateway's knowledge of one log, as worked examples in numbers. Router's times are in ms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.logs.known_log import KnownLog
from newsfabric.store.logs import DirectoryRow, Log

LOG = Log("oregon", "oregon-router-1", 1_000_000)


class Narrow(KnownLog):
    """A log with a window of six: at most six numbers are under way."""

    window = 6


def known(start: int = 0, seen: tuple[int, ...] = (), low: int = 0) -> KnownLog:
    log = Narrow(LOG, start, last_report_at=1000.0)
    for number in seen:
        log.mark_seen(number)
    log.extent.low = low
    return log


def ended(at: int, *voids: int, low: int = 0, version: int = 9) -> DirectoryRow:
    return DirectoryRow(LOG, version, low, at, tuple((n, n) for n in voids))


def test_a_gateway_begins_at_low_and_at_the_end_of_an_ended_log():
    assert KnownLog.start_for(DirectoryRow(LOG, version=3, low=17)) == 17
    assert KnownLog.start_for(ended(20, 19, low=17)) == 20


def test_what_is_before_the_start_is_past():
    log = known(start=17)
    assert (log.mark, log.is_done(17), log.is_done(18)) == (17, True, False)
    assert not log.has_missing


def test_the_mark_waits_for_the_first_number_that_is_not_seen():
    log = known(seen=(1, 2, 4))
    assert (log.mark, log.seen.top, log.is_done(4)) == (2, 4, True)
    log.mark_seen(3)
    assert log.mark == 4


def test_a_number_that_was_lost_on_the_way_is_missing_as_soon_as_low_is_beyond_it():
    log = known(seen=(1, 2, 4))
    log.note_report(4, 2, sent_ms=1_004_000, now=1004.0)
    assert log.missing() == []
    log.note_report(4, 4, sent_ms=1_005_000, now=1005.0)
    assert log.missing() == [(3, 3)]


def test_what_is_beyond_low_is_missing_once_the_log_has_ended_and_it_is_not_void():
    log = known(seen=(1,), low=1)
    log.learn(ended(4, 2, 3, low=1))
    assert log.missing() == [(4, 4)]
    log.mark_seen(4)
    assert log.is_whole


def test_a_void_number_is_dealt_with_but_was_given_to_nobody():
    log = known(seen=(1,))
    log.skip(2, 2)
    assert (log.is_done(2), log.was_given(2)) == (True, False)
    assert (log.is_done(1), log.was_given(1)) == (True, True)


def test_what_was_given_and_is_void_later_was_given():
    log = known(seen=(2,))
    log.skip(1, 3)
    assert [log.was_given(n) for n in (1, 2, 3)] == [False, True, False]


def test_what_its_router_has_published_stays_a_message_and_what_was_read_beyond_low_may_not():
    log = known(seen=(1,), low=1)
    for number in (1, 3, 4):
        log.note_may_end_void(number)
        log.mark_seen(number)
    log.mark_seen(2)
    assert [log.cannot_end_void(n) for n in (1, 2, 3, 4, 5)] == [True, True, False, False, False]
    log.note_report(4, 3, sent_ms=0, now=0.0)
    assert [log.cannot_end_void(n) for n in (3, 4)] == [True, False]


@pytest.mark.parametrize("in_its_life", [True, False], ids=["it heard of the end", "a successor"])
def test_what_was_read_and_given_and_isnt_in_its_log_when_that_is_closed_stays_doubtful(
    in_its_life: bool,
):
    log = known(seen=(1,), low=1)
    for number in (2, 3, 5):
        log.note_may_end_void(number)
        log.mark_seen(number)
    if not in_its_life:
        log = KnownLog.restore(log.snapshot(), now=0.0)
        # The successor doesn't know which numbers were read and which were received.
        assert [log.cannot_end_void(n) for n in (1, 2, 3, 5)] == [True, False, False, False]
    # Number 4 was never given.
    log.learn(ended(4, 2, 4, low=1))
    assert [log.cannot_end_void(n) for n in (1, 2, 3, 5)] == [True, False, True, False]
    assert list(log.may_end_void) == [(2, 2), (5, 5)]


def test_a_void_number_before_the_start_was_given_to_nobody_either():
    log = known(start=20)
    log.learn(ended(20, 19, low=17))
    assert (log.was_given(19), log.was_given(18)) == (False, True)


def test_an_end_that_was_learnt_does_not_change():
    log = known(seen=(1,))
    log.learn(ended(1))
    log.learn(ended(5, version=10))
    assert log.extent.ended == 1


def test_an_older_row_than_the_one_that_was_read_says_nothing():
    log = known()
    log.learn(DirectoryRow(LOG, version=5, low=9))
    log.learn(ended(3, version=4))
    assert (log.extent.low, log.extent.ended) == (9, None)


def test_a_log_is_silent_two_seconds_after_its_last_tick_unless_it_has_ended():
    log = known()
    log.note_report(0, 0, sent_ms=1_000_000, now=1000.0)
    assert not log.is_silent(now=1002.0)
    assert log.is_silent(now=1002.1)
    log.learn(ended(0))
    assert not log.is_silent(now=1002.1)


def test_of_a_silent_log_all_that_can_be_under_way_is_read():
    log = known(seen=(1, 2, 4), low=1)
    assert log.tail() == [(3, 3), (5, 11)]


def test_what_can_be_missing_was_routed_after_the_newest_number_below_the_mark():
    log = known()
    assert log.whole_ms == 1_000_000
    log.note_report(2, 0, sent_ms=1_020_000, now=1020.0)
    log.mark_seen(2)
    assert log.whole_ms == 1_000_000
    log.note_report(1, 0, sent_ms=1_010_000, now=1021.0)
    log.mark_seen(1)
    assert log.whole_ms == 1_020_000


def test_a_successor_that_was_sent_less_than_was_seen_waits_for_no_void_number():
    log = known(seen=(1, 3))
    log.learn(ended(4, 2))
    new = Narrow.restore(log.snapshot()._replace(seen=((1, 1),)), now=1000.0)
    assert (new.missing(), new.was_given(2)) == ([(3, 4)], False)


def test_a_successor_knows_what_was_seen_above_the_mark_and_what_was_passed_over():
    log = known(seen=(1, 2, 4), low=2)
    log.skip(6, 6)
    log.learn(ended(8, 7, low=2))
    new = Narrow.restore(log.snapshot(), now=1000.0)
    assert new.snapshot() == log.snapshot()
    assert (new.mark, list(new.seen)) == (2, [(1, 2), (4, 4), (6, 7)])
    assert (new.extent.low, new.extent.ended) == (2, 8)
    assert not new.was_given(6)
    new.mark_seen(3)
    assert new.missing() == [(5, 5), (8, 8)]


@given(st.lists(st.integers(1, 40), max_size=60), st.integers(0, 20), st.integers(0, 40))
def test_missing_is_what_exists_and_was_neither_seen_nor_past(
    numbers: list[int], start: int, low: int
):
    log = known(start=start)
    for number in numbers:
        log.mark_seen(number)
    log.extent.low = low
    seen = {*numbers, *range(1, start + 1)}
    wanted = [n for n in range(start + 1, low + 1) if n not in seen]
    assert [n for first, last in log.missing() for n in range(first, last + 1)] == wanted
    # All up to the mark is seen, and the next number isn't.
    assert log.mark == min(set(range(start + 1, 42)) - seen) - 1
    assert log.has_missing is bool(wanted)
