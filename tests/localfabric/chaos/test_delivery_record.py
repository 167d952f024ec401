import pytest
from hypothesis import given
from hypothesis import strategies as st

from localfabric.chaos.delivery_record import (
    Arrival,
    DeliveryDelays,
    DeliveryRecord,
    ReaderProfile,
    RecordedConnection,
    RecordedMessage,
    Sort,
)
from newsfabric.topics import TopicClass

ANN = ReaderProfile(name="ann", habit="staying", topics=frozenset({"news.world"}))
BOB = ReaderProfile(name="bob", habit="roaming", topics=frozenset({"news.world", "live.final"}))


def _record() -> DeliveryRecord:
    return DeliveryRecord([ANN, BOB])


def _send(
    record: DeliveryRecord, n: int, *, klass: TopicClass = "silver", receipted: float | None = 1.1
) -> RecordedMessage:
    message = RecordedMessage(
        n=n, topic="news.world", klass=klass, region="oregon", sent=1.0, receipted=receipted
    )
    record.sent(message)
    return message


def _arrive(
    record: DeliveryRecord, reader: ReaderProfile, n: int, *, sort: Sort = "new", at: float = 1.2
) -> None:
    record.arrived(Arrival(reader.name, 1, n, at, sort))


def test_what_every_subscribed_reader_had_once_is_paid() -> None:
    record = _record()
    _send(record, 0)
    _arrive(record, ANN, 0)
    _arrive(record, BOB, 0)
    account = record.account()
    assert (account.owed, account.paid, account.wrong) == (2, 2, ())
    assert account.kept
    assert record.settled()


def test_a_receipted_message_that_a_reader_never_had_is_lost_to_that_reader() -> None:
    record = _record()
    _send(record, 0)
    _arrive(record, BOB, 0)
    (wrong,) = record.account().wrong
    assert (wrong.n, wrong.what, wrong.readers) == (0, "lost", ("ann",))
    assert not record.account().kept
    assert not record.settled()


def test_a_message_without_a_receipt_is_owed_to_nobody() -> None:
    record = _record()
    _send(record, 0, receipted=None)
    account = record.account()
    assert (account.owed, account.unreceipted, account.wrong) == (0, 1, ())
    assert not record.settled()


def test_a_rejected_message_is_owed_to_nobody() -> None:
    record = _record()
    _send(record, 0).rejected = "too_large"
    account = record.account()
    assert (account.owed, account.rejected, account.receipted) == (0, 1, 0)


def test_missing_bronze_is_reported_and_breaks_nothing() -> None:
    record = _record()
    _send(record, 0, klass="bronze")
    account = record.account()
    assert (account.missing_bronze, account.paid, account.owed) == (2, 0, 2)
    assert account.kept


def test_a_second_delivery_on_one_connection_is_a_double_also_of_bronze() -> None:
    record = _record()
    _send(record, 0, klass="bronze")
    _arrive(record, ANN, 0)
    _arrive(record, ANN, 0, sort="double")
    (wrong,) = record.account().wrong
    assert (wrong.what, wrong.readers) == ("doubled", ("ann",))


def test_the_same_message_under_two_identities_is_a_double() -> None:
    record = _record()
    _send(record, 0)
    for _ in range(2):
        _arrive(record, ANN, 0)
    assert [wrong.what for wrong in record.account().wrong if wrong.readers == ("ann",)] == [
        "doubled"
    ]


def test_a_repeat_after_a_reconnect_is_no_double() -> None:
    record = _record()
    _send(record, 0)
    _arrive(record, ANN, 0)
    _arrive(record, BOB, 0)
    _arrive(record, ANN, 0, sort="repeat", at=9.0)
    account = record.account()
    assert (account.repeats, account.wrong) == (1, ())


def test_a_delivery_may_be_entered_before_its_publisher_holds_the_receipt() -> None:
    record = _record()
    message = _send(record, 0, receipted=None)
    _arrive(record, ANN, 0)
    _arrive(record, BOB, 0)
    message.receipted = 7.0
    assert record.settled()
    assert record.account().paid == 2


def test_what_a_user_has_dismissed_is_owed_to_those_of_its_devices_who_had_it() -> None:
    record = _record()
    _send(record, 0)
    _arrive(record, BOB, 0)
    record.dismissed(0)
    account = record.account()
    assert (account.owed, account.paid, account.wrong) == (1, 1, ())
    _arrive(record, ANN, 0)
    assert (record.account().owed, record.account().paid) == (2, 2)


def test_it_isnt_over_before_a_device_heard_of_what_it_dismissed() -> None:
    record = _record()
    _send(record, 0)
    for reader in (ANN, BOB):
        _arrive(record, reader, 0)
    record.dismissed(0)
    assert not record.settled()
    assert (record.account().dismissed, record.account().unheard) == (1, 1)
    record.dismissal_seen(0)
    assert record.settled()
    assert (record.account().dismissed, record.account().unheard) == (1, 0)


def test_what_waits_for_a_reader_who_is_away_isnt_late() -> None:
    page = ReaderProfile(name="page", habit="page", topics=ANN.topics, goes_away=True)
    record = DeliveryRecord([ANN, page])
    _send(record, 0)
    _arrive(record, ANN, 0, at=1.5)
    _arrive(record, page, 0, at=9.0)
    assert record.delays() == [0.5]
    assert record.account().paid == 2


def test_delays_count_from_the_first_try() -> None:
    record = _record()
    _send(record, 0, klass="gold", receipted=6.0)
    _arrive(record, ANN, 0, at=5.0)
    _arrive(record, BOB, 0, at=5.5)
    delays = record.account().delays["gold"]
    assert (delays.count, delays.p50, delays.worst) == (2, 4.5, 4.5)
    assert record.delays(since=1.5) == []
    assert record.delays(klass="silver") == []


def test_where_a_reader_was_connected_meanwhile() -> None:
    record = _record()
    first, second, third = (RecordedConnection(n, 10.0 * n, f"ws://{n}") for n in (1, 2, 3))
    for connection in (first, second, third):
        record.connected("ann", connection)
    assert record.connections("ann", since=15.0, until=25.0) == [first, second]
    assert record.connections("ann", since=5.0, until=9.0) == []


@given(st.lists(st.floats(0, 100), min_size=1))
def test_quantiles_are_samples_and_in_order(samples: list[float]) -> None:
    delays = DeliveryDelays.of(samples)
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
    record = _record()
    for n in range(5):
        _send(record, n, receipted=1.0 if n in receipted else None)
    had: set[tuple[str, int]] = set()
    for reader, n in arrivals:
        sort: Sort = "repeat" if (reader, n) in had else "new"
        had.add((reader, n))
        record.arrived(Arrival(reader, 1, n, 2.0, sort))
    account = record.account()
    lost = sum(len(wrong.readers) for wrong in account.wrong)
    assert account.owed == 2 * len(receipted)
    assert account.paid == len({(r, n) for r, n in had if n in receipted})
    assert account.paid + lost == account.owed
    assert account.repeats + len(had) == len(arrivals)


def test_no_samples_have_no_delays() -> None:
    assert DeliveryDelays.of([]) is None
    with pytest.raises(KeyError):
        _record().account().delays["gold"]
