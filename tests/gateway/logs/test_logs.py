"""All logs that a gateway knows: where each begins for it, their marks, and positions.

Times are in hours from START, when this gateway began; logs are named by the time they began.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from envelopes import START_MS
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.logs.known_log import KnownLog
from gateway.logs.logs import LogLimits, Logs, ReturningReader
from gateway.wire.position import Copy, Listed, Position, decode, encode, log_hash
from newsfabric.store.logs import DirectoryRow, Log

HOUR = 3_600_000
OREGON = Log("oregon", "oregon-router-1", START_MS)
DUBLIN = Log("dublin", "dublin-router-1", START_MS)


def log(hours: float, *, router: str = "oregon-router-1", ms: int = 0) -> Log:
    """Return a log that began ``hours`` after this gateway."""
    return Log("oregon", router, START_MS + int(hours * HOUR) + ms)


def row(
    log: Log,
    low: int = 0,
    *,
    ended: int | None = None,
    voids: Iterable[int] = (),
    version: int = START_MS,
) -> DirectoryRow:
    return DirectoryRow(log, version, low, ended, tuple((n, n) for n in voids))


def begun(*rows: DirectoryRow, **limits: int) -> Logs:
    logs = Logs(START_MS, LogLimits(**limits))
    logs.begin(rows, now=0.0)
    return logs


def known(logs: Logs, log: Log) -> KnownLog:
    found = logs.find(log)
    assert found is not None
    return found


def position_of(logs: Logs, hours: float = 0.0) -> Position:
    """Return a reader's position ``hours`` after this gateway began."""
    return decode(logs.listing.token(START_MS + int(hours * HOUR)))


def marks(logs: Logs, *of: Log, hours: float = 0.0) -> list[int | None]:
    """Return the marks that a position lists for these logs, None for those left out."""
    listed = position_of(logs, hours).listed
    return [listed[log_hash(one)].mark if log_hash(one) in listed else None for one in of]


# The start of a log.


def test_a_gateway_that_begins_takes_each_log_from_low_or_from_where_it_ended():
    logs = begun(row(OREGON, 17), row(DUBLIN, 17, ended=20))
    for one, first in ((OREGON, 18), (DUBLIN, 21)):
        assert [logs.is_done(one, seq) for seq in (1, first - 1, first)] == [True, True, False]
        assert [logs.was_given(one, seq) for seq in (1, first - 1, first)] == [True, True, False]
    assert logs.missing() == []
    assert marks(logs, OREGON, DUBLIN) == [17, 20]


def test_what_was_closed_away_before_it_began_was_given_to_nobody():
    logs = begun(row(DUBLIN, 17, ended=20, voids=[19]))
    assert [logs.was_given(DUBLIN, seq) for seq in (18, 19, 20)] == [True, False, True]
    assert [logs.cannot_end_void(DUBLIN, seq) for seq in (18, 19, 20)] == [True, False, True]
    assert logs.is_done(DUBLIN, 19)


@pytest.mark.parametrize("by", ["directory", "tick", "message"])
def test_a_log_that_it_hears_of_later_is_expected_from_its_first_number(by: str):
    logs = begun(row(DUBLIN, 5))
    if by == "directory":
        logs.learn(row(OREGON, 4), now=0.0)
    elif by == "tick":
        logs.note_report(OREGON, 4, 4, sent_ms=START_MS, now=0.0)
    else:
        logs.note_report(OREGON, 4, 3, sent_ms=START_MS, now=0.0)
        logs.mark_seen(OREGON, 4)
    last = 3 if by == "message" else 4
    assert known(logs, OREGON).missing() == [(1, last)]
    assert logs.missing() == [(1, last)]
    assert marks(logs, OREGON) == [0]
    assert not logs.was_given(OREGON, 1)


