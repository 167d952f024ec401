"""An operator's view of the board, and the table of keys that change it. Pure.

The help page and the bottom line are made of the same table, so no key is missing there.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from operations.top import keys
from operations.top.lines import TABLES, Sort, View, ViewLine

MAX_FILTER: Final = 64
# Views whose lines can be followed. A topic or a publisher is one line in each region.
FOLLOWED: Final = frozenset({View.BOXES, View.SERVICES, View.TOPICS, View.PUBLISHERS})


class Effect(enum.Enum):
    """An action of the program beside a change of the view."""

    QUIT = enum.auto()
    NEXT_FRONTDESK = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class FollowedThing:
    """The one thing that is followed. Without a ``region``, in any region."""

    view: View
    name: str
    region: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """The operator's view. ``selected`` is a line's key, empty for the first one."""

    view: View = View.BOXES
    sort: Sort = Sort.READERS
    reverse: bool = False
    filter: str = ""
    typing: bool = False
    selected: str = ""
    followed: FollowedThing | None = None
    paused: bool = False
    help: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class KeyContext:
    """The context of a key: the lines of the view in their order, and the number on a page."""

    lines: Sequence[ViewLine]
    page: int

    def position(self, selected: str) -> int:
        """Return the index of the line with that key; 0 if there is none."""
        return next((n for n, line in enumerate(self.lines) if line.key == selected), 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Action:
    """An action of ``keys``; ``shown`` is their name on the help page, ``short`` the
    bottom line's."""

    keys: tuple[str, ...]
    shown: str
    text: str
    do: Callable[[ViewState, KeyContext], ViewState | Effect]
    short: str = ""


def press(state: ViewState, key: str, seen: KeyContext) -> ViewState | Effect:
    """Return the state after ``key``, or the effect it asks for. An unknown key does nothing."""
    if key == keys.INTERRUPT:
        return Effect.QUIT
    if state.typing:
        return _typed(state, key)
    if state.help:
        return dataclasses.replace(state, help=False)
    action = BY_KEY.get(key)
    return state if action is None else action.do(state, seen)


def _typed(state: ViewState, key: str) -> ViewState:
    if key == keys.ENTER:
        return dataclasses.replace(state, typing=False)
    if key == keys.ESCAPE:
        return dataclasses.replace(state, typing=False, filter="")
    if key == keys.BACKSPACE:
        return dataclasses.replace(state, filter=state.filter[:-1])
    if len(key) == 1 and len(state.filter) < MAX_FILTER:
        return dataclasses.replace(state, filter=state.filter + key)
    return state


def _show(view: View) -> Callable[[ViewState, KeyContext], ViewState]:
    def do(state: ViewState, seen: KeyContext) -> ViewState:
        return dataclasses.replace(state, view=view, selected="", followed=None)

    return do


def _turn(by: int) -> Callable[[ViewState, KeyContext], ViewState]:
    def do(state: ViewState, seen: KeyContext) -> ViewState:
        views = list(View)
        return _show(views[(views.index(state.view) + by) % len(views)])(state, seen)

    return do


def _sort(sort: Sort) -> Callable[[ViewState, KeyContext], ViewState]:
    def do(state: ViewState, seen: KeyContext) -> ViewState:
        possible = sort in TABLES[state.view].sorts
        return dataclasses.replace(state, sort=sort, reverse=False) if possible else state

    return do


def _reverse(state: ViewState, seen: KeyContext) -> ViewState:
    return dataclasses.replace(state, reverse=not state.reverse)


def _move(pages: int, lines: int) -> Callable[[ViewState, KeyContext], ViewState]:
    def do(state: ViewState, seen: KeyContext) -> ViewState:
        if not seen.lines or state.followed is not None:
            return state
        wanted = seen.position(state.selected) + pages * seen.page + lines
        at = min(max(0, wanted), len(seen.lines) - 1)
        return dataclasses.replace(state, selected=seen.lines[at].key)

    return do


_FAR: Final = 1_000_000


def _follow(state: ViewState, seen: KeyContext) -> ViewState:
    if state.followed is not None or state.view not in FOLLOWED or not seen.lines:
        return state
    line = seen.lines[seen.position(state.selected)]
    everywhere = state.view in (View.TOPICS, View.PUBLISHERS)
    return dataclasses.replace(
        state,
        selected=line.key,
        followed=FollowedThing(state.view, line.name, None if everywhere else line.region),
    )


def _back(state: ViewState, seen: KeyContext) -> ViewState:
    if state.followed is not None:
        return dataclasses.replace(state, followed=None)
    return dataclasses.replace(state, filter="")


def _filter(state: ViewState, seen: KeyContext) -> ViewState:
    return dataclasses.replace(state, typing=True, followed=None)


def _pause(state: ViewState, seen: KeyContext) -> ViewState:
    return dataclasses.replace(state, paused=not state.paused)


def _help(state: ViewState, seen: KeyContext) -> ViewState:
    return dataclasses.replace(state, help=True)


def _effect(effect: Effect) -> Callable[[ViewState, KeyContext], Effect]:
    return lambda _state, _seen: effect


ACTIONS: Final[tuple[Action, ...]] = (
    *(
        Action((str(n),), str(n), f"show {view}", _show(view))
        for n, view in enumerate(View, start=1)
    ),
    Action((keys.TAB, keys.RIGHT), "Tab →", "the next table", _turn(1)),
    Action((keys.BACK_TAB, keys.LEFT), "S-Tab ←", "the one before", _turn(-1)),
    Action((keys.UP, "k"), "↑ k", "select the line above", _move(0, -1)),
    Action((keys.DOWN, "j"), "↓ j", "select the line below", _move(0, 1)),
    Action((keys.PAGE_UP,), "PgUp", "a page up", _move(-1, 0)),
    Action((keys.PAGE_DOWN,), "PgDn", "a page down", _move(1, 0)),
    Action((keys.HOME, "g"), "Home g", "the first line", _move(0, -_FAR)),
    Action((keys.END, "G"), "End G", "the last line", _move(0, _FAR)),
    Action((keys.ENTER,), "Enter", "follow the selected line alone", _follow, "follow"),
    Action((keys.ESCAPE,), "Esc", "back to the table; no filter", _back, "back"),
    Action(("/",), "/", "show lines with a text; Enter keeps it", _filter, "filter"),
    Action(("r",), "r", "sort by readers", _sort(Sort.READERS)),
    Action(("m",), "m", "sort by messages a second", _sort(Sort.RATE)),
    Action(("d",), "d", "sort by delay (p99)", _sort(Sort.DELAY)),
    Action(("a",), "a", "sort by age", _sort(Sort.AGE)),
    Action(("n",), "n", "sort by name", _sort(Sort.NAME)),
    Action(("i",), "i", "the other way round", _reverse, "invert"),
    Action((" ", "p"), "Space p", "stand still, and go on", _pause, "pause"),
    Action(("f",), "f", "ask the next region's frontdesk", _effect(Effect.NEXT_FRONTDESK)),
    Action(("?", "h"), "? h", "this page", _help, "help"),
    Action(("q",), "q", "leave", _effect(Effect.QUIT), "quit"),
)
BY_KEY: Final[Mapping[str, Action]] = {key: one for one in ACTIONS for key in one.keys}
