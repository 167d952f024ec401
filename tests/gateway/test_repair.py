"""What is reread from the journal, when, and when it is given up."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repaired import (
    BASE,
    EPOCH,
    FAR,
    ROUTER,
    TWIN,
    Box,
    stored,
    well_box,
)

from gateway.gaps import Ending, within
from gateway.position import copy_of, decode
from gateway.repair import Repair, merged
from gateway.streams import Streams
from gateway.sweep import Span


@pytest.fixture
def box() -> Box:
    return well_box()


def test_what_is_missing_for_less_than_half_a_second_may_be_on_its_way(box: Box) -> None:
    box.hear(4)
    box.go(0.5)
    assert box.plan() is None
    box.go(0.1)
    assert box.plan() is not None


def test_a_gap_is_looked_for_where_its_neighbours_were_routed_by_their_own_clock(box: Box) -> None:
    before = box.ms(-7200)
    box.hear(3, skew=7200)
    box.go(0.3)
    after = box.ms(-7200)
    box.hear(5, skew=7200)
    box.go(0.6)
    plan = box.plan()
    assert plan is not None
    assert plan.spans == (Span(before - 1_000, after + 1_001),)


def test_what_the_journal_has_is_wanted_once_and_closes_the_gap(box: Box) -> None:
    box.hear(5)
    box.go(0.6)
    assert box.read(stored(2), stored(3), stored(4), stored(4), stored(5)) == [3, 4]
    box.go(0.1)
    assert [(c.first, c.last, c.ending, c.numbers) for c in box.closed] == [
        (3, 5, Ending.FILLED, 0)
    ]
    assert box.closed[0].seconds == pytest.approx(0.6)
    assert (box.missing, box.repair.open_gaps, box.plan()) == ([], 0, None)


def test_what_is_on_its_way_is_left_to_the_feed(box: Box) -> None:
    box.hear(4)
    box.go(0.6)
    box.hear(7)
    assert box.read(*(stored(n) for n in range(1, 9))) == [3]


def test_a_number_declared_void_is_looked_for_no_more(box: Box) -> None:
    box.tick(4)
    box.go(0.6)
    box.read()
    box.tick(4, 3, 4)
    box.go(0.1)
    assert (box.missing, box.repair.open_gaps) == ([], 0)
    box.go(0.9)
    assert box.plan() is None


def test_each_try_looks_further_and_waits_longer(box: Box) -> None:
    box.tick(3)
    box.go(0.6)
    widths, waits = [], []
    for _ in range(6):
        plan = box.plan()
        assert plan is not None
        widths.append(plan.spans[0].to_ms - plan.spans[0].from_ms)
        box.read()
        waited = 0.0
        while box.plan() is None:
            box.go(0.1)
            waited += 0.1
            box.tick(3)
        waits.append(round(waited, 1))
    assert widths == sorted(widths)
    assert widths[-1] >= 120_000
    assert waits == pytest.approx([0.4, 0.8, 1.6, 3.2, 6.4, 12.8], abs=0.15)


def test_a_new_gap_isnt_looked_for_where_an_old_one_is(box: Box) -> None:
    box.tick(3)
    box.go(0.6)
    box.read()
    for _ in range(30):
        box.go(1)
        box.tick(3)
        box.settled()
    recently = box.ms()
    box.hear(5)
    box.go(0.6)
    plan = box.plan()
    assert plan is not None
    assert [(gap.first, gap.last) for gap in plan.gaps][-1] == (4, 5)
    assert plan.spans[-1].from_ms >= recently - 2_000


def test_a_failed_read_proves_nothing(box: Box) -> None:
    box.tick(3)
    for _ in range(600):
        box.go(1)
        box.tick(3)
        if box.plan() is not None:
            box.read(complete=False)
    assert box.missing == [(3, 3)]
    box.read()
    assert box.missing == []
    assert box.closed[-1].ending is Ending.GIVEN_UP


def test_a_living_routers_number_is_given_up_after_eight_minutes_and_one_last_wide_read(
    box: Box,
) -> None:
    box.tick(3)
    opened = box.now
    while not box.closed:
        box.go(1)
        box.tick(3)
        box.settled()
    assert 480 <= box.now - opened < 500
    assert (box.closed[0].ending, box.closed[0].numbers) == (Ending.GIVEN_UP, 1)
    assert box.streams.mark(ROUTER, EPOCH) == 3


def test_a_dead_routers_number_is_void_once_the_journal_was_read_after_its_death(box: Box) -> None:
    box.tick(1, router=TWIN)
    box.hear(4)
    died = box.now
    while not box.closed:
        box.go(1)
        box.tick(1, router=TWIN)
        box.settled()
    assert 30 <= box.now - died < 50
    assert (box.closed[0].ending, box.closed[0].numbers) == (Ending.VOID, 1)


def test_while_its_whole_region_is_silent_nothing_is_known_of_a_router(box: Box) -> None:
    box.tick(1, router=FAR)
    box.streams.saw(FAR, EPOCH, 4, routed_ms=box.ms(), now=BASE + box.now)
    for _ in range(200):
        box.go(1)
        box.tick(2)
        box.settled()
    assert box.streams.missing() == {(FAR, EPOCH): [(1, 3)]}


def test_a_router_that_goes_on_is_not_dead(box: Box) -> None:
    box.tick(1, router=TWIN)
    box.hear(4)
    for _ in range(29):
        box.go(1)
        box.tick(1, router=TWIN)
        box.settled()
    plan = None
    while plan is None or not plan.void:
        box.go(1)
        box.tick(1, router=TWIN)
        plan = box.plan()
    box.tick(4)
    assert box.repair.finished(plan, box.now, complete=True) == []
    assert box.missing == [(3, 3)]


def test_what_a_dead_router_stored_after_its_last_sign_is_found(box: Box) -> None:
    box.tick(2)
    box.go(1.9)
    assert box.plan() is None
    assert not box.repair.wants(stored(3, at=box.now), box.now)
    box.go(0.2)
    plan = box.plan()
    assert plan is not None
    assert plan.tails[0][0] == (ROUTER, EPOCH)
    assert box.read(stored(3, at=box.now), stored(4, at=box.now)) == [3, 4]


@pytest.mark.parametrize(("other", "least", "most"), [(FAR, 20, 50), (TWIN, 4, 8)])
def test_the_tail_of_a_router_is_read_less_and_less_and_not_for_ever(
    box: Box, other: str, least: int, most: int
) -> None:
    reads = []
    for _ in range(700):
        box.go(1)
        box.tick(1, router=other)
        plan = box.plan()
        if plan is not None and any(name == (ROUTER, EPOCH) for name, _ in plan.tails):
            reads.append(plan)
        box.settled()
    assert least < len(reads) < most
    last = reads[-1].spans[-1]
    assert last.to_ms - last.from_ms < 120_000


def test_a_routers_start_is_a_reason_to_look_for_streams_nobody_heard_of(box: Box) -> None:
    between, again = box.ms(), box.ms(-3)
    unheard = stored(1, epoch=between, at=box.now)
    box.go(4)
    box.hear(1, epoch=again)
    box.go(1.1)
    assert box.read(unheard) == [1]


def test_of_an_old_router_that_was_cut_off_the_last_ten_minutes_are_looked_at(box: Box) -> None:
    old = EPOCH - 10**9
    box.hear(70, router=FAR, epoch=old)
    box.go(1.1)
    late = stored(69, router=FAR, epoch=old, at=box.now - 5)
    ours = stored(1, at=box.now - 5)
    assert box.read(ours, late) == [69]


@pytest.mark.parametrize("ago", [590, 10])
def test_a_router_that_began_just_before_us_and_said_nothing_yet_is_repaired_from_its_first_number(
    ago: int,
) -> None:
    box = Box()
    epoch = box.ms(ago)
    # The journal has nothing of it when we begin.
    assert box.read() == []
    box.go(1)
    box.hear(3, router=FAR, epoch=epoch)
    box.go(1.1)
    lost = [stored(seq, router=FAR, at=box.now - 2, epoch=epoch) for seq in (1, 2)]
    assert box.read(*lost) == [1, 2]


def test_while_a_strangers_past_is_looked_for_the_marks_dont_tell_everything(box: Box) -> None:
    assert box.repair.tells_all(box.now)
    box.hear(70, router=FAR, epoch=EPOCH - 10**9)
    for seconds, tells in ((119, False), (1, True)):
        box.go(seconds)
        box.tick(2)
        assert (box.repair.tells_all(box.now), box.repair.ready) == (tells, True)


def test_a_gateway_that_starts_is_ready_when_the_last_ten_minutes_are_read() -> None:
    box = Box()
    assert not box.repair.ready
    plan = box.plan()
    assert plan is not None
    assert plan.spans == (Span(box.ms(600), box.ms(-5)),)
    box.read(complete=False)
    assert not box.repair.ready
    old = stored(70, epoch=EPOCH - 10**9, at=-60)
    assert box.read(old, stored(5, epoch=EPOCH - 10**9, at=-700)) == [70]
    assert box.repair.ready


def test_a_catch_up_that_fails_halfway_goes_on_there_though_strangers_are_looked_for() -> None:
    box = Box()
    box.go(0.1)
    # Two looks at the last ten minutes, the first a second from now.
    box.hear(70, router=FAR, epoch=EPOCH - 10**9)
    box.go(1.1)
    plan = box.plan()
    assert plan is not None
    assert plan.spans == (Span(box.ms(601.2), box.ms(-5)),)
    box.repair.finished(plan, box.now, complete=False, reached_ms=box.ms(300))
    plan = box.plan()
    assert plan is not None
    assert plan.spans == (Span(box.ms(300), box.ms(-5)),)
    box.repair.finished(plan, box.now, complete=True)
    assert box.repair.ready
    assert box.plan() is None


def test_one_that_follows_another_goes_on_where_that_one_was() -> None:
    box = Box()
    repair = Repair(box.streams)
    repair.go_on(box.ms(200), box.ms())
    plan = repair.plan(0.0, box.ms())
    assert plan is not None
    assert plan.spans == (Span(box.ms(260), box.ms(-5)),)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_gateway_that_was_deaf_is_ready_when_it_has_read_what_it_missed(
    box: Box, stopped: bool
) -> None:
    box.tick(2)
    box.go(0.1)
    began = box.now
    if stopped:
        box.now += 100
        box.go(0.1)
    else:
        box.go(100)
    assert not box.repair.ready
    box.tick(2)
    box.go(0.1)
    assert not box.repair.ready
    plan = box.plan()
    assert plan is not None
    assert plan.catch_up is not None
    assert plan.catch_up.from_ms <= (BASE + began - 59) * 1000
    unheard = stored(1, router=TWIN, epoch=EPOCH + 1, at=began + 50)
    assert box.read(unheard) == [1]
    assert box.repair.ready


def test_deaf_again_while_it_catches_up_it_catches_up_again(box: Box) -> None:
    box.tick(2)
    box.go(10)
    box.tick(2)
    box.go(0.1)
    plan = box.plan()
    assert plan is not None
    box.go(10)
    box.tick(2)
    box.go(0.1)
    box.repair.finished(plan, box.now, complete=True)
    assert not box.repair.ready
    box.read()
    assert box.repair.ready


def test_many_gaps_of_one_stream_are_searched_as_few(box: Box) -> None:
    for n in range(200):
        box.hear(4 + 2 * n)
        box.go(0.2)
    assert box.repair.open_gaps <= box.limits.gaps
    box.go(1)
    assert box.read(*(stored(3 + 2 * n) for n in range(200))) == [3 + 2 * n for n in range(200)]
    assert box.missing == []


def test_a_number_beyond_all_reason_is_given_up_like_any_other(box: Box) -> None:
    box.tick(2**62)
    while not box.closed:
        box.go(1)
        box.tick(2**62)
        box.settled()
    assert box.closed[0].numbers == 2**62 - 2
    assert box.missing == []


def test_a_routers_clock_that_was_set_back_is_searched_around_our_own_time(box: Box) -> None:
    box.hear(3, skew=3600)
    box.hear(5)
    box.go(0.6)
    box.read()
    box.go(0.5)
    plan = box.plan()
    assert plan is not None
    assert any(span.from_ms < box.ms(1) < span.to_ms for span in plan.spans)


def test_a_stream_that_was_forgotten_leaves_nothing_behind() -> None:
    box = Box()
    box.streams.limits = dataclasses.replace(box.streams.limits, streams=3)
    for n in range(20):
        box.hear(5, epoch=EPOCH + n)
        box.go(1)
    box.settled()
    assert box.repair.open_gaps == 3
    # What it had isn't news.
    assert not box.repair.wants(stored(5, epoch=EPOCH, at=box.now), box.now)


def test_what_was_given_up_no_position_covers(box: Box) -> None:
    box.tick(3)
    while not box.closed:
        box.go(1)
        box.tick(3)
        box.settled()
    told = decode(box.streams.position(BASE + box.now))
    assert not told.covers([copy_of(stored(3))])
    assert box.streams.lacks(told)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=20))
def test_merged_spans_cover_the_same_times_and_are_apart(pairs: list[tuple[int, int]]) -> None:
    spans = [Span(a, a + width) for a, width in pairs]
    found = merged(spans)
    assert {ms for a, b in spans for ms in range(a, b)} == {
        ms for a, b in found for ms in range(a, b)
    }
    assert all(one.to_ms < two.from_ms for one, two in itertools.pairwise(found))


@given(st.sets(st.integers(0, 40)), st.integers(0, 40), st.integers(0, 40))
def test_the_holes_within_a_run_of_numbers(seen: set[int], first: int, last: int) -> None:
    streams = Streams(BASE)
    for seq in sorted(seen | {0, 41}):
        streams.saw(ROUTER, EPOCH, seq, routed_ms=0, now=BASE)
    holes = streams.missing().get((ROUTER, EPOCH), [])
    found = [n for a, b in within(holes, first, last) for n in range(a, b + 1)]
    assert found == [n for n in range(max(1, first), min(40, last) + 1) if n not in seen]


@given(st.sets(st.integers(1, 40)), st.data())
def test_skipped_numbers_count_as_seen(seen: set[int], data: st.DataObject) -> None:
    streams = Streams(BASE)
    for seq in [*seen, 41]:
        streams.saw(ROUTER, EPOCH, seq, routed_ms=0, now=BASE)
    holes = streams.missing().get((ROUTER, EPOCH), [])
    left = {n for a, b in holes for n in range(a, b + 1)}
    for a, b in data.draw(st.permutations(holes)):
        first = data.draw(st.integers(a, b))
        last = data.draw(st.integers(first, b))
        streams.skip((ROUTER, EPOCH), first, last)
        left -= set(range(first, last + 1))
    holes = streams.missing().get((ROUTER, EPOCH), [])
    assert {n for a, b in holes for n in range(a, b + 1)} == left


def test_a_gateway_that_misses_nothing_rests_for_a_second(box: Box) -> None:
    box.tick(2)
    box.tick(0, router=TWIN)
    assert box.repair.rest(box.now) == 1.0


def test_it_looks_ten_times_a_second_while_a_number_is_missing(box: Box) -> None:
    box.hear(4)
    assert box.repair.rest(box.now) == 0.1
    box.go(0.6)
    assert box.repair.rest(box.now) == 0.1
    box.hear(3)
    box.go(0.1)
    assert box.repair.rest(box.now) == 1.0


def test_it_looks_again_at_the_moment_when_a_silent_routers_tail_is_due(box: Box) -> None:
    box.go(1.4)
    assert box.repair.rest(box.now) == pytest.approx(0.6)
    box.go(0.6)
    assert box.plan() is not None


def test_one_that_is_deaf_or_catching_up_doesnt_rest(box: Box) -> None:
    box.tick(2)
    box.go(4)
    assert not box.repair.ready
    assert box.repair.rest(box.now) == 0.1
    box.tick(2)
    box.go(0.1)
    assert box.repair.rest(box.now) == 0.1


def test_a_router_that_has_long_been_silent_costs_no_looks(box: Box) -> None:
    box.go(500)
    for _ in range(65):
        box.tick(0, router=TWIN)
        box.go(1)
        box.settled()
    assert box.repair.rest(box.now) == 1.0