def test_a_log_that_is_known_keeps_its_beginning():
    logs = begun(row(OREGON, 5))
    logs.mark_seen(OREGON, 6)
    logs.begin([DirectoryRow(OREGON, version=START_MS + 4, low=9)], now=0.0)
    assert marks(logs, OREGON) == [6]
    assert logs.missing() == [(7, 9)]


def test_a_log_of_which_only_a_message_came_is_silent_from_the_start():
    logs = begun()
    logs.mark_seen(OREGON, 1)
    assert [one.last_report_at for one in logs] == [-math.inf]


# Unknown logs.


def test_of_a_log_that_isnt_known_nothing_is_here():
    assert not begun().is_done(log(-100), 1)
    assert not begun().is_done(OREGON, 1)


def test_what_isnt_known_and_began_more_than_six_hours_before_is_past_and_settled():
    logs = begun()
    # And half a minute more, for the difference of clocks.
    old, young = log(-6, ms=-30_001), log(-6, ms=-30_000)
    assert (logs.was_given(old, 1), logs.cannot_end_void(old, 1)) == (True, True)
    assert (logs.was_given(young, 1), logs.cannot_end_void(young, 1)) == (False, False)


def test_what_isnt_known_is_past_by_the_time_at_which_the_directory_was_read_last():
    logs = begun()
    one = log(-5)
    assert not logs.was_given(one, 1)
    logs.directory_read(one.epoch + 6 * HOUR + 30_000, now=0.0)
    assert (logs.was_given(one, 1), logs.cannot_end_void(one, 1)) == (False, False)
    logs.directory_read(one.epoch + 6 * HOUR + 30_001, now=0.0)
    assert (logs.was_given(one, 1), logs.cannot_end_void(one, 1)) == (True, True)


def test_what_is_known_is_no_past_because_it_is_old():
    old = log(-100)
    logs = begun(row(old, 5))
    assert [logs.was_given(old, seq) for seq in (5, 6)] == [True, False]
    assert [logs.cannot_end_void(old, seq) for seq in (5, 6)] == [True, False]


# Void numbers.


def test_void_numbers_are_neither_missing_nor_given():
    logs = begun(row(OREGON))
    logs.note_report(OREGON, 4, 4, sent_ms=START_MS, now=0.0)
    logs.mark_seen(OREGON, 1)
    logs.mark_seen(OREGON, 4)
    assert logs.missing() == [(2, 3)]
    logs.skip(OREGON, 2, 2)
    assert logs.missing() == [(3, 3)]
    assert [logs.was_given(OREGON, seq) for seq in (1, 2, 3, 4)] == [True, False, False, True]
    assert [logs.is_done(OREGON, seq) for seq in (1, 2, 3, 4)] == [True, True, False, True]
    assert marks(logs, OREGON) == [2]


def test_a_void_number_that_a_position_covers_is_none_that_its_reader_has():
    logs = begun(row(OREGON), row(DUBLIN))
    logs.mark_seen(OREGON, 1)
    logs.learn(DirectoryRow(DUBLIN, version=START_MS + 4, low=0, ended=2, voids=((1, 1),)), now=0.0)
    position = has({DUBLIN: 2})
    reader = ReturningReader(position, logs)
    assert reader.may_lack([Copy(DUBLIN, 1, START_MS), Copy(OREGON, 1, START_MS)])
    assert not reader.may_lack([Copy(DUBLIN, 2, START_MS), Copy(OREGON, 1, START_MS)])


# Positions.


def has(listed: dict[Log, int], *, hours: float = 0.0) -> Position:
    """Return the position of a reader that has all up to these marks."""
    entries = {log_hash(one): Listed(mark, one.epoch) for one, mark in listed.items()}
    return Position(START_MS + int(hours * HOUR), entries)


