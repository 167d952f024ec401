"""The number of mirrored readers, their rate of connects, and their topics."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operations.mirror.board import Crowded, read_board
from operations.mirror.crowd import MOST_TOPICS, Turnover, Wanted, chosen, probability, wanted
from operations.mirror.rates import Rates

ORIGINAL = Crowded(readers=5_000, connects_per_second=100.0, deliveries_per_second=20_000.0)
RATES = {"news.breaking": 6.0, "live.final": 10.0}


def test_a_tenth_of_the_readers_come_with_a_tenth_of_the_connects() -> None:
    assert wanted(ORIGINAL, RATES, share=0.1, max_readers=1_000) == Wanted(
        readers=500,
        connects_per_second=pytest.approx(10.0),
        topics=("live.final", "news.breaking"),
        # Four messages a second for each reader, of sixteen.
        probability=pytest.approx(0.25),
    )


def test_who_has_a_bound_for_readers_has_it_for_their_coming_and_going() -> None:
    found = wanted(ORIGINAL, RATES, share=0.1, max_readers=50)
    assert (found.readers, found.connects_per_second) == (50, pytest.approx(1.0))


def test_nobody_comes_to_read_nothing() -> None:
    assert wanted(ORIGINAL, {}, share=1.0, max_readers=50).readers == 0


def test_a_reader_has_no_more_topics_than_a_gateway_allows() -> None:
    many = {f"news.n{n}": float(n) for n in range(500)}
    found = wanted(ORIGINAL, many, share=0.1, max_readers=50).topics
    assert len(found) == MOST_TOPICS
    assert found[0] == "news.n499"


@pytest.mark.parametrize(
    ("original", "rate"), [(Crowded(), 10.0), (ORIGINAL, 0.0), (ORIGINAL, 1.0)]
)
def test_where_nothing_is_known_everyone_reads_everything(original: Crowded, rate: float) -> None:
    assert probability(original, rate) == 1.0


@given(st.integers(1, 20), st.floats(0, 1), st.integers())
def test_a_reader_has_one_topic_at_least_and_each_once(n: int, part: float, seed: int) -> None:
    topics = [f"news.n{i}" for i in range(n)]
    found = chosen(topics, part, random.Random(seed))
    assert 1 <= len(found) == len(set(found)) <= n
    assert set(found) <= set(topics)


def test_without_topics_there_is_none_to_choose() -> None:
    assert chosen((), 0.5, random.Random(1)) == []


def crowd(readers: int, connects: float = 0.0) -> Wanted:
    return Wanted(
        readers=readers, connects_per_second=connects, topics=("news.a",), probability=1.0
    )


def test_at_first_they_come_at_the_ramp_s_pace() -> None:
    turnover = Turnover(ramp=50.0)
    here, counts = 0, []
    for _ in range(5):
        come, leave = turnover.step(crowd(120), here, 1.0)
        here += come - leave
        counts.append(here)
    assert counts == [50, 100, 120, 120, 120]


def test_then_as_many_leave_as_come() -> None:
    turnover = Turnover(ramp=50.0)
    steps = [turnover.step(crowd(100, connects=2.5), 100, 1.0) for _ in range(4)]
    assert [come for come, _ in steps] == [2, 3, 2, 3]
    assert all(come == leave for come, leave in steps)


def test_when_fewer_are_wanted_the_others_leave() -> None:
    assert Turnover(ramp=50.0).step(crowd(10), 100, 1.0) == (0, 90)
    assert Turnover(ramp=50.0).step(crowd(0, connects=9.0), 100, 1.0) == (0, 100)


@given(
    st.lists(st.tuples(st.integers(0, 2_000), st.floats(0, 1_000), st.floats(0.01, 5)), max_size=40)
)
def test_there_are_never_more_than_wanted_nor_fewer_than_none(
    steps: list[tuple[int, float, float]],
) -> None:
    turnover = Turnover(ramp=100.0)
    here = 0
    for readers, connects, seconds in steps:
        come, leave = turnover.step(crowd(readers, connects), here, seconds)
        assert 0 <= leave <= here
        # Only earlier readers leave: no new one leaves at once.
        here += come - leave
        assert come >= 0
        assert here <= max(readers, come)


def region(**totals: Any) -> dict[str, Any]:
    return {"name": "oregon", "totals": totals}


def test_a_board_s_regions_are_one_crowd() -> None:
    document = {
        "regions": [
            region(readers=10, connects_per_second=1.5, deliveries_per_second=20.0),
            region(readers=5, connects_per_second=0.5, deliveries_per_second=1.0),
        ]
    }
    assert read_board(document) == Crowded(
        readers=15, connects_per_second=2.0, deliveries_per_second=21.0
    )


def test_a_region_that_does_not_answer_has_no_readers_that_are_known() -> None:
    away = region(readers=10) | {"state": "away", "age_ms": 40_000}
    assert read_board({"regions": [away, region(readers=3)]}) == Crowded(readers=3)


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), True, None, "7", 10**30, [1]])
def test_what_is_no_number_in_bounds_counts_for_nothing(value: Any) -> None:
    wrong = region(readers=value, connects_per_second=value)
    assert read_board({"regions": [wrong, region(readers=3)]}) == Crowded(readers=3)
    with pytest.raises(ValueError, match="not a board: no region reports its readers"):
        read_board({"regions": [wrong]})


@pytest.mark.parametrize(
    "document", [None, [], 7, "x", {}, {"regions": {}}, {"regions": []}, {"regions": [1, {}]}]
)
def test_what_is_no_board_is_reported_as_none(document: Any) -> None:
    with pytest.raises(ValueError, match="not a board"):
        read_board(document)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["regions", "totals", "readers", "connects_per_second"]),
            inner,
            max_size=4,
        )
    ),
)


@given(JSON)
def test_whatever_a_frontdesk_answers_is_a_crowd_or_no_board(document: Any) -> None:
    try:
        found = read_board(document)
    except ValueError:
        return
    assert 0 <= found.readers <= 10**9


def test_a_steady_rate_is_known_at_once_and_forgotten_slowly() -> None:
    rates = Rates(began=0.0)
    for n in range(100):
        rates.note("news.a", 0.1 * n)
    assert rates.per_second(10.0)["news.a"] == pytest.approx(10.0, rel=0.05)
    later = rates.per_second(30.0)["news.a"]
    assert 1.0 < later < 5.0


def test_topics_without_end_are_bounded_and_rare_ones_make_room() -> None:
    rates = Rates(began=0.0, most=10)
    for n in range(50):
        rates.note(f"news.n{n}", 0.0)
    assert len(rates.per_second(1.0)) == 10
    rates.note("news.late", 300.0)
    assert list(rates.per_second(300.0)) == ["news.late"]
