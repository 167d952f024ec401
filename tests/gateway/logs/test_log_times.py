"""The time of a gateway when clocks are wrong: its own, a router's, or all of a region."""

from __future__ import annotations

import pytest
from envelopes import START_MS

from gateway.logs.log_times import LogTimes
from gateway.logs.logs import Logs
from newsfabric.store.logs import DirectoryRow, Log

HOUR = 3_600_000
YEAR = 365 * 24 * HOUR


def reported(**regions: int) -> LogTimes:
    """Return the times that the regions' routers reported when the monotonic clock read 10 s."""
    times = LogTimes()
    for region, ms in regions.items():
        times.note_report(region, ms, 10.0)
    return times


@pytest.mark.parametrize(
    ("wall", "oregon", "dublin", "certain", "latest"),
    [
        (0, 2_000, 3_000, 0, 3_000),
        (9 * HOUR, 2_000, 3_000, 2_000, 9 * HOUR),
        (0, 2_000, 9 * HOUR, 0, 9 * HOUR),
        (5_000, -9 * HOUR, 3_000, -9 * HOUR, 5_000),
        (-9 * HOUR, 2_000, 3_000, -9 * HOUR, 3_000),
    ],
    ids=["all right", "ours ahead", "a region ahead", "a region behind", "ours behind"],
)
def test_the_earliest_time_is_certain_and_ages_go_by_the_latest(
    wall: int, oregon: int, dublin: int, certain: int, latest: int
):
    times = reported(oregon=START_MS + oregon, dublin=START_MS + dublin)
    assert times.certain_ms(START_MS + wall, 10.0) == START_MS + certain
    assert times.latest_ms(START_MS + wall, 10.0) == START_MS + latest


def test_a_region_that_falls_silent_goes_on():
    times = reported(oregon=START_MS, dublin=START_MS + 1_000)
    times.note_report("dublin", START_MS + 61_000, 70.0)
    assert times.certain_ms(START_MS + HOUR, 70.0) == START_MS + 60_000
    times.note_report("dublin", START_MS + 121_000, 130.0)
    assert times.certain_ms(START_MS + HOUR, 130.0) == START_MS + 120_000


def test_while_no_region_tells_anything_time_stands_still():
    times = reported(oregon=START_MS, dublin=START_MS + 1_000)
    assert times.certain_ms(START_MS + HOUR, 10.5) == START_MS + 500
    assert times.certain_ms(START_MS + HOUR, 3_610.0) == START_MS + 1_000


def test_a_backlog_after_a_cut_takes_nothing_back():
    times = reported(oregon=START_MS, dublin=START_MS)
    times.note_report("oregon", START_MS + HOUR, 3_610.0)
    times.note_report("dublin", START_MS + 1_000, 3_610.0)
    assert times.certain_ms(START_MS + 2 * HOUR, 3_610.0) == START_MS + HOUR


def test_an_earlier_word_of_a_region_takes_nothing_back():
    times = reported(oregon=START_MS)
    times.note_report("oregon", START_MS - 5_000, 11.0)
    assert times.certain_ms(START_MS + HOUR, 11.0) == START_MS


def test_the_latest_time_goes_on_though_a_regions_routers_stood_still():
    times = reported(oregon=START_MS)
    times.note_report("oregon", START_MS + 1_000, 700.0)
    assert times.latest_ms(0, 700.0) == START_MS + 690_000


def test_while_nobody_has_reported_anything_our_own_clock_counts():
    assert LogTimes().certain_ms(START_MS, 10.0) == START_MS
    assert LogTimes().latest_ms(START_MS, 10.0) == START_MS


def test_rows_that_were_found_at_the_start_count_until_a_region_tells_more():
    times = LogTimes()
    # Dublin has been dead for days.
    times.note_row("dublin", START_MS - 50 * HOUR)
    times.note_row("oregon", START_MS - 5_000)
    assert times.certain_ms(START_MS, 10.0) == START_MS - 5_000
    times.note_report("oregon", START_MS - 1_000, 10.0)
    assert times.certain_ms(START_MS, 10.0) == START_MS - 1_000


