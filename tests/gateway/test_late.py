"""What is so late that its other copies are looked up, and whether one of them was given here."""

from __future__ import annotations

import pytest
from envelopes import START_MS, envelope

from gateway.late import clusters, given, is_late, span_of
from gateway.logs import Logs
from newsfabric.envelope import Envelope
from newsfabric.store.logs import DirectoryRow, Log

OREGON = Log("oregon", "oregon-router-1", START_MS)
DUBLIN = Log("dublin", "dublin-router-1", START_MS)
HOUR = 3_600_000


def known(*rows: DirectoryRow) -> Logs:
    """Of a gateway that began when the routers did, with this directory."""
    logs = Logs(START_MS)
    logs.begin(rows, now=0.0)
    return logs


def copy(number: int, log: Log, seq: int, **fields: object) -> Envelope:
    """Message ``number`` as ``log`` has it."""
    place = {"origin": log.region, "router": log.router, "epoch": log.epoch, "seq": seq}
    return envelope(number, **place, **fields)


@pytest.mark.parametrize(("age_ms", "late"), [(-5_000, False), (120_000, False), (120_001, True)])
def test_a_message_is_late_when_it_is_older_than_two_minutes(age_ms: int, late: bool) -> None:
    assert is_late(envelope(1, at=7_000), START_MS + 7_000 + age_ms) is late


def test_copies_were_routed_thirteen_minutes_before_the_first_or_after_the_last_at_most() -> None:
    late = [envelope(1, at=60_000), envelope(2, at=0), envelope(3, at=90_000)]
    # 750 s, and clocks that differ by 30 s.
    assert span_of(late) == (START_MS - 780_000, START_MS + 90_000 + 780_000)


def test_no_copy_was_routed_before_the_beginning_of_time() -> None:
    assert span_of([envelope(1, at=-START_MS + 5_000)]) == (0, 785_000)


def test_a_message_was_given_if_another_copy_was() -> None:
    logs = known()
    logs.saw(OREGON, 3)
    late, other = copy(7, DUBLIN, 9), copy(7, OREGON, 3)
    assert given([late], [late, other], logs) == {late.identity}


def test_the_late_copy_itself_says_nothing() -> None:
    # As when its number was noted meanwhile, or is past.
    logs = known(DirectoryRow(DUBLIN, low=9))
    late = copy(7, DUBLIN, 9)
    assert logs.gave(DUBLIN, 9)
    assert given([late], [late], logs) == set()


def test_another_number_of_the_same_log_is_another_copy() -> None:
    logs = known()
    logs.saw(DUBLIN, 4)
    late = copy(7, DUBLIN, 9)
    assert given([late], [copy(7, DUBLIN, 4), late], logs) == {late.identity}


def test_a_copy_that_was_past_when_this_gateway_began_counts() -> None:
    logs = known(DirectoryRow(OREGON, low=3))
    late = copy(7, DUBLIN, 9)
    assert given([late], [late, copy(7, OREGON, 3)], logs) == {late.identity}
    assert given([late], [late, copy(7, OREGON, 4)], logs) == set()


def test_a_copy_in_a_log_of_long_ago_that_isnt_known_counts_as_past() -> None:
    late = copy(7, DUBLIN, 9)
    old = Log("oregon", "oregon-router-1", START_MS - 6 * HOUR - 30_001)
    young = old._replace(epoch=START_MS - 6 * HOUR - 30_000)
    assert given([late], [copy(7, old, 3)], known()) == {late.identity}
    assert given([late], [copy(7, young, 3)], known()) == set()


def test_a_copy_that_wasnt_seen_or_is_void_was_given_to_nobody() -> None:
    logs = known()
    logs.saw(OREGON, 1)
    logs.skip(OREGON, 2, 2)
    late = copy(7, DUBLIN, 9)
    assert logs.has(OREGON, 2)
    assert given([late], [copy(7, OREGON, 2), copy(7, OREGON, 3)], logs) == set()


def test_messages_are_told_apart() -> None:
    logs = known()
    logs.saw(OREGON, 1)
    late = [copy(number, DUBLIN, number) for number in (7, 8)]
    # Number 1 of Oregon is a copy of message 8; message 6 isn't late.
    stored = [*late, copy(8, OREGON, 1), copy(6, OREGON, 1)]
    assert given(late, stored, logs) == {late[1].identity}


def test_of_two_copies_that_are_late_together_neither_was_given() -> None:
    late = [copy(7, DUBLIN, 9), copy(7, OREGON, 3)]
    assert given(late, late, known()) == set()


def test_messages_that_lie_hours_apart_are_looked_up_apart():
    hours = [envelope(n, at=at) for n, at in ((1, 0), (2, 1_560_000), (3, 3_120_001))]
    assert [[one.seq for one in group] for group in clusters(reversed(hours))] == [[1, 2], [3]]
    assert list(clusters([])) == []