def test_a_position_has_the_mark_of_each_log_and_the_time_of_what_comes_after_it():
    logs = begun(row(OREGON, 3), row(DUBLIN))
    logs.note_report(OREGON, 4, 3, sent_ms=START_MS + 7_000, now=7.0)
    logs.mark_seen(OREGON, 4)
    logs.mark_seen(DUBLIN, 2)
    position = decode(logs.listing.token(START_MS + 9_000))
    assert position == Position(
        START_MS + 9_000,
        {
            log_hash(OREGON): Listed(4, START_MS + 7_000),
            log_hash(DUBLIN): Listed(0, START_MS),
        },
    )


def test_logs_that_are_young_or_unfinished_are_listed_and_old_whole_ones_are_left_out():
    old_whole, old_going_on, old_incomplete = (log(-9, router=f"router-{n}") for n in range(3))
    young_whole = log(-5)
    logs = begun(row(old_whole, ended=7), row(old_going_on, 7), row(young_whole, ended=7))
    logs.learn(row(old_incomplete, 1, ended=2), now=0.0)
    every = (old_whole, old_going_on, old_incomplete, young_whole)
    assert marks(logs, *every) == [None, 7, 0, 7]
    logs.mark_seen(old_incomplete, 1)
    logs.mark_seen(old_incomplete, 2)
    # It is whole now; the list is made again when the directory is read.
    logs.directory_read(START_MS + 1_000, now=0.0)
    assert marks(logs, *every) == [None, 7, None, 7]
    logs.learn(row(old_going_on, 7, version=START_MS + 2 * HOUR), now=0.0)
    logs.directory_read(START_MS + 2 * HOUR, now=0.0)
    assert marks(logs, *every, hours=2) == [None, 7, None, None]


def test_a_log_that_is_left_out_counts_as_had_by_its_age():
    # Half a minute for clocks: a log between six hours and that is listed nevertheless.
    for ms, listed in ((-30_001, False), (-30_000, True), (0, True)):
        whole = log(-6, ms=ms)
        position = position_of(begun(row(whole, ended=7)))
        assert (log_hash(whole) in position.listed) is listed
        assert position.covers(whole, 7)


def test_at_most_64_logs_are_listed_and_the_youngest_are_left_out():
    young = [log(-5, ms=n) for n in range(66)]
    logs = begun(*(row(one, ended=7) for one in reversed(young)))
    assert marks(logs, *young) == [7] * 64 + [None] * 2
    # They count as unseen.
    assert not any(position_of(logs).covers(one, 1) for one in young[64:])
    assert position_of(logs).time_ms == START_MS


def test_a_position_says_an_earlier_time_if_one_that_is_left_out_would_count_as_had():
    old = [log(-24, ms=n) for n in range(66)]
    logs = begun(*(row(one, 7) for one in old))
    position = position_of(logs)
    assert position.time_ms == old[64].epoch + 6 * HOUR - 1
    assert [position.covers(one, 7) for one in old] == [True] * 64 + [False] * 2
    # Two of the others end: one log is left out, then none.
    for n, left_out in ((0, 65), (1, None)):
        logs.learn(DirectoryRow(old[n], version=START_MS + 4, low=7, ended=7), now=0.0)
        logs.directory_read(START_MS, now=0.0)
        time_ms = START_MS if left_out is None else old[left_out].epoch + 6 * HOUR - 1
        assert position_of(logs).time_ms == time_ms


