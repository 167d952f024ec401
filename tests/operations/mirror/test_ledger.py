"""The outcome of each message, in both fabrics."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.topics import CLASSES
from operations.mirror.delays import Delays
from operations.mirror.ledger import SIDES, Ledger, Outcome, Side

INF = float("inf")


def heard(ledger: Ledger, identity: int = 1, now: float = 100.0, **fields: Any) -> None:
    ledger.note_original(
        identity,
        **{
            "topic_class": "gold", "taken": now - 0.010, "now": now,
            "watched_here": True, "watched_there": True, **fields,
        },
    )  # fmt: skip


def sent(ledger: Ledger, identity: int = 1, now: float = 100.0, end: Outcome = "taken") -> None:
    ledger.went(identity, "sent", now)
    ledger.went(identity, end, now + 0.001)


def gold(ledger: Ledger, side: Side) -> dict[str, Any]:
    found: dict[str, Any] = ledger.tallies["gold"].document()[side]
    return found


def test_a_message_that_arrives_on_both_sides_is_delivered_on_both() -> None:
    ledger = Ledger()
    heard(ledger)
    ledger.arrived("here", 1, connection=1, now=100.002)
    sent(ledger, now=100.001)
    ledger.arrived("there", 1, connection=1, now=100.007)
    ledger.judge(INF)
    assert ledger.tallies["gold"].document() == {
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
def test_what_is_missing_there_is_told_by_what_came_of_sending_it(end: Outcome) -> None:
    ledger = Ledger(patience=10)
    heard(ledger, now=100)
    ledger.went(1, end, 100)
    ledger.judge(109.9)
    assert gold(ledger, "there")["missing"] == 0
    ledger.judge(110)
    assert gold(ledger, "there")["missing_by_outcome"] == {end: 1}
    assert gold(ledger, "here")["missing"] == 1


def test_what_isn_t_watched_is_neither_delivered_nor_missing() -> None:
    ledger = Ledger()
    heard(ledger, 1, watched_there=False)
    heard(ledger, 2)
    sent(ledger, 1)
    sent(ledger, 2)
    ledger.arrived("there", 1, connection=1, now=101)
    ledger.lost_sight("there")
    ledger.judge(INF)
    assert (gold(ledger, "there")["watched"], gold(ledger, "there")["delay_p50_ms"]) == (0, None)
    assert gold(ledger, "here")["missing"] == 2


def test_a_message_that_came_before_the_observer_was_cut_off_counts() -> None:
    ledger = Ledger()
    heard(ledger)
    ledger.arrived("here", 1, connection=1, now=100.1)
    ledger.lost_sight("here")
    ledger.judge(INF)
    assert (gold(ledger, "here")["watched"], gold(ledger, "here")["delivered"]) == (1, 1)


def test_twice_on_one_connection_is_doubled_and_on_two_is_a_replay() -> None:
    ledger = Ledger()
    for identity in (1, 2):
        heard(ledger, identity)
        sent(ledger, identity)
    for identity, connection in ((1, 1), (1, 1), (2, 1), (2, 2)):
        ledger.arrived("there", identity, connection=connection, now=101)
    ledger.judge(INF)
    assert (gold(ledger, "there")["doubled"], gold(ledger, "there")["delivered"]) == (1, 2)


def test_the_observer_may_be_faster_than_the_mirror() -> None:
    ledger = Ledger()
    ledger.arrived("here", 1, connection=1, now=99.999, fresh=True)
    heard(ledger, now=100, taken=99.990)
    ledger.judge(INF)
    assert gold(ledger, "here")["delivered"] == 1
    assert gold(ledger, "here")["delay_p50_ms"] == pytest.approx(9, rel=0.021)
    assert ledger.unheard == 0


def test_what_only_the_observer_saw_is_unheard_unless_it_is_a_replay() -> None:
    ledger = Ledger(patience=10)
    ledger.arrived("here", 1, connection=1, now=100, fresh=True)
    ledger.arrived("here", 2, connection=1, now=100, fresh=False)
    ledger.arrived("there", 3, connection=1, now=100, fresh=True)
    ledger.judge(110)
    assert ledger.unheard == 1


def test_once_the_mirror_hears_no_more_nothing_is_unheard() -> None:
    ledger = Ledger()
    ledger.arrived("here", 1, connection=1, now=90, fresh=True)
    ledger.arrived("here", 2, connection=1, now=99.9, fresh=True)
    ledger.close(100)
    ledger.arrived("here", 3, connection=1, now=101, fresh=True)
    ledger.judge(INF)
    assert ledger.unheard == 1


def test_another_identity_there_is_the_same_message() -> None:
    ledger = Ledger()
    heard(ledger, 1, identity_there=77)
    sent(ledger)
    ledger.arrived("there", 77, connection=1, now=100.1)
    ledger.judge(INF)
    assert gold(ledger, "there")["delivered"] == 1


def test_at_the_bound_the_oldest_is_judged() -> None:
    ledger = Ledger(most=2)
    for identity in (1, 2, 3):
        heard(ledger, identity)
    assert len(ledger) == 2
    assert gold(ledger, "here")["missing"] == 1


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
    ledger = Ledger(patience=10, most=4)
    once: set[int] = set()
    for n, (what, identity, connection) in enumerate(events):
        now = 100.0 + n
        if what == "heard" and identity not in once:
            once.add(identity)
            heard(ledger, identity, now, topic_class=[*CLASSES][identity % 3])
        elif what in ("sent", "taken", "refused"):
            ledger.went(identity, what, now)  # type: ignore[arg-type]
        elif what in SIDES:
            ledger.arrived(what, identity, connection=connection, now=now)  # type: ignore[arg-type]
        elif what == "cut":
            ledger.lost_sight("there")
        else:
            ledger.judge(now)
    ledger.judge(INF)
    assert len(ledger) == 0
    assert sum(tally.shared for tally in ledger.tallies.values()) == len(once)
    for tally in ledger.tallies.values():
        for side in tally.sides.values():
            assert side.watched == side.delivered + side.missing.total() <= tally.shared
            assert side.delays.count <= tally.shared


@given(st.lists(st.floats(0.0002, 3600), min_size=1, max_size=200), st.floats(0, 1))
def test_a_percentile_is_right_within_two_per_cent(delays: list[float], part: float) -> None:
    found = Delays()
    for delay in delays:
        found.add(delay)
    exact = sorted(delays)[max(1, math.ceil(part * len(delays))) - 1]
    assert found.percentile(part) == pytest.approx(exact, rel=0.0201)


@pytest.mark.parametrize("delay", [-5.0, 0.0, 1e300])
def test_a_delay_that_can_t_be_is_bounded(delay: float) -> None:
    found = Delays()
    found.add(delay)
    assert 0 < (found.percentile(0.5) or 0) <= 90_000


def test_without_delays_there_is_no_percentile() -> None:
    assert Delays().ms(0.5) is None
