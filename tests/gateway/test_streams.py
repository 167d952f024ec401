"""Low-water marks: whatever order numbers come in, the mark is where the first hole begins."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from gateway.forgotten import Forgotten
from gateway.position import Copy, Position, decode, stream_hash
from gateway.streams import StreamLimits, Streams

ROUTER, EPOCH = "oregon-router-1", 7
START = 100_000.0


def ms(after: float) -> int:
    return int((START + after) * 1000)


class One:
    """One stream that began with number 1."""

    def __init__(self, limits: StreamLimits | None = None) -> None:
        self.streams = Streams(START, limits)
        self.saw(1)

    def saw(self, seq: int, now: float = START) -> None:
        self.streams.saw(ROUTER, EPOCH, seq, routed_ms=int(now * 1000), now=now)

    def ticked(self, seq: int, *void: int, now: float = START) -> None:
        self.streams.ticked(ROUTER, EPOCH, seq, void=void, sent_ms=int(now * 1000), now=now)

    @property
    def mark(self) -> int | None:
        return self.streams.mark(ROUTER, EPOCH)

    @property
    def missing(self) -> list[tuple[int, int]]:
        return self.streams.missing().get((ROUTER, EPOCH), [])


def test_the_first_number_heard_is_where_a_stream_starts() -> None:
    streams = Streams(START)
    streams.saw(ROUTER, EPOCH, 500, routed_ms=0, now=START)
    assert streams.mark(ROUTER, EPOCH) == 500
    streams.saw(ROUTER, EPOCH, 499, routed_ms=0, now=START)
    assert streams.mark(ROUTER, EPOCH) == 500
    assert streams.missing() == {}


def test_a_first_tick_starts_a_stream_too() -> None:
    streams = Streams(START)
    streams.ticked(ROUTER, EPOCH, 500, void=(498,), sent_ms=0, now=START)
    assert streams.mark(ROUTER, EPOCH) == 500
    assert streams.missing() == {}


def test_a_hole_holds_the_mark_back_until_it_is_filled() -> None:
    one = One()
    for seq in (2, 4, 5, 8):
        one.saw(seq)
    assert one.mark == 2
    assert one.missing == [(3, 3), (6, 7)]
    one.saw(3)
    assert one.mark == 5
    one.saw(7)
    one.saw(6)
    assert one.mark == 8
    assert one.missing == []


def test_a_tick_shows_a_hole_that_nothing_follows() -> None:
    one = One()
    one.ticked(4)
    assert one.mark == 1
    assert one.missing == [(2, 4)]


def test_void_numbers_count_as_seen() -> None:
    one = One()
    one.saw(4)
    one.ticked(4, 2, 3)
    assert one.mark == 4


def test_a_void_number_that_was_never_given_out_opens_no_hole() -> None:
    one = One()
    one.ticked(2, 9)
    assert one.missing == [(2, 2)]


@given(
    seen=st.sets(st.integers(2, 60)),
    void=st.sets(st.integers(2, 60)),
    repeats=st.lists(st.integers(2, 60), max_size=20),
    data=st.data(),
)
def test_any_order_with_repeats_and_voids_ends_the_same(
    seen: set[int], void: set[int], repeats: list[int], data: st.DataObject
) -> None:
    one = One()
    known = seen | void
    last = max(known, default=1)
    events = data.draw(st.permutations([*seen, *(r for r in repeats if r in seen)]))
    ticks_after = data.draw(st.integers(0, len(events)))
    for i, seq in enumerate(events):
        if i == ticks_after:
            one.ticked(last, *void)
        one.saw(seq)
    one.ticked(last, *void)
    holes = [n for n in range(2, last + 1) if n not in known]
    assert one.mark == (holes[0] - 1 if holes else last)
    assert [n for a, b in one.missing for n in range(a, b + 1)] == holes
    for n in range(1, last + 1):
        assert one.streams.seen(ROUTER, EPOCH, n) == (n not in holes)


@given(st.permutations(range(2, 40)))
def test_the_mark_never_moves_back(order: list[int]) -> None:
    one = One()
    marks = []
    for seq in order:
        one.saw(seq)
        marks.append(one.mark or 0)
    assert marks == sorted(marks)
    assert marks[-1] == 39


def test_too_many_holes_give_up_the_oldest() -> None:
    one = One(StreamLimits(ranges=2))
    for seq in (3, 5, 7):
        one.saw(seq)
    assert one.mark == 3
    assert one.missing == [(4, 4), (6, 6)]
    assert one.streams.given_up == 1


def test_a_position_lists_each_stream_with_its_mark() -> None:
    one = One()
    one.saw(3)
    one.streams.saw("dublin-router-1", 9, 70, routed_ms=0, now=START)
    position = decode(one.streams.position(START))
    assert position.seen == {
        stream_hash(ROUTER, EPOCH): 1,
        stream_hash("dublin-router-1", 9): 70,
    }


def test_a_position_is_told_again_until_something_is_heard_or_given_up() -> None:
    one = One()
    one.saw(5)
    told = one.streams.position(START)
    assert one.streams.position(START + 0.5) is told
    changes: list[Callable[[], None]] = [
        lambda: one.saw(2),
        lambda: one.ticked(9),
        lambda: one.streams.skip((ROUTER, EPOCH), 3, 3),
        lambda: one.streams.give_up((ROUTER, EPOCH), 4, 4, at_ms=ms(0)),
        lambda: one.streams.saw("dublin-router-1", 9, 70, routed_ms=0, now=START),
    ]
    told_before = [told]
    for change in changes:
        change()
        told_before.append(one.streams.position(START))
    # What is given up isn't covered, and was not seen before.
    assert [a != b for a, b in itertools.pairwise(told_before)] == [True, False, True, False, True]


def test_who_has_caught_up_tells_another_position_at_once() -> None:
    streams = Streams(START)
    streams.listened_since(ms(-7_000), known_ms=ms(-7_000))
    assert decode(streams.position(START)).time_ms == ms(-3_600)
    streams.caught_up(ms(-60))
    assert decode(streams.position(START)).time_ms == ms(-600)


def test_a_positions_time_stays_ten_minutes_behind_what_was_heard_last() -> None:
    streams = Streams(START)
    streams.saw(ROUTER, EPOCH, 1, routed_ms=ms(4_000), now=START + 4_000)
    assert decode(streams.position(START + 4_000)).time_ms == ms(3_400)
    streams.saw(ROUTER, EPOCH, 2, routed_ms=ms(4_005), now=START + 4_005)
    assert decode(streams.position(START + 4_005)).time_ms == ms(3_405)
    # Deaf since then.
    assert decode(streams.position(START + 9_000)).time_ms == ms(3_405)


def test_it_stays_an_hour_behind_until_an_hour_is_known() -> None:
    streams = Streams(START)
    assert decode(streams.position(START)).time_ms == ms(-3_600)
    streams.caught_up(ms(-600))
    for after, time in ((2_999, -601), (3_000, 2_400)):
        streams.saw(ROUTER, EPOCH, after, routed_ms=ms(after), now=START + after)
        assert decode(streams.position(START + after)).time_ms == ms(time)


def test_who_goes_on_where_others_were_knows_what_they_knew() -> None:
    streams = Streams(START)
    streams.listened_since(ms(-7_000), known_ms=ms(-7_000))
    streams.caught_up(ms(-60))
    assert decode(streams.position(START)).time_ms == ms(-600)


def test_a_gateway_that_began_within_a_cut_claims_nothing_of_routers_that_it_cant_know() -> None:
    # A region is cut off at 0, while its router gives out number 7. This gateway begins at 900.
    cut_off = Copy(stream_hash("dublin-router-1", EPOCH), 7, ms(0))
    streams = Streams(START + 900)
    streams.ticked(ROUTER, EPOCH, 9, void=(), sent_ms=ms(900), now=START + 900)
    assert not decode(streams.position(START + 900)).covers([cut_off])


def test_a_stream_silent_for_an_hour_is_left_out() -> None:
    one = One()
    one.streams.saw("dublin-router-1", 9, 70, routed_ms=0, now=START + 3601)
    position = decode(one.streams.position(START + 3601))
    assert position.seen == {stream_hash("dublin-router-1", 9): 70}


def test_a_stream_with_a_hole_is_never_left_out() -> None:
    one = One()
    one.saw(3)
    one.streams.saw("dublin-router-1", 9, 70, routed_ms=ms(3601), now=START + 3601)
    position = decode(one.streams.position(START + 3601))
    assert position.seen[stream_hash(ROUTER, EPOCH)] == 1
    assert position.since_ms == ms(0)
    one.saw(2, now=START + 1)
    assert one.streams.missing() == {}


def test_what_wasnt_seen_was_routed_after_the_last_tick_that_showed_no_hole() -> None:
    one = One()
    one.saw(2, now=START + 1)
    assert decode(one.streams.position(START + 9)).since_ms == ms(1)
    one.ticked(2, now=START + 5)
    assert decode(one.streams.position(START + 9)).since_ms == ms(5)
    one.ticked(4, now=START + 6)
    one.saw(4, now=START + 6)
    one.ticked(4, now=START + 7)
    assert decode(one.streams.position(START + 9)).since_ms == ms(5)
    one.saw(3, now=START + 5.5)
    assert decode(one.streams.position(START + 9)).since_ms == ms(5.5)


def test_a_stream_that_speaks_again_shows_what_was_missed_meanwhile() -> None:
    one = One()
    one.saw(5, now=START + 7200)
    assert one.missing == [(2, 4)]
    assert decode(one.streams.position(START + 7200)).seen == {stream_hash(ROUTER, EPOCH): 1}


def test_too_many_streams_forget_the_longest_silent() -> None:
    streams = Streams(START, StreamLimits(streams=2))
    for n in range(3):
        streams.saw(f"r{n}", 1, 10, routed_ms=int(START * 1000) + n, now=START + n)
    assert len(streams) == 2
    assert streams.mark("r0", 1) is None


def test_a_stream_never_heard_of_is_the_past() -> None:
    assert Streams(START).seen("r", 1, 5)


def test_a_router_that_started_after_us_has_no_past() -> None:
    streams = Streams(START)
    assert not streams.seen(ROUTER, ms(1), 1)
    streams.saw(ROUTER, ms(1), 3, routed_ms=ms(2), now=START + 2)
    assert streams.mark(ROUTER, ms(1)) == 0
    assert streams.missing() == {(ROUTER, ms(1)): [(1, 2)]}
    streams.ticked("other", ms(-4), 2, void=(), sent_ms=ms(2), now=START + 2)
    assert streams.missing()["other", ms(-4)] == [(1, 2)]


def test_what_was_routed_before_we_listened_is_no_news_and_what_came_after_is() -> None:
    streams = Streams(START)
    streams.saw(ROUTER, EPOCH, 10, routed_ms=ms(3), now=START + 3)
    streams.saw(ROUTER, EPOCH, 12, routed_ms=ms(3), now=START + 3)
    assert streams.offered(ROUTER, EPOCH, 8, ms(-1))
    assert not streams.offered(ROUTER, EPOCH, 9, ms(1))
    assert streams.offered(ROUTER, EPOCH, 12, ms(3))
    assert not streams.offered(ROUTER, EPOCH, 11, ms(3))
    assert not streams.offered("young", ms(1), 1, ms(1))


def test_what_the_gateway_before_us_had_published_is_no_news_however_young_its_router() -> None:
    streams = Streams(START + 60)
    streams.listened_since(ms(0), known_ms=ms(0))
    # The router began when the first of these gateways did.
    streams.resume(ROUTER, ms(0), 500, routed_ms=ms(57))
    assert streams.offered(ROUTER, ms(0), 400, ms(40))
    assert streams.offered(ROUTER, ms(0), 500, ms(57))
    assert not streams.offered(ROUTER, ms(0), 501, ms(58))
    # A stranger of the same age may have been cut off from them.
    assert not streams.offered("other", ms(0), 400, ms(40))


# What is made of a reader's position.


def told(time: float, since: float, **seen: int) -> Position:
    return Position(ms(time), ms(since), {stream_hash(name, EPOCH): n for name, n in seen.items()})


def heard(*streams: tuple[str, int, float]) -> Streams:
    """Begun at START, and has heard number 1 and then these: (router, number, when)."""
    known = Streams(START)
    for router in dict.fromkeys(router for router, _, _ in streams):
        known.saw(router, EPOCH, 1, routed_ms=ms(1), now=START + 1)
    for router, seq, at in streams:
        known.saw(router, EPOCH, seq, routed_ms=ms(at), now=START + at)
    return known


def test_a_router_that_lives_and_isnt_listed_counts_as_not_seen_at_all() -> None:
    streams = heard(("a", 2, 900), ("b", 2, 900))
    said = told(200, 790, a=1)
    assert streams.trusted(said) == Position(
        said.time_ms, EPOCH, {**said.seen, stream_hash("b", EPOCH): 0}
    )


def test_a_router_that_died_before_the_position_was_made_is_believed_to_be_seen() -> None:
    streams = heard(("a", 2, 700), ("b", 2, 900))
    said = told(200, 790, b=2)
    assert streams.trusted(said) is said


def test_a_router_that_died_while_a_young_gateway_was_at_work_is_believed_to_be_seen_too() -> None:
    # Made at 4,390 by a gateway that stays an hour behind: what was heard at 1,500 was before that.
    streams = heard(("a", 2, 1_500), ("b", 2, 4_400))
    said = told(790, 4_390, b=2)
    assert streams.trusted(said) is said


def test_a_number_far_beyond_what_was_given_out_is_made_up() -> None:
    streams = heard(("a", 2, 900))
    assert streams.trusted(told(200, 790, a=50_000)).seen == {stream_hash("a", EPOCH): 50_000}
    assert streams.trusted(told(200, 790, a=500_000)).seen == {stream_hash("a", EPOCH): 0}


def test_a_gateway_vouches_for_what_came_after_it_began_to_listen() -> None:
    streams = heard(("a", 2, 900))
    assert streams.vouches(told(10, 600, a=1), START + 900)
    assert not streams.vouches(told(4, 600, a=1), START + 900)


def test_a_gateway_doesnt_vouch_for_routers_that_it_never_heard() -> None:
    streams = heard(("a", 2, 900))
    assert not streams.vouches(told(10, 600, a=1, dead=7), START + 900)


def test_a_gateway_doesnt_vouch_for_numbers_from_before_it_heard_the_router() -> None:
    streams = heard(("a", 2, 900))
    streams.saw("b", EPOCH, 50, routed_ms=ms(500), now=START + 500)
    assert streams.vouches(told(10, 600, a=1, b=49), START + 900)
    assert not streams.vouches(told(10, 600, a=1, b=48), START + 900)
    assert streams.vouches(told(500, 600, a=1), START + 900)
    assert not streams.vouches(told(499, 600, a=1), START + 900)


def test_a_gateway_that_is_behind_vouches_only_while_it_hears_the_router() -> None:
    streams = heard(("a", 2, 900))
    assert streams.vouches(told(10, 600, a=5), START + 902)
    assert not streams.vouches(told(10, 600, a=5), START + 904)
    assert streams.vouches(told(10, 600, a=2), START + 904)


def test_what_is_forgotten_goes_by_the_highest_number_of_each_stream() -> None:
    a, b = stream_hash("a", EPOCH), stream_hash("b", EPOCH)
    forgotten = Forgotten([Copy(a, 5, ms(5))])
    forgotten.add(Copy(b, 9, ms(6)))
    forgotten.add(Copy(b, 8, ms(7)))
    assert forgotten.is_covered_by(told(0, 600, a=5, b=9))
    assert not forgotten.is_covered_by(told(0, 600, a=5, b=8))
    assert not forgotten.is_covered_by(told(0, 600, a=4, b=9))
    assert forgotten.is_covered_by(told(7, 600, a=5))
    assert not forgotten.is_covered_by(told(6, 600, a=5))


def test_of_too_many_streams_a_time_is_left() -> None:
    forgotten = Forgotten()
    for n in range(70):
        forgotten.add(Copy(stream_hash(f"r{n}", 1), 1, ms(n)))
    seen = {stream_hash(f"r{n}", 1): 1 for n in range(70)}
    assert forgotten.is_covered_by(Position(ms(6), ms(600), seen))
    assert not forgotten.is_covered_by(Position(ms(5), ms(600), seen))


def test_the_journal_that_was_read_is_vouched_for_and_what_gateways_before_us_knew() -> None:
    streams = Streams(START + 60)
    told = Position(ms(20), ms(20), {})
    assert not streams.vouches(told, START + 60)
    streams.caught_up(ms(30))
    assert not streams.vouches(told, START + 60)
    streams.listened_since(ms(10), known_ms=ms(0))
    assert not streams.vouches(told, START + 60)
    # Now there is no gap between what they knew and what we know.
    streams.caught_up(ms(50))
    assert streams.vouches(told, START + 60)
    assert not streams.vouches(Position(ms(4), ms(4), {}), START + 60)


def test_no_position_covers_what_was_given_up_for_six_hours() -> None:
    one = One()
    one.ticked(5)
    one.streams.give_up((ROUTER, EPOCH), 2, 3, at_ms=ms(0))
    one.saw(4)
    one.saw(5)
    assert (one.mark, one.missing) == (5, [])
    lost = Copy(stream_hash(ROUTER, EPOCH), 2, ms(0))
    for hours, covered in ((0, False), (5, False), (7, True)):
        now = START + hours * 3600
        one.ticked(5, now=now)
        told = decode(one.streams.position(now))
        assert (told.covers([lost]), one.streams.lacks(told)) == (covered, not covered)


def test_who_has_what_was_given_up_lacks_nothing() -> None:
    one = One()
    one.ticked(3)
    one.streams.give_up((ROUTER, EPOCH), 2, 3, at_ms=ms(0))
    assert not one.streams.lacks(Position(ms(0), ms(0), {stream_hash(ROUTER, EPOCH): 3}))


def test_the_past_of_an_old_router_that_was_cut_off_when_we_began_is_covered_by_no_position() -> (
    None
):
    streams = Streams(START)
    streams.ticked("oregon-router-2", EPOCH, 9, void=(), sent_ms=ms(1), now=START + 1)
    streams.ticked(ROUTER, EPOCH, 9, void=(), sent_ms=ms(100), now=START + 100)
    told = decode(streams.position(START + 100))
    assert told.covers([Copy(stream_hash("oregon-router-2", EPOCH), 9, ms(0))])
    assert not told.covers([Copy(stream_hash(ROUTER, EPOCH), 9, ms(0))])
