"""The steps by which a box leaves."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retail.drain import MISSES, TRANSITIONS, Drain, Event, State


def _drained(*events: Event) -> Drain:
    drain = Drain()
    for event in events:
        drain.on(event)
    return drain


def test_a_box_tells_its_gateway_waits_for_its_readers_and_cleans_up() -> None:
    drain = Drain()
    assert not drain.draining
    assert drain.on("stop") == "ordering"
    assert drain.draining
    assert drain.note_drain_reply(accepted=True) == "emptying"
    assert drain.note_connections(12) == "emptying"
    assert drain.note_connections(0) == "cleaning"
    assert drain.on("cleaned") == "done"


def test_a_gateway_that_never_answers_is_gone_after_some_tries() -> None:
    drain = _drained("stop")
    states = [drain.note_drain_reply(accepted=False) for _ in range(MISSES)]
    assert states == ["ordering"] * (MISSES - 1) + ["cleaning"]


def test_a_gateway_that_exits_while_it_drains_has_no_readers() -> None:
    drain = _drained("stop", "accepted")
    states = [drain.note_connections(None) for _ in range(MISSES)]
    assert states == ["emptying"] * (MISSES - 1) + ["cleaning"]


def test_misses_count_only_one_after_the_other() -> None:
    drain = _drained("stop", "accepted")
    for _ in range(5):
        for _ in range(MISSES - 1):
            assert drain.note_connections(None) == "emptying"
        assert drain.note_connections(3) == "emptying"


def test_misses_before_the_gateway_answered_dont_count_after() -> None:
    drain = _drained("stop")
    for _ in range(MISSES - 1):
        drain.note_drain_reply(accepted=False)
    drain.note_drain_reply(accepted=True)
    assert drain.note_connections(None) == "emptying"


@given(st.lists(st.sampled_from(get_args(Event)), max_size=12))
def test_what_isnt_in_the_table_is_an_error_and_changes_nothing(events: list[Event]) -> None:
    drain = Drain()
    for event in events:
        before = drain.state
        if (before, event) in TRANSITIONS:
            assert drain.on(event) == TRANSITIONS[before, event]
        else:
            with pytest.raises(ValueError, match=event):
                drain.on(event)
            assert drain.state == before


def test_every_state_but_the_last_is_left_by_time_alone() -> None:
    for state in set(get_args(State)) - {"serving", "done"}:
        assert (state, "overdue") in TRANSITIONS
