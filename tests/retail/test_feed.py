"""The choice of core brokers that feed a box, and the moments at which it changes."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from newsfabric.brokers import watch
from newsfabric.topology import box_sources
from retail.feed import (
    RESTARTS_BEFORE_MOVE,
    SILENT_AFTER,
    Arrivals,
    Command,
    Feeds,
    Move,
    Restart,
    feed_name,
)

A, B, C = (f"amqp://core-{name}/%2F" for name in "abc")
BOTH = frozenset({1, 2})
NONE = frozenset[int]()


def _box_on(*cores: str, of: tuple[str, ...]) -> str:
    """Return the name of a box that starts with these core brokers."""
    return next(box for n in range(100) if box_sources(box := f"box-{n}", of) == cores)


def test_a_box_takes_two_different_core_nodes_and_one_where_there_is_only_one() -> None:
    assert len(set(box_sources("box", [A, B, C]))) == 2
    assert set(box_sources("box", [A, B])) == {A, B}
    assert box_sources("box", [A]) == (A,)


def test_boxes_spread_over_the_core_nodes() -> None:
    first = Counter(box_sources(f"oregon-retail-{n}", [A, B, C])[0] for n in range(300))
    assert min(first[core] for core in (A, B, C)) > 60


def _seconds(
    feeds: Feeds, brings: set[int], seconds: range, *, running: frozenset[int] = BOTH
) -> list[tuple[int, Command]]:
    """Return the feeds' commands in ``seconds``, while ``brings`` deliver something each second."""
    return [
        (second, command)
        for second in seconds
        for command in feeds.check_feeds(
            running, dict.fromkeys(brings, float(second)), float(second)
        )
    ]


def test_a_feed_that_runs_and_brings_something_stays_where_it_is() -> None:
    feeds = Feeds("box", [A, B, C], now=0.0)
    before = feeds.urls
    assert _seconds(feeds, {1, 2}, range(100)) == []
    assert feeds.urls == before


def test_a_silent_core_node_is_left_for_one_that_no_other_feed_uses() -> None:
    feeds = Feeds(_box_on(A, B, of=(A, B, C)), [A, B, C], now=0.0)
    only_second = frozenset({2})
    brought = {2: SILENT_AFTER}
    assert feeds.check_feeds(only_second, brought, now=SILENT_AFTER) == []
    assert feeds.check_feeds(only_second, brought, now=SILENT_AFTER + 0.1) == [Move(1, C)]
    assert feeds.urls == {1: C, 2: B}


def test_the_next_one_gets_as_long_before_it_is_left_too() -> None:
    feeds = Feeds(_box_on(A, B, of=(A, B, C)), [A, B, C], now=0.0)
    moved = SILENT_AFTER + 1
    assert feeds.check_feeds(frozenset({2}), {2: moved}, now=moved) == [Move(1, C)]
    late = moved + SILENT_AFTER
    assert feeds.check_feeds(frozenset({2}), {2: late}, now=late) == []
    assert feeds.check_feeds(frozenset({2}), {2: late}, now=late + 1) == [Move(1, A)]


def test_with_no_spare_core_node_a_silent_one_is_waited_for() -> None:
    for cores in ([A], [A, B]):
        feeds = Feeds("box", cores, now=0.0)
        before = feeds.urls
        assert feeds.check_feeds(NONE, {}, now=10 * SILENT_AFTER) == []
        assert feeds.urls == before


@given(
    st.integers(1, 4),
    st.lists(
        st.tuples(st.sets(st.sampled_from([1, 2])), st.sets(st.sampled_from([1, 2]))), max_size=60
    ),
)
def test_two_feeds_never_come_from_one_core_node(
    cores: int, seen: list[tuple[set[int], set[int]]]
) -> None:
    urls = [f"amqp://core-{n}" for n in range(cores)]
    feeds = Feeds("box", urls, now=0.0, rng=random.Random(1))
    for step, (running, brings) in enumerate(seen):
        now = step * 7.0
        feeds.check_feeds(frozenset(running), dict.fromkeys(brings, now), now=now)
        used = list(feeds.urls.values())
        assert len(used) == min(2, cores)
        assert len(set(used)) == len(used)


def test_the_feed_that_runs_and_brings_nothing_is_restarted_and_the_other_is_left_alone() -> None:
    feeds = Feeds("box", [A, B], now=0.0, rng=random.Random(1))
    restarts = _seconds(feeds, {2}, range(2000))
    assert {command for _, command in restarts} == {Restart(1)}
    assert restarts[0][0] == watch.SILENT_AFTER + 1
    gaps = [after - before for (before, _), (after, _) in pairwise(restarts)]
    assert min(gaps) >= watch.SILENT_AFTER
    assert max(gaps) <= watch.SILENT_AFTER + watch.RESTART_CAP + 1
    assert len(restarts) < 30


def test_when_restarts_change_nothing_it_is_moved_to_a_spare_core_node() -> None:
    feeds = Feeds(_box_on(A, B, of=(A, B, C)), [A, B, C], now=0.0, rng=random.Random(1))
    commands = [command for _, command in _seconds(feeds, {2}, range(200))]
    expected: list[Command] = [*[Restart(1)] * RESTARTS_BEFORE_MOVE, Move(1, C)]
    assert commands[: len(expected)] == expected


def test_while_nobody_sends_anything_nothing_is_moved() -> None:
    feeds = Feeds("box", [A, B, C], now=0.0, rng=random.Random(1))
    commands = [command for _, command in _seconds(feeds, set(), range(2000))]
    assert set(commands) == {Restart(1), Restart(2)}


def test_a_feed_that_brings_again_gets_its_full_time_before_it_is_distrusted_again() -> None:
    feeds = Feeds("box", [A], now=0.0, rng=random.Random(1))
    _seconds(feeds, set(), range(100))
    assert _seconds(feeds, {1}, range(100, 200)) == []
    again = _seconds(feeds, set(), range(200, 230))
    assert again[0][0] >= 200 + watch.SILENT_AFTER


def test_an_agent_that_was_stopped_for_a_while_accuses_nobody() -> None:
    feeds = Feeds("box", [A], now=0.0, rng=random.Random(1))
    assert _seconds(feeds, {1}, range(10)) == []
    assert _seconds(feeds, set(), range(100, 100 + int(watch.SILENT_AFTER))) == []


def test_what_came_of_any_region_shows_that_a_feed_moves() -> None:
    arrivals = Arrivals()
    assert not arrivals.moving(0.0)
    arrivals.note_arrival(feed_name(1), "dublin", 10.0)
    assert arrivals.moving(15.0)
    assert not arrivals.moving(15.1)
    assert arrivals.through(feed_name(1)) == 10.0
    assert arrivals.through(feed_name(2)) is None
    assert arrivals.ages(12.0) == {"dublin": 2.0}


def test_a_flood_of_regions_takes_bounded_memory() -> None:
    arrivals = Arrivals()
    for n in range(10_000):
        arrivals.note_arrival(feed_name(1), f"region-{n}", 0.0)
    assert len(arrivals.ages(0.0)) == 64
