"""The effect of each key."""

from __future__ import annotations

import dataclasses

import pytest
from board_documents import board, box, region
from hypothesis import given
from hypothesis import strategies as st

from operations.board_document import Board, parse_board
from operations.top import keys
from operations.top.lines import Sort, View
from operations.top.screen import lines_of
from operations.top.state import (
    ACTIONS,
    BY_KEY,
    MAX_FILTER,
    Effect,
    FollowedThing,
    KeyContext,
    ViewState,
    press,
)


def three_boxes() -> Board:
    boxes = [box(name, readers=n, age_ms=10 * n) for n, name in enumerate(("a", "b", "c"))]
    topics = [{"name": "news.a", "messages_per_second": 1.0}]
    return parse_board(board(region("oregon", boxes=boxes, topics=topics)))


def after(typed: list[str], state: ViewState | None = None) -> ViewState:
    state = state or ViewState()
    for key in typed:
        changed = press(state, key, KeyContext(lines_of(three_boxes(), state), 2))
        assert isinstance(changed, ViewState)
        state = changed
    return state


def test_numbers_and_tab_choose_the_table() -> None:
    assert [after([str(n)]).view for n in range(1, 8)] == list(View)
    assert after([keys.TAB, keys.TAB]).view is View.SHOVELS
    assert after([keys.BACK_TAB]).view is View.EVENTS


@pytest.mark.parametrize(
    ("typed", "order"),
    [("r", "cba"), ("ri", "abc"), ("n", "abc"), ("ni", "cba"), ("a", "cba"), ("dn", "abc")],
)
def test_a_key_sorts_and_i_turns_it_round(typed: str, order: str) -> None:
    lines = lines_of(three_boxes(), after(list(typed)))
    assert "".join(line.name for line in lines) == order


def test_what_a_table_cannot_be_sorted_by_changes_nothing() -> None:
    assert after(["5", "r"]).sort is Sort.READERS
    assert after(["5", "d"]).sort is Sort.READERS


def test_the_arrows_select_and_stop_at_the_ends() -> None:
    assert after([keys.DOWN]).selected == "oregon/b"
    assert after([keys.DOWN] * 9).selected == "oregon/a"
    assert after([keys.END, keys.UP]).selected == "oregon/b"
    assert after([keys.PAGE_DOWN]).selected == "oregon/a"
    assert after([keys.END, keys.HOME]).selected == "oregon/c"


def test_the_selection_stays_with_its_line_when_the_order_changes() -> None:
    state = after([keys.DOWN, "n"])
    assert KeyContext(lines_of(three_boxes(), state), 9).position(state.selected) == 1
    state = after([keys.END, "n"])
    assert KeyContext(lines_of(three_boxes(), state), 9).position(state.selected) == 0


def test_enter_follows_one_and_escape_goes_back() -> None:
    state = after([keys.DOWN, keys.ENTER])
    assert state.followed == FollowedThing(View.BOXES, "b", "oregon")
    assert after([keys.ESCAPE], state).followed is None
    assert after(["5", keys.ENTER]).followed == FollowedThing(View.TOPICS, "news.a", None)
    assert after(["7", keys.ENTER]).followed is None


def test_a_filter_is_typed_letter_by_letter() -> None:
    state = after(["/", "q", "B", "x", keys.BACKSPACE])
    assert (state.filter, state.typing) == ("qB", True)
    assert after([keys.ENTER], state).filter == "qB"
    assert after([keys.ESCAPE], state).filter == ""
    assert [line.name for line in lines_of(three_boxes(), after(["/", "B"]))] == ["b"]
    assert len(after(["/", *"x" * 2 * MAX_FILTER]).filter) == MAX_FILTER


def test_any_key_leaves_the_help() -> None:
    assert after(["?"]).help
    assert after(["?", "3"]) == ViewState()


def test_q_and_an_interrupt_end_it_also_while_a_filter_is_typed() -> None:
    seen = KeyContext((), 1)
    assert press(ViewState(), "q", seen) is Effect.QUIT
    assert press(ViewState(typing=True), keys.INTERRUPT, seen) is Effect.QUIT
    assert press(ViewState(), "f", seen) is Effect.NEXT_FRONTDESK


def test_no_key_has_two_meanings() -> None:
    assert len(BY_KEY) == sum(len(action.keys) for action in ACTIONS)


@given(st.lists(st.sampled_from(sorted(BY_KEY)) | st.characters()))
def test_no_series_of_keys_fails(typed: list[str]) -> None:
    state = ViewState()
    for key in typed:
        changed = press(state, key, KeyContext(lines_of(three_boxes(), state), 3))
        state = changed if isinstance(changed, ViewState) else dataclasses.replace(state)
