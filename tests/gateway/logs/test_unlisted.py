"""Logs that are heard of but in no directory: reported to operators, and accepted nevertheless."""

from __future__ import annotations

from envelopes import START_MS

from gateway.logs.logs import Logs
from gateway.logs.unlisted import Unlisted
from newsfabric.store.logs import DirectoryRow, Log

LOG = Log("dublin", "dublin-router-9", START_MS)
OTHER = Log("dublin", "dublin-router-8", START_MS - 1)


def heard(*logs: Log) -> Logs:
    known = Logs()
    for log in logs:
        known.note_report(log, 3, 3, sent_ms=START_MS, now=0.0)
    return known


def test_a_log_is_reported_once_that_stays_out_of_the_directory_for_a_minute_of_reads():
    logs, unlisted = heard(LOG, OTHER), Unlisted()
    assert [unlisted.note_directory(logs.unfinished(), now) for now in (0.0, 5.0, 55.0)] == [
        [],
        [],
        [],
    ]
    assert unlisted.note_directory(logs.unfinished(), 60.0) == [OTHER, LOG]
    assert unlisted.note_directory(logs.unfinished(), 65.0) == []
    assert unlisted.logs == [OTHER, LOG]


def test_a_log_whose_row_comes_late_is_none_of_them_any_more():
    logs, unlisted = heard(LOG, OTHER), Unlisted()
    for now in (0.0, 20.0, 40.0, 60.0):
        unlisted.note_directory(logs.unfinished(), now)
    logs.learn(DirectoryRow(LOG, low=3), now=61.0)
    unlisted.note_directory(logs.unfinished(), 65.0)
    assert unlisted.logs == [OTHER]


def test_while_the_directory_cant_be_read_nothing_is_held_against_a_log():
    logs, unlisted = heard(LOG), Unlisted()
    assert unlisted.note_directory(logs.unfinished(), 0.0) == []
    assert unlisted.note_directory(logs.unfinished(), 3_600.0) == []
    assert unlisted.logs == []


def test_logs_that_were_found_in_the_directory_are_listed():
    logs, unlisted = Logs(), Unlisted()
    logs.begin([DirectoryRow(LOG, low=3)], now=0.0)
    for now in (0.0, 20.0, 40.0, 60.0):
        unlisted.note_directory(logs.unfinished(), now)
    assert unlisted.logs == []
