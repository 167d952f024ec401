"""The outcome of each message, in both fabrics."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.topics import CLASSES
from operations.mirror.delays import DelayHistogram
from operations.mirror.share_record import SIDES, Outcome, ShareRecord, Side

INF = float("inf")


def heard(record: ShareRecord, identity: int = 1, now: float = 100.0, **fields: Any) -> None:
    record.note_original(
        identity,
        **{
            "topic_class": "gold", "taken": now - 0.010, "now": now,
            "watched_here": True, "watched_there": True, **fields,
        },
    )  # fmt: skip


def sent(
    record: ShareRecord, identity: int = 1, now: float = 100.0, end: Outcome = "taken"
) -> None:
    record.went(identity, "sent", now)
    record.went(identity, end, now + 0.001)


def gold(record: ShareRecord, side: Side) -> dict[str, Any]:
    found: dict[str, Any] = record.by_class["gold"].class_document()[side]
    return found


def test_a_message_that_arrives_on_both_sides_is_delivered_on_both() -> None:
    record = ShareRecord()
    heard(record)
    record.arrived("here", 1, connection=1, now=100.002)
    sent(record, now=100.001)
    record.arrived("there", 1, connection=1, now=100.007)
    record.judge(INF)
    assert record.by_class["gold"].class_document() == {
        "shared": 1,
        "outcomes": {"taken": 1},
        "here": {
            "watched": 1, "delivered": 1, "missing": 0, "missing_by_outcome": {}, "doubled": 0,
            "delay_p50_ms": pytest.approx(12, rel=0.021),
            "delay_p99_ms": pytest.approx(12, rel=0.021),
        },
        "there": {
            "watched": 1, "delivered": 1, "missing": 0, "missing_by_outcome": {}, "doubled": 0,
            "delay_p50_ms": pytest.approx(6, rel=0.021),
            "delay_p99_ms": pytest.approx(6, rel=0.021),
        },
    }  # fmt: skip


@pytest.mark.parametrize("end", ["taken", "dropped", "refused", "unconfirmed"])
def test_what_is_missing_there_is_reported_by_what_came_of_sending_it(end: Outcome) -> None:
    record = ShareRecord(patience=10)
    heard(record, now=100)
    record.went(1, end, 100)
    record.judge(109.9)
    assert gold(record, "there")["missing"] == 0
    record.judge(110)
    assert gold(record, "there")["missing_by_outcome"] == {end: 1}
    assert gold(record, "here")["missing"] == 1


def test_what_isn_t_watched_is_neither_delivered_nor_missing() -> None:
    record = ShareRecord()
    heard(record, 1, watched_there=False)
    heard(record, 2)
    sent(record, 1)
    sent(record, 2)
    record.arrived("there", 1, connection=1, now=101)
    record.lost_sight("there")
    record.judge(INF)
    assert (gold(record, "there")["watched"], gold(record, "there")["delay_p50_ms"]) == (0, None)
    assert gold(record, "here")["missing"] == 2


def test_a_message_that_came_before_the_observer_was_cut_off_counts() -> None:
    record = ShareRecord()
    heard(record)
    record.arrived("here", 1, connection=1, now=100.1)
    record.lost_sight("here")
    record.judge(INF)
    assert (gold(record, "here")["watched"], gold(record, "here")["delivered"]) == (1, 1)


def test_twice_on_one_connection_is_doubled_and_on_two_is_a_replay() -> None:
    record = ShareRecord()
    for identity in (1, 2):
        heard(record, identity)
        sent(record, identity)
    for identity, connection in ((1, 1), (1, 1), (2, 1), (2, 2)):
        record.arrived("there", identity, connection=connection, now=101)
    record.judge(INF)
    assert (gold(record, "there")["doubled"], gold(record, "there")["delivered"]) == (1, 2)


def test_the_observer_may_be_faster_than_the_mirror() -> None:
    record = ShareRecord()
    record.arrived("here", 1, connection=1, now=99.999, fresh=True)
    heard(record, now=100, taken=99.990)
    record.judge(INF)
    assert gold(record, "here")["delivered"] == 1
    assert gold(record, "here")["delay_p50_ms"] == pytest.approx(9, rel=0.021)
    assert record.unheard == 0


def test_what_only_the_observer_saw_is_unheard_unless_it_is_a_replay() -> None:
    record = ShareRecord(patience=10)
    record.arrived("here", 1, connection=1, now=100, fresh=True)
    record.arrived("here", 2, connection=1, now=100, fresh=False)
    record.arrived("there", 3, connection=1, now=100, fresh=True)
    record.judge(110)
    assert record.unheard == 1


def test_once_the_mirror_hears_no_more_nothing_is_unheard() -> None:
    record = ShareRecord()
    record.arrived("here", 1, connection=1, now=90, fresh=True)
    record.arrived("here", 2, connection=1, now=99.9, fresh=True)
    record.close(100)
    record.arrived("here", 3, connection=1, now=101, fresh=True)
    record.judge(INF)
    assert record.unheard == 1


def test_another_identity_there_is_the_same_message() -> None:
    record = ShareRecord()
    heard(record, 1, identity_there=77)
    sent(record)
    record.arrived("there", 77, connection=1, now=100.1)
    record.judge(INF)
    assert gold(record, "there")["delivered"] == 1


def test_at_the_bound_the_oldest_is_judged() -> None:
    record = ShareRecord(most=2)
    for identity in (1, 2, 3):
        heard(record, identity)
    assert len(record) == 2
    assert gold(record, "here")["missing"] == 1


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["heard", "sent", "taken", "refused", "here", "there", "cut", "judge"]),
        st.integers(0, 6),
        st.integers(1, 2),
    ),
    max_size=60,
)


@given(EVENTS)
def test_every_watched_message_is_delivered_or_missing_and_never_both(
    events: list[tuple[str, int, int]],
) -> None:
    record = ShareRecord(patience=10, most=4)
    once: set[int] = set()
    for n, (what, identity, connection) in enumerate(events):
        now = 100.0 + n
        if what == "heard" and identity not in once:
            once.add(identity)
            heard(record, identity, now, topic_class=[*CLASSES][identity % 3])
        elif what in ("sent", "taken", "refused"):
            record.went(identity, what, now)  # type: ignore[arg-type]
        elif what in SIDES:
            record.arrived(what, identity, connection=connection, now=now)  # type: ignore[arg-type]
        elif what == "cut":
            record.lost_sight("there")
        else:
            record.judge(now)
    record.judge(INF)
    assert len(record) == 0
    assert sum(class_sums.shared for class_sums in record.by_class.values()) == len(once)
    for class_sums in record.by_class.values():
        for side in class_sums.sides.values():
            assert side.watched == side.delivered + side.missing.total() <= class_sums.shared
            assert side.delays.count <= class_sums.shared


@given(st.lists(st.floats(0.0002, 3600), min_size=1, max_size=200), st.floats(0, 1))
def test_a_percentile_is_right_within_two_per_cent(delays: list[float], part: float) -> None:
    found = DelayHistogram()
    for delay in delays:
        found.add(delay)
    exact = sorted(delays)[max(1, math.ceil(part * len(delays))) - 1]
    assert found.percentile(part) == pytest.approx(exact, rel=0.0201)


@pytest.mark.parametrize("delay", [-5.0, 0.0, 1e300])
def test_a_delay_that_can_t_be_is_bounded(delay: float) -> None:
    found = DelayHistogram()
    found.add(delay)
    assert 0 < (found.percentile(0.5) or 0) <= 90_000


def test_without_delays_there_is_no_percentile() -> None:
    assert DelayHistogram().ms(0.5) is None