def test_what_is_past_of_a_region_goes_by_that_regions_report():
    times = reported(oregon=START_MS)
    times.note_row("dublin", START_MS - 50 * HOUR)
    assert times.earliest_begin_ms("oregon", START_MS + HOUR) == START_MS
    assert times.earliest_begin_ms("dublin", START_MS + HOUR) == START_MS - 50 * HOUR
    assert times.earliest_begin_ms("paris", START_MS + HOUR) == START_MS + HOUR
    # No single clock makes more of a region's log past than is certain.
    assert times.earliest_begin_ms("oregon", START_MS - HOUR) == START_MS - HOUR


def test_logs_hear_the_time_from_messages_ticks_and_rows_that_move():
    logs, log = Logs(), Log("oregon", "oregon-router-1", START_MS - 5 * HOUR)

    def certain() -> int:
        return logs.times.certain_ms(START_MS, 0.0) - START_MS

    logs.begin([DirectoryRow(log, version=3)], now=0.0)
    assert certain() == -5 * HOUR
    logs.note_report(log, 4, 4, sent_ms=START_MS - 3_000, now=0.0)
    assert certain() == -3_000
    logs.learn(DirectoryRow(log, START_MS - 2_000), now=0.0)
    assert certain() == -2_000
    # A row that was read before tells nothing.
    logs.learn(DirectoryRow(log, START_MS - 2_000), now=1.0)
    assert certain() == -2_000


def test_a_clock_of_ours_that_is_ahead_makes_no_log_old():
    logs, log = Logs(), Log("oregon", "oregon-router-1", START_MS - 5 * HOUR)
    logs.begin([DirectoryRow(log, START_MS)], now=0.0)
    logs.directory_read(START_MS + 9 * HOUR, now=0.0)
    assert logs.directory_ms == START_MS
    assert not logs.was_given(Log("oregon", "unknown", START_MS - HOUR), 1)


def spread(times: LogTimes) -> int:
    """Return the spread when our own clock is right and the monotonic clock reads 10 s."""
    return times.spread_ms(START_MS, 10.0)


def test_the_spread_is_the_report_furthest_ahead_less_the_one_furthest_behind():
    times = LogTimes()
    assert spread(times) == 0
    times.note_feed("oregon", START_MS, 10.0)
    times.note_feed("dublin", START_MS + 35_000, 15.0)
    assert spread(times) == 30_000
    # Dublin's clocks are right again: its times go on, and their lead shrinks.
    times.note_feed("dublin", START_MS + 300_000, 310.0)
    # A message that has waited in queues looks like one from a clock that is behind.
    times.note_feed("oregon", START_MS + 90_000, 110.0)
    assert spread(times) == 40_000


@pytest.mark.parametrize(
    ("ahead_ms", "expected"), [(600_000, 600_000), (600_001, 600_001 + HOUR), (HOUR, 2 * HOUR)]
)
def test_clocks_that_are_wrong_may_have_been_further_apart_before_they_were_heard(
    ahead_ms: int, expected: int
):
    times = LogTimes()
    times.note_feed("oregon", START_MS, 10.0)
    times.note_feed("dublin", START_MS + ahead_ms, 10.0)
    assert spread(times) == expected


def test_rows_of_the_directory_are_ahead_but_never_behind():
    times = reported(oregon=START_MS)
    times.note_report("oregon", START_MS - 9 * HOUR, 10.0)
    assert spread(times) == 0
    times.note_report("dublin", START_MS + 9 * HOUR, 10.0)
    assert spread(times) == 10 * HOUR


@pytest.mark.parametrize("wall", [500_000, -500_000], ids=["ahead", "behind"])
def test_our_own_clock_counts_as_the_others_do(wall: int):
    times = LogTimes()
    times.note_feed("oregon", START_MS, 10.0)
    assert times.spread_ms(START_MS + wall, 10.0) == 500_000


def test_no_spread_is_more_than_a_day():
    times = LogTimes()
    for ms in (START_MS, START_MS + 1_000 * HOUR):
        times.note_feed("oregon", ms, 10.0)
    assert spread(times) == 24 * HOUR