def test_a_positions_time_is_an_hour_after_the_directory_was_read_at_most():
    logs = begun()
    times = [position_of(logs, hours).time_ms - START_MS for hours in (0.5, 1, 1.5, 30)]
    assert times == [HOUR // 2, HOUR, HOUR, HOUR]
    logs.directory_read(START_MS + 2 * HOUR, now=0.0)
    assert position_of(logs, 2.5).time_ms - START_MS == 2.5 * HOUR
    assert position_of(logs, 30).time_ms - START_MS == 3 * HOUR
    # The clocks of a region that is heard are behind.
    logs.note_report(OREGON, 1, 1, sent_ms=START_MS + HOUR, now=0.0)
    logs.directory_read(START_MS + 2 * HOUR, now=0.0)
    assert position_of(logs, 30).time_ms - START_MS == 2 * HOUR


def test_a_position_is_sent_again_for_a_second_or_until_something_comes():
    logs = begun(row(OREGON))
    first = logs.listing.token(START_MS + 5_000)
    assert logs.listing.token(START_MS + 5_999) is first
    assert decode(logs.listing.token(START_MS + 6_000)).time_ms == START_MS + 6_000
    # The clock was set back.
    assert decode(logs.listing.token(START_MS + 5_500)).time_ms == START_MS + 5_500
    logs.mark_seen(OREGON, 1)
    assert decode(logs.listing.token(START_MS + 5_501)).time_ms == START_MS + 5_501
    logs.note_report(OREGON, 1, 1, sent_ms=START_MS + 5_000, now=5.0)
    assert decode(logs.listing.token(START_MS + 5_502)).listed == {
        log_hash(OREGON): Listed(1, START_MS + 4_502)
    }
    logs.skip(OREGON, 2, 3)
    assert marks(logs, OREGON) == [3]


SIX = [log(hours, router=router) for hours in (-7, -3, 1) for router in ("a", "b")]
PLACES = st.lists(st.tuples(st.sampled_from(SIX), st.integers(1, 6)), max_size=40)
ROWS = st.lists(
    st.builds(
        lambda log, version, low, more: DirectoryRow(
            log, version, low, None if more is None else low + more
        ),
        st.sampled_from(SIX),
        st.integers(1, 4),
        st.integers(0, 5),
        st.none() | st.integers(0, 2),
    ),
    max_size=12,
)


@given(begins=ROWS, seen=PLACES, learnt=ROWS, hours=st.floats(0, 9))
def test_a_position_covers_what_was_given_without_a_hole_and_nothing_that_is_yet_to_come(
    begins: list[DirectoryRow],
    seen: list[tuple[Log, int]],
    learnt: list[DirectoryRow],
    hours: float,
):
    logs = begun(*begins)
    for one, seq in seen:
        logs.mark_seen(one, seq)
    for entry in learnt:
        logs.learn(entry, now=0.0)
    logs.directory_read(START_MS + int(hours * HOUR), now=0.0)
    position = position_of(logs, hours)
    for known in logs:
        last = max(known.extent.certain, known.seen.top)
        covered = [n for n in range(1, last + 2) if position.covers(known.log, n)]
        if known.is_whole:
            assert covered[: known.extent.certain] == list(range(1, known.extent.certain + 1))
        else:
            assert covered == list(range(1, known.mark + 1))
        assert all(logs.is_done(known.log, n) for n in covered if n <= known.extent.certain)


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["saw", "skip", "heard", "learn", "read"]),
            st.sampled_from(SIX),
            st.integers(1, 9),
            st.integers(0, 3_000),
        ),
        max_size=30,
    )
)
def test_the_token_says_what_was_seen_until_then(steps: list[tuple[str, Log, int, int]]):
    """Parts of the token are kept from one call to the next."""
    logs = begun(*map(row, SIX[:2]))
    wall_ms = START_MS
    for step, one, seq, ms in steps:
        wall_ms += ms
        if step == "saw":
            logs.mark_seen(one, seq)
        elif step == "skip" and logs.find(one) is not None:
            logs.skip(one, seq, seq + 1)
        elif step == "heard":
            logs.note_report(one, seq, seq, sent_ms=wall_ms - 500, now=0.0)
        elif step == "learn":
            logs.learn(DirectoryRow(one, version=wall_ms + seq, low=seq, ended=seq), now=0.0)
        elif step == "read":
            logs.directory_read(wall_ms, now=0.0)
        # The token may be a second old, if nothing has changed since then.
        token = logs.listing.token(wall_ms)
        decoded = decode(token)
        seen = {log_hash(one.log): Listed(one.mark, one.whole_ms) for one in logs}
        listed = {hash_: seen[hash_] for hash_ in decoded.listed}
        assert token == encode(Position(decoded.time_ms, listed))
        assert wall_ms - 1_000 < decoded.time_ms <= wall_ms


