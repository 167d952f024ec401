"""A gateway is ready when it has heard its own region's live logs, with no number missing."""

from __future__ import annotations

import pytest

from gateway.logs.logs import LogLimits, Logs
from gateway.logs.reading import LogReadiness
from newsfabric.store.logs import DirectoryRow, Log

OURS = Log("oregon", "oregon-router-1", 1_000)
THEIRS = Log("dublin", "dublin-router-1", 1_000)


def row(log: Log = OURS, *, version: int = 1, ended: int | None = None) -> DirectoryRow:
    return DirectoryRow(log, version=version, low=40, ended=ended)


@pytest.fixture
def logs() -> Logs:
    made = Logs(2_000, LogLimits())
    made.begin([row()], now=0.0)
    return made


def readiness(logs: Logs, *rows: DirectoryRow) -> LogReadiness:
    made = LogReadiness(logs, "oregon")
    made.note_directory(rows, now=0.0)
    return made


def test_before_the_directory_was_read_it_isnt(logs: Logs) -> None:
    assert not LogReadiness(logs, "oregon").is_reached()


def test_without_a_log_of_ours_that_lives_it_is(logs: Logs) -> None:
    assert readiness(logs, row(THEIRS), row(ended=40)).is_reached()


def test_it_waits_for_what_is_missing_up_to_the_first_tick(logs: Logs) -> None:
    made = readiness(logs, row())
    assert not made.is_reached()
    logs.note_report(OURS, 42, 42, sent_ms=2_000, now=1.0)
    logs.mark_seen(OURS, 41)
    made.note_tick(OURS, 42)
    assert not made.is_reached()
    # A later tick adds nothing to wait for.
    made.note_tick(OURS, 50)
    logs.mark_seen(OURS, 42)
    assert made.is_reached()


@pytest.mark.parametrize(
    ("version", "ended", "at", "ready"),
    [
        pytest.param(1, None, 12.0, False, id="it may still move"),
        pytest.param(1, None, 12.1, True, id="it stands for too long: its router is gone"),
        pytest.param(2, None, 12.1, False, id="it has moved"),
        pytest.param(2, 40, 1.0, True, id="it was closed"),
    ],
)
def test_a_log_counts_as_long_as_its_row_moves(
    logs: Logs, version: int, ended: int | None, at: float, ready: bool
) -> None:
    made = readiness(logs, row())
    made.note_directory([row(version=version, ended=ended)], now=at)
    assert made.is_reached() is ready