def test_a_successor_knows_the_spread():
    logs = Logs()
    for region, ms in (("oregon", START_MS - 200_000), ("dublin", START_MS + 300_000)):
        logs.note_report(Log(region, "router", START_MS), 1, 1, sent_ms=ms, now=10.0)
    later = Logs()
    later.restore(logs.snapshot(), now=20.0)
    assert spread(later.times) == 500_000


def test_a_time_has_come_in_a_region_when_anybody_reported_it_or_a_row_of_the_region_did():
    times = reported(oregon=START_MS + 5_000)
    times.note_row("dublin", START_MS + HOUR)
    assert times.reported_ms("oregon", START_MS, 10.0) == START_MS + 5_000
    assert times.reported_ms("dublin", START_MS, 10.0) == START_MS + HOUR
    assert times.reported_ms("oregon", START_MS, 20.0) == START_MS + 15_000


def test_a_successor_knows_the_latest_time():
    logs, log = Logs(), Log("oregon", "oregon-router-1", START_MS)
    logs.note_report(log, 1, 1, sent_ms=START_MS + HOUR, now=10.0)
    later = Logs()
    later.restore(logs.snapshot(), now=20.0)
    assert later.times.latest_ms(0, 20.0) == START_MS + HOUR + 10_000


# Times that no router's clock can read.


@pytest.mark.parametrize("first", [True, False], ids=["at first", "later"])
@pytest.mark.parametrize("region", ["oregon", "nowhere"])
@pytest.mark.parametrize("far", [YEAR, -YEAR], ids=["ahead", "behind"])
def test_a_time_of_another_year_isnt_believed_beside_one_of_today(first, region, far):
    times = LogTimes()
    times.certain_ms(START_MS, 10.0)
    if first:
        times.note_report(region, START_MS + far, 10.0)
    times.note_report("oregon", START_MS - 1_000, 10.0)
    if not first:
        times.note_report(region, START_MS + far, 10.0)
    assert times.latest_ms(START_MS, 10.0) == START_MS
    assert times.certain_ms(START_MS, 10.0) == START_MS - 1_000
    assert times.disbelieved == (far > 0)
    successor = LogTimes()
    successor.certain_ms(START_MS, 20.0)
    successor.restore(times.max_lead_ms, times.known, times.min_lead_ms)
    successor.note_report("oregon", START_MS + 9_000, 20.0)
    assert successor.latest_ms(START_MS + 10_000, 20.0) == START_MS + 10_000
    assert successor.certain_ms(START_MS + 10_000, 20.0) == START_MS + 9_000


@pytest.mark.parametrize("far", [YEAR, -YEAR], ids=["ahead", "behind"])
def test_a_time_of_another_year_spreads_no_clocks(far):
    times = LogTimes()
    times.certain_ms(START_MS, 10.0)
    times.note_feed("nowhere", START_MS + far, 10.0)
    times.note_feed("oregon", START_MS - 1_000, 10.0)
    assert times.spread_ms(START_MS, 10.0) == 1_000


def test_one_that_was_reported_before_our_clock_was_read_isnt_believed_either():
    times = reported(nowhere=START_MS + YEAR, oregon=START_MS)
    assert times.latest_ms(START_MS, 10.0) == START_MS


def test_a_clock_of_ours_that_is_years_behind_believes_the_routers():
    times = LogTimes()
    times.certain_ms(1_000, 10.0)
    times.note_row("oregon", START_MS)
    times.note_report("oregon", START_MS + 1_000, 10.0)
    times.note_report("dublin", START_MS + 2_000, 10.0)
    assert times.latest_ms(1_000, 10.0) == START_MS + 2_000
    assert times.certain_ms(1_000, 10.0) == 1_000
    # Our clock was set right.
    assert times.certain_ms(START_MS + 2_000, 10.0) == START_MS + 1_000


def test_regions_that_somebody_invents_cost_a_bounded_amount():
    times = reported(oregon=START_MS)
    for n in range(1_000):
        times.note_report(f"nowhere-{n}", START_MS, 10.0)
    assert len(times.known) == 64
    assert times.certain_ms(START_MS, 10.0) == START_MS
