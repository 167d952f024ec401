"""Exactly once: what readers and publishers write down, and what the census makes of it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from loadtest.books import (
    GRACE_NS,
    OUTSIDE_NS,
    Census,
    Identities,
    Numbers,
    PublisherBook,
    ReaderBook,
    census,
)

SECOND = 1_000_000_000
TOPIC = "news.breaking"
KEY = (TOPIC, "p1")


def sent(count: int = 10, *, unreceipted: int = 0) -> PublisherBook:
    """One message a second from second 10 on."""
    book = PublisherBook("p1")
    for n in range(count):
        assert book.next(TOPIC) == n
        book.receipted(TOPIC, n, (10 + n) * SECOND)
    for _ in range(unreceipted):
        book.next(TOPIC)
    return book


def reader(numbers: Sequence[int] = range(10), *, since: int = 5) -> ReaderBook:
    """Subscribed at second ``since``; it got these."""
    book = ReaderBook("AnonymousReader", 0)
    book.subscribed(TOPIC, since * SECOND, resumed=False, recovered=False)
    book.back(since * SECOND)
    for n in numbers:
        assert book.got(KEY, n, agrees=True) == "new"
    return book


def counted(*books: ReaderBook, by: PublisherBook | None = None, at: int = 60) -> Census:
    entries = [book.entry(at * SECOND) for book in books]
    # They may have come from other processes.
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
    book = reader([0, 1])
    book.away(12 * SECOND)
    book.back(16 * SECOND)
    book.subscribed(TOPIC, 16 * SECOND, resumed=True, recovered=True)
    for n in (2, 4, 5, 6, 7, 8, 9):
        book.got(KEY, n, agrees=True)
    found = counted(book)
    assert (found.owed, found.lost, found.gaps) == (10, 1, 0)


def test_who_leaves_while_away_is_owed_only_what_came_before() -> None:
    book = reader([0, 1, 2, 3, 4, 5, 6, 7])
    book.away(18 * SECOND)
    found = counted(book, at=30)
    assert (found.owed, found.lost, found.outside) == (3, 0, 0)


def test_who_came_back_a_moment_ago_has_not_caught_up() -> None:
    book = reader([0, 1, 2, 3, 4, 5, 6, 7])
    book.away(18 * SECOND)
    book.back(29 * SECOND)
    # Away again before all was there: it counts from the first time.
    book.away(30 * SECOND)
    book.back(31 * SECOND)
    assert counted(book, at=32).owed == 3


def test_who_has_no_connection_for_long_is_outside() -> None:
    late = OUTSIDE_NS // SECOND + 31
    gone, pausing, never = reader([]), reader([]), ReaderBook("AnonymousReader", 30 * SECOND)
    gone.away(30 * SECOND)
    pausing.away(30 * SECOND, pausing=True)
    found = counted(gone, pausing, never, at=late)
    assert found.outside == 2
    assert "2 readers were outside at the end" in list(found.broken_promises())


def test_a_gap_that_the_gateway_admits_is_counted() -> None:
    book = reader()
    book.subscribed(TOPIC, 50 * SECOND, resumed=True, recovered=False)
    assert counted(book).gaps == 1


def test_twice_within_a_subscription_is_doubled() -> None:
    book = reader()
    assert book.got(KEY, 3, agrees=True) == "doubled"
    found = counted(book)
    assert found.doubled_by == {"AnonymousReader": 1}
    assert list(found.broken_promises()) == ["1 deliveries were doubled"]


def test_once_more_after_a_reconnect_is_a_repeat() -> None:
    book = reader()
    book.subscribed(TOPIC, 30 * SECOND, resumed=True, recovered=True)
    assert book.got(KEY, 9, agrees=True) == "repeat"
    assert book.got(KEY, 9, agrees=True) == "doubled"
    found = counted(book)
    assert (found.repeats, found.doubled) == (1, 1)


def test_a_repeat_under_another_identity_is_doubled() -> None:
    book = reader()
    book.subscribed(TOPIC, 30 * SECOND, resumed=True, recovered=True)
    assert book.got(KEY, 9, agrees=False) == "doubled"


def test_a_subscription_of_one_topic_leaves_those_of_others() -> None:
    book = reader()
    book.subscribed("user.1", 30 * SECOND, resumed=False, recovered=True)
    assert book.got(KEY, 9, agrees=True) == "doubled"


def test_a_message_without_receipt_is_owed_to_nobody_and_told() -> None:
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
