from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.amqp.acks import Ack, Acks


def acks(delivered: int) -> Acks:
    made = Acks()
    for tag in range(1, delivered + 1):
        made.delivered(tag)
    return made


@pytest.mark.parametrize("tag", [0, 5, 7, 2**64 - 1])
def test_a_broker_that_counts_wrongly_is_noticed(tag: int) -> None:
    with pytest.raises(ValueError, match="after 5"):
        acks(5).delivered(tag)


def test_a_run_from_the_oldest_leaves_as_one_multiple_ack() -> None:
    owed = acks(5)
    for tag in (2, 1, 3):
        assert owed.ack(tag)
    assert owed.flush() == [Ack(3, multiple=True)]
    assert owed.outstanding == 2


def test_one_ack_is_no_multiple() -> None:
    owed = acks(2)
    owed.ack(1)
    assert owed.flush() == [Ack(1, multiple=False)]


def test_what_lies_beyond_an_unfinished_delivery_is_acked_singly() -> None:
    owed = acks(5)
    for tag in (1, 2, 4, 5):
        owed.ack(tag)
    assert owed.flush() == [
        Ack(2, multiple=True),
        Ack(4, multiple=False),
        Ack(5, multiple=False),
    ]
    owed.ack(3)
    assert owed.flush() == [Ack(3, multiple=False)]


def test_a_rejected_delivery_holds_up_nothing_and_is_not_acked() -> None:
    owed = acks(3)
    assert owed.reject(2)
    owed.ack(1)
    owed.ack(3)
    assert owed.flush() == [Ack(3, multiple=True)]


def test_the_tag_of_a_multiple_ack_is_never_a_rejected_one() -> None:
    owed = acks(3)
    owed.ack(1)
    owed.ack(2)
    owed.reject(3)
    assert owed.flush() == [Ack(2, multiple=True)]


def test_settling_twice_or_what_never_came_counts_for_nothing() -> None:
    owed = acks(2)
    assert owed.ack(1)
    assert not owed.ack(1)
    assert not owed.reject(1)
    assert not owed.ack(3)
    assert not owed.ack(0)
    assert owed.flush() == [Ack(1, multiple=False)]
    assert owed.flush() == []


class BrokerSide:
    """RabbitMQ's side of acks: section 1.8.3.13 of the specification, as strict as RabbitMQ is."""

    def __init__(self) -> None:
        self.outstanding: set[int] = set()
        self.last = 0

    def take_ack(self, ack: Ack) -> set[int]:
        assert ack.tag in self.outstanding, "an unknown tag closes the channel"
        settled = {t for t in self.outstanding if t <= ack.tag} if ack.multiple else {ack.tag}
        self.outstanding -= settled
        return settled


steps = st.lists(
    st.tuples(
        st.sampled_from(["deliver", "ack", "ack", "ack", "reject", "flush"]), st.integers(0, 50)
    ),
    max_size=200,
)


@given(steps)
def test_nothing_unacked_is_ever_acked_and_in_the_end_all_is(
    steps: list[tuple[str, int]],
) -> None:
    owed, broker = Acks(), BrokerSide()
    acked: set[int] = set()
    seen: set[int] = set()

    def flush() -> None:
        for ack in owed.flush():
            settled = broker.take_ack(ack)
            assert settled <= acked
            seen.update(settled)
        assert seen == acked

    for step, number in steps:
        tag = number % (broker.last + 1)
        if step == "deliver":
            broker.last += 1
            broker.outstanding.add(broker.last)
            owed.delivered(broker.last)
        elif step == "ack" and owed.ack(tag):
            acked.add(tag)
        elif step == "reject" and owed.reject(tag):
            broker.outstanding.remove(tag)
        elif step == "flush":
            flush()
    flush()
    assert owed.outstanding == len(broker.outstanding)


@given(st.permutations(range(1, 30)))
def test_any_order_within_one_flush_is_one_frame(order: list[int]) -> None:
    owed = acks(29)
    for tag in order:
        owed.ack(tag)
    assert owed.flush() == [Ack(29, multiple=True)]