# The messages that a reader lacks.

KNOWN = [log(0, router=f"router-{n}") for n in range(3)]
COPIES = st.lists(
    st.builds(
        Copy, st.sampled_from([*KNOWN, log(-9), log(1)]), st.integers(1, 5), st.just(START_MS)
    ),
    max_size=4,
)
LISTED = st.dictionaries(st.sampled_from(KNOWN), st.integers(0, 5))


@given(
    copies=COPIES,
    lows=st.tuples(*[st.integers(0, 4)] * 3),
    seen=st.lists(st.tuples(st.sampled_from(KNOWN), st.integers(1, 5)), max_size=8),
    voids=st.lists(st.tuples(st.sampled_from(KNOWN), st.integers(1, 5)), max_size=2),
    listed=LISTED,
    hours=st.sampled_from([-4.0, 0.0]),
)
@example([], (0, 0, 0), [], [], {}, 0.0)
def test_a_message_is_wanted_if_a_copy_was_given_and_none_is_had_that_stays_one(
    copies: list[Copy],
    lows: tuple[int, ...],
    seen: list[tuple[Log, int]],
    voids: list[tuple[Log, int]],
    listed: dict[Log, int],
    hours: float,
):
    logs = begun(*map(row, KNOWN))
    for one, seq in seen:
        logs.mark_seen(one, seq)
    for one, seq in voids:
        logs.skip(one, seq, seq)
    for one, low in zip(KNOWN, lows, strict=True):
        logs.note_report(one, low, low, sent_ms=START_MS, now=0.0)
    # Of the two unknown logs, log(-9) is past and log(1) is not.
    passed = set(voids) - set(seen)
    given_ = {place for place in seen if place not in passed} | {(log(-9), n) for n in range(6)}
    settled = {(one, n) for one, low in zip(KNOWN, lows, strict=True) for n in range(low + 1)}
    settled |= {(log(-9), n) for n in range(6)}
    position = has(listed, hours=hours)
    covered = {copy[:2] for copy in copies if position.covers(copy.log, copy.seq)}
    # No number given here was read from a store.
    had = covered & (settled | given_)
    wanted = not had and bool({copy[:2] for copy in copies} & given_)
    assert ReturningReader(position, logs).may_lack(copies) is wanted


@pytest.mark.parametrize(
    ("copies", "wanted"),
    [
        ([], False),
        ([(OREGON, 3)], True),
        ([(OREGON, 2)], False),
        # It wasn't given here: it is sent live.
        ([(OREGON, 4)], False),
        # Number 2 of Dublin is covered, but may still become void.
        ([(DUBLIN, 2), (OREGON, 3)], True),
        ([(DUBLIN, 1), (OREGON, 3)], False),
        ([(OREGON, 3), (DUBLIN, 1)], False),
        # The reader got this one elsewhere, and no copy of it was given here.
        ([(DUBLIN, 2), (OREGON, 4)], False),
    ],
)
def test_what_is_wanted_in_numbers(copies: list[tuple[Log, int]], wanted: bool):
    """Oregon has given 1 to 3 here, low 3; Dublin 1, low 1. The reader has 2 of each."""
    logs = begun(row(OREGON, 3), row(DUBLIN, 1))
    position = has({OREGON: 2, DUBLIN: 2})
    assert (
        ReturningReader(position, logs).may_lack([Copy(*place, START_MS) for place in copies])
        is wanted
    )


