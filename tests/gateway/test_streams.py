"""Low-water marks: whatever order numbers come in, the mark is where the first hole begins."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.position import decode, stream_hash
from gateway.streams import StreamLimits, Streams

ROUTER, EPOCH = "oregon-router-1", 7
START = 100_000.0


class One:
    """One stream that began with number 1."""

    def __init__(self, limits: StreamLimits | None = None) -> None:
        self.streams = Streams(START, limits)
        self.saw(1)

    def saw(self, seq: int, now: float = START) -> None:
        self.streams.saw(ROUTER, EPOCH, seq, routed_ms=int(now * 1000), now=now)

    def ticked(self, seq: int, *void: int) -> None:
        self.streams.ticked(ROUTER, EPOCH, seq, void=void, sent_ms=int(START * 1000), now=START)

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


def test_a_new_gateways_position_calls_what_was_routed_an_hour_ago_the_past() -> None:
    assert decode(Streams(START).position(START)).time_ms == (100_000 - 3600) * 1000


def test_a_stream_silent_for_an_hour_folds_into_the_time() -> None:
    one = One()
    one.streams.saw("dublin-router-1", 9, 70, routed_ms=0, now=START + 3000)
    position = decode(one.streams.position(START + 3601))
    assert position.seen == {stream_hash("dublin-router-1", 9): 70}
    assert position.time_ms == int(START * 1000)


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
    assert decode(streams.position(START + 3)).time_ms == int(START * 1000)


def test_a_stream_never_heard_of_is_the_past() -> None:
    assert Streams(START).seen("r", 1, 5)
