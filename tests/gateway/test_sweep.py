"""A long time is read bit by bit, slice by slice, again and again until all of it must be there."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gateway.sweep import Phase, Span, Sweep

MINUTE = 60_000
HOUR = 60 * MINUTE


def go_on(sweep: Sweep, now: float, step_ms: int = 5 * MINUTE) -> list[tuple[Phase, Span]]:
    """What is read until the round is over."""
    read: list[tuple[Phase, Span]] = []
    while sweep.due <= now:
        from_ms, to_ms = sweep.part()
        reached = min(to_ms, from_ms + step_ms)
        read.append((sweep.phase, Span(from_ms, reached)))
        sweep.reached(reached, now)
    return read


def test_where_nothing_is_missing_each_time_is_looked_at_once() -> None:
    sweep = Sweep(Span(0, HOUR), 0.0)
    read = go_on(sweep, 1.0)
    assert {phase for phase, _ in read} == {Phase.MISSING}
    assert [span for _, span in read] == [
        Span(n * MINUTE, n * MINUTE + 300_000) for n in range(0, 60, 5)
    ]


def test_copies_of_what_is_missing_are_looked_for_before_and_after_it() -> None:
    sweep = Sweep(Span(2 * HOUR, 2 * HOUR + 10 * MINUTE), 0.0)
    sweep.missing.add(1)
    read = go_on(sweep, 1.0)
    copies = [span for phase, span in read if phase is Phase.COPIES]
    published = [span for phase, span in read if phase is Phase.PUBLISH]
    assert (copies[0].from_ms, copies[-1].to_ms) == (105 * MINUTE, 145 * MINUTE)
    assert (published[0].from_ms, published[-1].to_ms) == (120 * MINUTE, 130 * MINUTE)
    assert (sweep.missing, sweep.copies) == (set(), set())


def test_a_slice_in_which_too_much_is_missing_ends_there() -> None:
    sweep = Sweep(Span(0, 10 * MINUTE), 0.0)
    sweep.missing.update(range(500_000))
    sweep.reached(MINUTE, 1.0)
    assert (sweep.phase, sweep.part()) == (Phase.COPIES, Span(0, 16 * MINUTE))
    sweep.reached(16 * MINUTE, 1.0)
    assert (sweep.phase, sweep.part()) == (Phase.PUBLISH, Span(0, MINUTE))
    sweep.reached(MINUTE, 1.0)
    assert (sweep.phase, sweep.part()) == (Phase.MISSING, Span(MINUTE, 10 * MINUTE))


def test_it_is_repeated_until_as_much_time_has_passed() -> None:
    sweep = Sweep(Span(0, 20 * MINUTE), 100.0)
    rounds = []
    while not sweep.done:
        rounds.append(sweep.due - 100.0)
        go_on(sweep, sweep.due)
    assert rounds == [1, 61, 122, 244, 488, 976, 1260]


@given(st.integers(1, 6 * HOUR), st.integers(1, HOUR), st.booleans())
def test_each_round_ends_and_has_read_the_whole_time(length: int, step: int, missing: bool) -> None:
    sweep = Sweep(Span(HOUR, HOUR + length), 0.0)
    step = max(step, MINUTE)
    if missing:
        sweep.missing.add(1)
    read = [span for phase, span in go_on(sweep, 1.0, step) if phase is Phase.MISSING]
    assert (read[0].from_ms, read[-1].to_ms) == (HOUR, HOUR + length)
    assert all(one.to_ms == two.from_ms for one, two in itertools.pairwise(read))