def test_what_was_given_before_its_log_was_closed_without_it_is_given_to_whoever_joins():
    """Number 5 of Dublin was read at home after its router's death. A position of Dublin, where the
    log is known to have ended at 4, covers it: as void, or by the log's age."""
    for position in (has({DUBLIN: 5}), has({}, hours=7)):
        logs = begun(row(DUBLIN, 4))
        known(logs, DUBLIN).note_may_end_void(5)
        logs.mark_seen(DUBLIN, 5)
        copies, reader = [Copy(DUBLIN, 5, START_MS)], ReturningReader(position, logs)
        assert reader.may_lack(copies)
        assert not reader.has_all(DUBLIN, 5)
        assert reader.has_all(DUBLIN, 4)
        logs.learn(DirectoryRow(DUBLIN, version=START_MS + 9, low=4, ended=4), now=0.0)
        assert reader.may_lack(copies)
        assert not reader.has_all(DUBLIN, 5)


def test_a_reader_has_what_was_given_beyond_low_once_its_log_was_closed_behind_it():
    logs = begun(row(DUBLIN, 4))
    known(logs, DUBLIN).note_may_end_void(5)
    logs.mark_seen(DUBLIN, 5)
    logs.learn(DirectoryRow(DUBLIN, version=START_MS + 9, low=4, ended=6), now=0.0)
    reader = ReturningReader(has({DUBLIN: 5}), logs)
    assert not reader.may_lack([Copy(DUBLIN, 5, START_MS)])
    assert reader.has_all(DUBLIN, 5)


# Memory.


def test_tops_are_the_highest_numbers_seen_or_past_of_logs_that_have_any():
    third = log(1)
    logs = begun(row(OREGON, 5), row(DUBLIN), row(third))
    assert logs.highest_numbers() == {OREGON: 5}
    logs.mark_seen(DUBLIN, 9)
    assert logs.highest_numbers() == {OREGON: 5, DUBLIN: 9}
    logs.skip(OREGON, 6, 7)
    assert logs.highest_numbers() == {OREGON: 7, DUBLIN: 9}
    logs.note_report(third, 3, 3, sent_ms=START_MS, now=0.0)
    assert logs.highest_numbers() == {OREGON: 7, DUBLIN: 9}


def test_tops_are_shared_until_something_is_seen():
    logs = begun(row(OREGON, 5))
    first = logs.highest_numbers()
    assert logs.highest_numbers() is first
    logs.mark_seen(OREGON, 6)
    assert (first, logs.highest_numbers()) == ({OREGON: 5}, {OREGON: 6})


def test_unfinished_are_all_that_arent_whole():
    logs = begun(row(OREGON, 5), row(DUBLIN, ended=5))
    assert [known.log for known in logs.unfinished()] == [OREGON]
    third = log(1)
    logs.learn(row(third), now=0.0)
    assert {known.log for known in logs.unfinished()} == {OREGON, third}
    logs.learn(DirectoryRow(OREGON, version=START_MS + 9, low=5, ended=5), now=0.0)
    logs.directory_read(START_MS, now=0.0)
    assert [known.log for known in logs.unfinished()] == [third]


def test_beyond_a_bound_whole_logs_of_long_ago_are_forgotten_those_that_began_first():
    whole = [log(-20 + n) for n in range(4)]
    logs = begun(*(row(one, ended=7) for one in reversed(whole)), logs=2)
    assert len(logs) == 4
    logs.directory_read(START_MS, now=0.0)
    assert {known.log for known in logs} == set(whole[2:])
    # The answers stay the same, since these logs are past.
    for one in whole:
        assert logs.was_given(one, 7)
        assert logs.cannot_end_void(one, 7)
        assert position_of(logs).covers(one, 7)


def test_what_is_unfinished_young_or_was_closed_with_voids_is_kept_beyond_the_bound():
    unfinished, voids, young = log(-20), log(-19), log(-6)
    gone = log(-9)
    logs = begun(
        row(unfinished, 7),
        row(voids, ended=7, voids=[6]),
        row(young, ended=7),
        row(gone, ended=7),
        logs=1,
    )
    logs.directory_read(START_MS, now=0.0)
    assert {known.log for known in logs} == {unfinished, voids, young}
    assert not logs.was_given(voids, 6)


