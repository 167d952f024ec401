"""The readers' waits after each loss, as the bench counts them."""

from __future__ import annotations

import math

import pytest

from bench.losses import Done, Loss, explain, losses, windows
from localfabric.chaos.delivery_record import (
    Arrival,
    DeliveryRecord,
    ReaderProfile,
    RecordedMessage,
)
from localfabric.world.layout import lay_out
from localfabric.world.options import WorldOptions

READERS = ("oregon-0", "dublin-1")


def books_of(*messages: tuple[float, dict[str, float]]) -> DeliveryRecord:
    """Return the record of messages, each with its send time and each reader's wait."""
    record = DeliveryRecord(
        ReaderProfile(name=name, habit="staying", topics=frozenset({"live.a"})) for name in READERS
    )
    for n, (sent, waits) in enumerate(messages):
        record.sent(
            RecordedMessage(
                n=n,
                topic="live.a",
                klass="gold",
                region="oregon",
                sent=sent,
                receipted=sent + 0.1,
                router="oregon-router-1",
            )
        )
        for reader, wait in waits.items():
            record.arrived(Arrival(reader, 1, n, sent + wait, "new"))
    return record


def done(at: float) -> Done:
    return Done(loss=Loss(name="a router"), at=at, healed=at + 2.0, well=at + 5.0)


def test_a_loss_answers_for_what_was_sent_from_a_second_before_it_until_the_next():
    record = books_of(
        (1.0, {"oregon-0": 0.1, "dublin-1": 0.2}),
        (9.5, {"oregon-0": 0.1, "dublin-1": 1.5}),
        (20.0, {"oregon-0": 0.3, "dublin-1": 0.1}),
    )
    found = windows(record, [done(10.0), done(20.5)])
    assert [window.name for window in found] == ["nothing", "a router", "a router"]
    assert [window.longest for window in found] == pytest.approx([0.2, 1.5, 0.3])
    assert [window.deliveries for window in found] == [2, 2, 2]


def test_what_was_sent_before_the_lost_was_started_again_is_distinguished():
    record = books_of(
        (10.5, {"oregon-0": 0.1, "dublin-1": 0.7}),
        (13.0, {"oregon-0": 2.5, "dublin-1": 0.1}),
    )
    _, window = windows(record, [done(10.0)])
    assert window.longest_away == pytest.approx(0.7)
    assert window.longest == pytest.approx(2.5)


def test_who_never_gets_a_message_waits_for_ever_and_is_counted():
    record = books_of((1.0, {"oregon-0": 0.1}))
    (window,) = windows(record, [])
    assert window.longest == math.inf
    assert window.wrong == 1


def test_the_messages_that_waited_longest_are_reported_with_when_and_where():
    record = books_of(
        (9.5, {"oregon-0": 0.1, "dublin-1": 1.5}), (12.0, {"oregon-0": 0.1, "dublin-1": 0.1})
    )
    lines = list(explain(windows(record, [done(10.0)])[1], record))
    assert lines[1] == (
        "  started again after 2.0 s, all well after 5.0 s; longest of what was sent before it "
        "was started 1.50 s"
    )
    assert lines[2] == (
        "  0 sent -0.50 s in oregon: readers of dublin 1.50 to 1.50 s; readers of oregon "
        "0.10 to 0.10 s; receipt after 0.10 s, oregon-router-1"
    )


def test_a_store_node_is_lost_only_where_others_stand_for_it(tmp_path):
    small = lay_out(WorldOptions(), tmp_path)
    assert [loss.name for loss in losses(small)] == ["a core node"]
    large = lay_out(WorldOptions(core_nodes=3, store="cassandra", store_nodes=3), tmp_path)
    assert [loss.name for loss in losses(large)] == [
        "a core node",
        "another core node",
        "a router",
        "a shovel",
        "a shovel and its keeper",
        "a store node",
    ]
