"""Exactly once: the records of readers and publishers, and the census of both."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from loadtest.records import (
    GRACE_NS,
    OUTSIDE_NS,
    Census,
    Identities,
    Numbers,
    PublisherRecord,
    ReaderRecord,
    census,
)

SECOND = 1_000_000_000
TOPIC = "news.breaking"
KEY = (TOPIC, "p1")


def sent(count: int = 10, *, unreceipted: int = 0) -> PublisherRecord:
    """Return the record of one message a second from second 10 on."""
    record = PublisherRecord("p1")
    for n in range(count):
        assert record.next(TOPIC) == n
        record.receipted(TOPIC, n, (10 + n) * SECOND)
    for _ in range(unreceipted):
        record.next(TOPIC)
    return record


def reader(numbers: Sequence[int] = range(10), *, since: int = 5) -> ReaderRecord:
    """Return the record of a reader that subscribed at second ``since`` and got these numbers."""
    record = ReaderRecord("AnonymousReader", 0)
    record.subscribed(TOPIC, since * SECOND, resumed=False, recovered=False)
    record.back(since * SECOND)
    for n in numbers:
        assert record.got(KEY, n, agrees=True) == "new"
    return record


def counted(*records: ReaderRecord, by: PublisherRecord | None = None, at: int = 60) -> Census:
    entries = [record.entry(at * SECOND) for record in records]
    # Records may arrive as JSON from other processes.
    entries = json.loads(json.dumps(entries))
    return census(entries, json.loads(json.dumps([(by or sent()).entry()])))


def test_who_got_all_is_owed_all_and_lost_none() -> None:
    found = counted(reader(), reader())
    assert (found.owed, found.lost, found.doubled, found.messages) == (20, 0, 0, 10)
    assert list(found.broken_promises()) == []


def test_what_is_missing_is_lost_also_the_last_one() -> None:
    found = counted(reader([0, 1, 2, 4, 5, 6, 7, 8]))
    assert (found.owed, found.lost) == (10, 2)
    assert found.lost_by == {"AnonymousReader": 2}
    assert list(found.broken_promises()) == ["2 deliveries were lost"]


def test_what_had_not_come_yet_when_a_reader_left_is_late_and_a_hole_before_it_is_lost() -> None:
    entry = reader([0, 1, 3, 4]).entry(60 * SECOND, left=True)
    found = census([entry], [sent().entry()])
    assert (found.owed, found.lost, found.late) == (10, 1, 5)


def test_who_got_nothing_lost_everything() -> None:
    assert counted(reader([])).lost == 10


def test_nothing_from_before_the_subscription_is_owed() -> None:
    found = counted(reader([5, 6, 7, 8, 9], since=14))
    assert (found.owed, found.lost) == (5, 0)


def test_what_was_sent_just_before_a_reader_left_is_not_owed() -> None:
    found = counted(reader([0, 1, 2]), at=10 + 3 + GRACE_NS // SECOND)
    assert (found.owed, found.lost) == (3, 0)


def test_what_was_sent_while_a_reader_was_away_is_owed() -> None:
    record = reader([0, 1])
    record.away(12 * SECOND)
    record.back(16 * SECOND)
    record.subscribed(TOPIC, 16 * SECOND, resumed=True, recovered=True)
    for n in (2, 4, 5, 6, 7, 8, 9):
        record.got(KEY, n, agrees=True)
    found = counted(record)
    assert (found.owed, found.lost, found.gaps) == (10, 1, 0)


def test_who_leaves_while_away_is_owed_only_what_came_before() -> None:
    record = reader([0, 1, 2, 3, 4, 5, 6, 7])
    record.away(18 * SECOND)
    found = counted(record, at=30)
    assert (found.owed, found.lost, found.outside) == (3, 0, 0)


def test_who_came_back_a_moment_ago_has_not_caught_up() -> None:
    record = reader([0, 1, 2, 3, 4, 5, 6, 7])
    record.away(18 * SECOND)
    record.back(29 * SECOND)
    # Disconnected again before it had caught up: the first time counts.
    record.away(30 * SECOND)
    record.back(31 * SECOND)
    assert counted(record, at=32).owed == 3


def test_who_has_no_connection_for_long_is_outside() -> None:
    late = OUTSIDE_NS // SECOND + 31
    gone, pausing, never = reader([]), reader([]), ReaderRecord("AnonymousReader", 30 * SECOND)
    gone.away(30 * SECOND)
    pausing.away(30 * SECOND, pausing=True)
    found = counted(gone, pausing, never, at=late)
    assert found.outside == 2
    assert "2 readers were outside at the end" in list(found.broken_promises())


def test_a_gap_that_the_gateway_admits_is_counted() -> None:
    record = reader()
    record.subscribed(TOPIC, 50 * SECOND, resumed=True, recovered=False)
    assert counted(record).gaps == 1


def test_twice_within_a_subscription_is_doubled() -> None:
    record = reader()
    assert record.got(KEY, 3, agrees=True) == "doubled"
    found = counted(record)
    assert found.doubled_by == {"AnonymousReader": 1}
    assert list(found.broken_promises()) == ["1 deliveries were doubled"]


def test_once_more_after_a_reconnect_is_a_repeat() -> None:
    record = reader()
    record.subscribed(TOPIC, 30 * SECOND, resumed=True, recovered=True)
    assert record.got(KEY, 9, agrees=True) == "repeat"
    assert record.got(KEY, 9, agrees=True) == "doubled"
    found = counted(record)
    assert (found.repeats, found.doubled) == (1, 1)


def test_a_repeat_under_another_identity_is_doubled() -> None:
    record = reader()
    record.subscribed(TOPIC, 30 * SECOND, resumed=True, recovered=True)
    assert record.got(KEY, 9, agrees=False) == "doubled"


def test_a_subscription_of_one_topic_leaves_those_of_others() -> None:
    record = reader()
    record.subscribed("user.1", 30 * SECOND, resumed=False, recovered=True)
    assert record.got(KEY, 9, agrees=True) == "doubled"


def test_a_message_without_receipt_is_owed_to_nobody_and_reported() -> None:
    found = counted(reader(), by=sent(unreceipted=2))
    assert (found.owed, found.unreceipted) == (10, 2)
    assert list(found.broken_promises()) == ["2 messages have no receipt"]


def test_a_run_in_which_nothing_was_owed_has_shown_nothing() -> None:
    assert len(list(census([], []).broken_promises())) == 1


def test_an_identity_that_changes_is_noticed_and_their_number_is_bounded() -> None:
    identities = Identities(most=2)
    assert identities.agrees(KEY, 1, "a")
    assert identities.agrees(KEY, 1, "a")
    assert not identities.agrees(KEY, 1, "b")
    assert identities.agrees(KEY, 2, "c")
    assert identities.agrees(KEY, 3, "d")
    assert identities.agrees(KEY, 1, "forgotten")


@given(st.lists(st.integers(0, 40)))
def test_numbers_are_a_set(added: list[int]) -> None:
    numbers, model = Numbers(), set[int]()
    for number in added:
        assert numbers.add(number) == (number not in model)
        model.add(number)
    again = Numbers(numbers.ranges())
    for some in (numbers, again):
        assert {number for number in range(-1, 42) if number in some} == model
    ends = numbers.ranges()
    assert all(left[1] + 1 < right[0] for left, right in itertools.pairwise(ends))