@given(begins=ROWS, seen=PLACES, voids=PLACES, learnt=ROWS, then=PLACES)
def test_a_successor_goes_on_as_if_it_had_been_there_all_the_time(
    begins: list[DirectoryRow],
    seen: list[tuple[Log, int]],
    voids: list[tuple[Log, int]],
    learnt: list[DirectoryRow],
    then: list[tuple[Log, int]],
):
    logs = begun(*begins)
    for one, seq in seen:
        logs.note_report(one, seq, seq - 1, sent_ms=one.epoch + seq * 10_000, now=0.0)
        logs.mark_seen(one, seq)
    for one, seq in voids:
        if logs.find(one) is not None:
            logs.skip(one, seq, seq)
    for entry in learnt:
        logs.learn(entry, now=0.0)
    successor = Logs(START_MS)
    successor.restore(logs.snapshot(), now=0.0)
    assert successor.snapshot() == logs.snapshot()
    for each in (logs, successor):
        for one, seq in then:
            each.mark_seen(one, seq)
    numbers = [(one, seq) for one in SIX for seq in range(1, 9)]
    for ask in ("is_done", "was_given"):
        answers = [[getattr(each, ask)(*place) for place in numbers] for each in (logs, successor)]
        assert answers[0] == answers[1]
    # The successor doesn't know which numbers were received and which were read.
    assert all(
        logs.cannot_end_void(*place) for place in numbers if successor.cannot_end_void(*place)
    )
    assert successor.missing() == logs.missing()
    assert successor.highest_numbers() == logs.highest_numbers()
    # Times of numbers beyond the mark are forgotten: at most, it reads from an earlier time.
    ours, its = position_of(logs, 2), position_of(successor, 2)
    assert [(hash_, one.mark) for hash_, one in its.listed.items()] == [
        (hash_, one.mark) for hash_, one in ours.listed.items()
    ]
    assert all(its.listed[hash_].whole_ms <= one.whole_ms for hash_, one in ours.listed.items())


def test_what_another_process_has_left_counts_and_the_directory_adds_the_others():
    before = begun(row(OREGON, 3))
    before.mark_seen(OREGON, 5)
    logs = Logs(START_MS + HOUR)
    logs.restore(before.snapshot(), now=0.0)
    logs.begin([DirectoryRow(OREGON, version=START_MS + 9, low=8), row(DUBLIN, 6)], now=0.0)
    oregon = known(logs, OREGON)
    assert (oregon.mark, oregon.missing()) == (3, [(4, 4), (6, 8)])
    assert marks(logs, OREGON, DUBLIN, hours=1) == [3, 6]


# Logs that were forgotten at the bound.


def test_whoever_may_lack_something_of_a_log_that_is_forgotten_doesnt_get_recovered():
    gone, kept = log(-10), log(-1, router="oregon-router-2")
    logs = begun(row(gone, 7, ended=7), row(kept, 3), logs=1)
    old = Position(START_MS - 9 * HOUR, {log_hash(gone): Listed(3, START_MS - 10 * HOUR)})
    assert not ReturningReader(old, logs).may_lack_forgotten()
    logs.directory_read(START_MS, now=0.0)
    assert (logs.find(gone), ReturningReader(old, logs).may_lack_forgotten()) == (None, True)
    # Six hours after it began, every position that doesn't list it covers all of it.
    for hours, may_lack in ((-4.01, True), (-4.0, False)):
        later = Position(START_MS + int(hours * HOUR), {log_hash(kept): Listed(1, START_MS)})
        assert ReturningReader(later, logs).may_lack_forgotten() is may_lack
    lists_it = Position(START_MS, {log_hash(gone): Listed(3, START_MS - 10 * HOUR)})
    assert ReturningReader(lists_it, logs).may_lack_forgotten()
