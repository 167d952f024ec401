import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.chaos.books import Arrival, Books, Class, Connection, Delays, Message, Reader, Sort

ANN = Reader(name="ann", habit="staying", topics=frozenset({"news.world"}))
BOB = Reader(name="bob", habit="roaming", topics=frozenset({"news.world", "live.final"}))


def _books() -> Books:
    return Books([ANN, BOB])


def _send(
    books: Books, n: int, *, klass: Class = "silver", receipted: float | None = 1.1
) -> Message:
    message = Message(
        n=n, topic="news.world", klass=klass, region="oregon", sent=1.0, receipted=receipted
    )
    books.sent(message)
    return message


def _arrive(books: Books, reader: Reader, n: int, *, sort: Sort = "new", at: float = 1.2) -> None:
    books.arrived(Arrival(reader.name, 1, n, at, sort))


def test_what_every_subscribed_reader_had_once_is_paid() -> None:
    books = _books()
    _send(books, 0)
    _arrive(books, ANN, 0)
    _arrive(books, BOB, 0)
    account = books.account()
    assert (account.owed, account.paid, account.wrong) == (2, 2, ())
    assert account.kept
    assert books.settled()


def test_a_receipted_message_that_a_reader_never_had_is_lost_to_that_reader() -> None:
    books = _books()
    _send(books, 0)
    _arrive(books, BOB, 0)
    (wrong,) = books.account().wrong
    assert (wrong.n, wrong.what, wrong.readers) == (0, "lost", ("ann",))
    assert not books.account().kept
    assert not books.settled()


def test_a_message_without_a_receipt_is_owed_to_nobody() -> None:
    books = _books()
    _send(books, 0, receipted=None)
    account = books.account()
    assert (account.owed, account.unreceipted, account.wrong) == (0, 1, ())
    assert not books.settled()


def test_a_rejected_message_is_owed_to_nobody() -> None:
    books = _books()
    _send(books, 0).rejected = "too_large"
    account = books.account()
    assert (account.owed, account.rejected, account.receipted) == (0, 1, 0)


def test_missing_bronze_is_told_and_breaks_nothing() -> None:
    books = _books()
    _send(books, 0, klass="bronze")
    account = books.account()
    assert (account.missing_bronze, account.paid, account.owed) == (2, 0, 2)
    assert account.kept


def test_a_second_delivery_on_one_connection_is_a_double_also_of_bronze() -> None:
    books = _books()
    _send(books, 0, klass="bronze")
    _arrive(books, ANN, 0)
    _arrive(books, ANN, 0, sort="double")
    (wrong,) = books.account().wrong
    assert (wrong.what, wrong.readers) == ("doubled", ("ann",))


def test_the_same_message_under_two_identities_is_a_double() -> None:
    books = _books()
    _send(books, 0)
    for _ in range(2):
        _arrive(books, ANN, 0)
    assert [wrong.what for wrong in books.account().wrong if wrong.readers == ("ann",)] == [
        "doubled"
    ]


def test_a_repeat_after_a_reconnect_is_no_double() -> None:
    books = _books()
    _send(books, 0)
    _arrive(books, ANN, 0)
    _arrive(books, BOB, 0)
    _arrive(books, ANN, 0, sort="repeat", at=9.0)
    account = books.account()
    assert (account.repeats, account.wrong) == (1, ())


def test_a_delivery_may_be_entered_before_its_publisher_holds_the_receipt() -> None:
    books = _books()
    message = _send(books, 0, receipted=None)
    _arrive(books, ANN, 0)
    _arrive(books, BOB, 0)
    message.receipted = 7.0
    assert books.settled()
    assert books.account().paid == 2


def test_what_a_user_has_dismissed_is_owed_to_those_of_its_devices_who_had_it() -> None:
    books = _books()
    _send(books, 0)
    _arrive(books, BOB, 0)
    books.dismissed(0)
    account = books.account()
    assert (account.owed, account.paid, account.wrong) == (1, 1, ())
    _arrive(books, ANN, 0)
    assert (books.account().owed, books.account().paid) == (2, 2)


def test_it_isnt_over_before_a_device_was_told_of_what_it_dismissed() -> None:
    books = _books()
    _send(books, 0)
    for reader in (ANN, BOB):
        _arrive(books, reader, 0)
    books.dismissed(0)
    assert not books.settled()
    assert (books.account().dismissed, books.account().unheard) == (1, 1)
    books.dismissal_heard(0)
    assert books.settled()
    assert (books.account().dismissed, books.account().unheard) == (1, 0)


def test_what_waits_for_a_reader_who_is_away_isnt_late() -> None:
    page = Reader(name="page", habit="page", topics=ANN.topics, goes_away=True)
    books = Books([ANN, page])
    _send(books, 0)
    _arrive(books, ANN, 0, at=1.5)
    _arrive(books, page, 0, at=9.0)
    assert books.delays() == [0.5]
    assert books.account().paid == 2


def test_delays_count_from_the_first_try() -> None:
    books = _books()
    _send(books, 0, klass="gold", receipted=6.0)
    _arrive(books, ANN, 0, at=5.0)
    _arrive(books, BOB, 0, at=5.5)
    delays = books.account().delays["gold"]
    assert (delays.count, delays.p50, delays.worst) == (2, 4.5, 4.5)
    assert books.delays(since=1.5) == []
    assert books.delays(klass="silver") == []


def test_where_a_reader_was_connected_meanwhile() -> None:
    books = _books()
    first, second, third = (Connection(n, 10.0 * n, f"ws://{n}") for n in (1, 2, 3))
    for connection in (first, second, third):
        books.connected("ann", connection)
    assert books.connections("ann", since=15.0, until=25.0) == [first, second]
    assert books.connections("ann", since=5.0, until=9.0) == []


@given(st.lists(st.floats(0, 100), min_size=1))
def test_quantiles_are_samples_and_in_order(samples: list[float]) -> None:
    delays = Delays.of(samples)
    assert delays is not None
    assert {delays.p50, delays.p99, delays.worst} <= set(samples)
    assert delays.p50 <= delays.p99 <= delays.worst == max(samples)


@given(
    st.lists(st.tuples(st.sampled_from(["ann", "bob"]), st.integers(0, 4)), max_size=30),
    st.sets(st.integers(0, 4)),
)
def test_lost_paid_and_owed_always_add_up(
    arrivals: list[tuple[str, int]], receipted: set[int]
) -> None:
    books = _books()
    for n in range(5):
        _send(books, n, receipted=1.0 if n in receipted else None)
    had: set[tuple[str, int]] = set()
    for reader, n in arrivals:
        sort: Sort = "repeat" if (reader, n) in had else "new"
        had.add((reader, n))
        books.arrived(Arrival(reader, 1, n, 2.0, sort))
    account = books.account()
    lost = sum(len(wrong.readers) for wrong in account.wrong)
    assert account.owed == 2 * len(receipted)
    assert account.paid == len({(r, n) for r, n in had if n in receipted})
    assert account.paid + lost == account.owed
    assert account.repeats + len(had) == len(arrivals)


def test_no_samples_have_no_delays() -> None:
    assert Delays.of([]) is None
    with pytest.raises(KeyError):
        _books().account().delays["gold"]
