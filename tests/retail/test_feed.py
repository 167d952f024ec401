"""Which core nodes feed a box, and when it takes others."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from newsfabric.control import Tick
from retail.feed import (
    DISTRUST_AFTER,
    DISTRUST_CAP,
    SILENT_AFTER,
    Feeds,
    Move,
    Restart,
    Ticks,
    choose,
)

A, B, C = (f"amqp://core-{name}/%2F" for name in "abc")
BOTH = frozenset({1, 2})
NONE = frozenset[int]()


def _box_on(*cores: str, of: tuple[str, ...]) -> str:
    """A box that starts with these core nodes."""
    return next(box for n in range(100) if choose(box := f"box-{n}", of) == cores)


def test_a_box_takes_two_different_core_nodes_and_one_where_there_is_only_one() -> None:
    assert len(set(choose("box", [A, B, C]))) == 2
    assert set(choose("box", [A, B])) == {A, B}
    assert choose("box", [A]) == (A,)


def test_boxes_spread_over_the_core_nodes() -> None:
    first = Counter(choose(f"oregon-retail-{n}", [A, B, C])[0] for n in range(300))
    assert min(first[core] for core in (A, B, C)) > 60


def test_a_feed_that_runs_stays_where_it_is() -> None:
    feeds = Feeds("box", [A, B, C], now=0.0)
    before = feeds.urls
    for second in range(100):
        assert feeds.look(BOTH, copies=2, now=float(second)) == []
    assert feeds.urls == before
    assert feeds.running == 2


def test_a_silent_core_node_is_left_for_one_that_no_other_feed_uses() -> None:
    feeds = Feeds(_box_on(A, B, of=(A, B, C)), [A, B, C], now=0.0)
    only_second = frozenset({2})
    assert feeds.look(only_second, copies=1, now=SILENT_AFTER) == []
    assert feeds.look(only_second, copies=1, now=SILENT_AFTER + 0.1) == [Move(1, C)]
    assert feeds.urls == {1: C, 2: B}


def test_the_next_one_gets_as_long_before_it_is_left_too() -> None:
    feeds = Feeds(_box_on(A, B, of=(A, B, C)), [A, B, C], now=0.0)
    moved = SILENT_AFTER + 1
    assert feeds.look(frozenset({2}), 1, now=moved) == [Move(1, C)]
    assert feeds.look(frozenset({2}), 1, now=moved + SILENT_AFTER) == []
    assert feeds.look(frozenset({2}), 1, now=moved + SILENT_AFTER + 1) == [Move(1, A)]


def test_with_no_spare_core_node_a_silent_one_is_waited_for() -> None:
    for cores in ([A], [A, B]):
        feeds = Feeds("box", cores, now=0.0)
        before = feeds.urls
        assert feeds.look(NONE, copies=0, now=10 * SILENT_AFTER) == []
        assert feeds.urls == before


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.sets(st.sampled_from([1, 2])), st.integers(0, 3)), max_size=60),
)
def test_two_feeds_never_come_from_one_core_node(
    cores: int, seen: list[tuple[set[int], int]]
) -> None:
    urls = [f"amqp://core-{n}" for n in range(cores)]
    feeds = Feeds("box", urls, now=0.0)
    for step, (running, copies) in enumerate(seen):
        feeds.look(frozenset(running), copies, now=step * 7.0)
        used = list(feeds.urls.values())
        assert len(used) == min(2, cores)
        assert len(set(used)) == len(used)


def test_shovels_that_run_and_bring_nothing_are_restarted_in_turn_and_ever_more_seldom() -> None:
    feeds = Feeds("box", [A, B], now=0.0)
    restarted: list[tuple[float, int]] = []
    for second in range(2000):
        for command in feeds.look(BOTH, copies=1, now=float(second)):
            assert isinstance(command, Restart)
            restarted.append((float(second), command.n))
    assert restarted[0][0] == DISTRUST_AFTER + 1
    assert {n for _, n in restarted[:2]} == {1, 2}
    gaps = [after[0] - before[0] for before, after in pairwise(restarted)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == DISTRUST_CAP + 1


def test_once_every_copy_arrives_again_patience_is_as_at_first() -> None:
    feeds = Feeds("box", [A, B], now=0.0)
    for second in range(100):
        feeds.look(BOTH, copies=0, now=float(second))
    assert feeds.look(BOTH, copies=2, now=100.0) == []
    assert feeds.look(BOTH, copies=1, now=100.0 + DISTRUST_AFTER) == []
    assert len(feeds.look(BOTH, copies=1, now=100.1 + DISTRUST_AFTER)) == 1


def _tick(seq: int, origin: str = "oregon") -> Tick:
    return Tick(origin=origin, router="r-1", epoch=1, seq=seq, sent_ms=seq)


def test_ticks_of_any_region_show_that_the_feed_moves() -> None:
    ticks = Ticks("oregon")
    assert not ticks.moving(0.0)
    ticks.heard(_tick(1, "dublin"), 10.0)
    assert ticks.moving(15.0)
    assert not ticks.moving(15.1)


def test_copies_of_the_own_regions_ticks_are_counted_once_they_had_time_to_arrive() -> None:
    ticks = Ticks("oregon")
    for seq in (1, 2, 3):
        ticks.heard(_tick(seq), float(seq))
        ticks.heard(_tick(seq, "dublin"), float(seq))
        ticks.heard(_tick(seq, "dublin"), float(seq))
    assert ticks.copies(2.0) == 0
    assert ticks.copies(3.5) == 1
    ticks.heard(_tick(3), 3.1)
    assert ticks.copies(5.1) == 2
    assert ticks.copies(60.0) == 0


def test_a_flood_of_ticks_takes_bounded_memory() -> None:
    ticks = Ticks("oregon")
    for seq in range(10_000):
        ticks.heard(_tick(seq), 0.0)
    assert len(ticks._own) == 256
