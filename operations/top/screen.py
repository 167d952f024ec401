"""The rows of the screen, from a board and an operator's view of it. Pure: rich's Text is a value.

Rows are cut to the width in cells, so that wide letters in a name don't move the text after it.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from operations.board_document import Board, BoardBox, BoardRegion, Service
from operations.top import words
from operations.top.lines import (
    TABLES,
    Column,
    Mood,
    Sort,
    View,
    ViewLine,
    fitting,
    sorted_lines,
    state_mood,
)
from operations.top.state import ACTIONS, FollowedThing, KeyContext, ViewState

# Updates arrive each second: an older board (ms) is shown with its age.
OLD_MS: Final = 3_000
# The largest number of updates that the bars of a followed thing show.
TRAIL: Final = 300
_REASONS: Final = 2
_ENDLESS: Final = 1_000_000

_Named = TypeVar("_Named", BoardBox, Service)

_STYLES: Final = {
    Mood.WELL: "",
    Mood.WARNING: "yellow",
    Mood.BAD: "bold red",
    Mood.DIM: "dim",
}
_REGION_MOODS: Final = {"well": Mood.WELL, "troubled": Mood.WARNING, "away": Mood.BAD}
_REGION_COLUMNS: Final = (
    Column("REGION", 0, left=True),
    Column("STATE", 8, left=True),
    Column("AGE", 5),
    Column("BOXES", 7, spare=2),
    Column("READERS", 8),
    Column("LOAD", 4, spare=3),
    Column("MSG/S", 6, spare=4),
    Column("SENT/S", 7, spare=1),
    Column("CONN/S", 6, spare=6),
    Column("P50", 5, spare=5),
    Column("P99", 5),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BoardState:
    """The data from frontdesks: the last board, its age (ms), and a notice for the operator."""

    board: Board | None = None
    old_ms: float = 0.0
    notice: str = ""


class Trail:
    """The last values of the followed thing, for the bars; at most :data:`TRAIL`."""

    def __init__(self) -> None:
        self._of: FollowedThing | None = None
        self._values: dict[str, collections.deque[float | None]] = {}

    def note(self, followed: FollowedThing | None, board: Board) -> None:
        """Add the values of a new board, or begin anew if another thing is followed."""
        if followed != self._of:
            self._of, self._values = followed, {}
        if followed is None:
            return
        new = dict(_traced(followed, board))
        for name in new.keys() | self._values.keys():
            # A region that joins has a shorter trail; one that leaves gets unknown values.
            trail = self._values.setdefault(name, collections.deque(maxlen=TRAIL))
            trail.append(new.get(name))

    def of(self, name: str) -> list[float | None]:
        """Return the values of ``name`` so far, the newest last."""
        return list(self._values.get(name, ()))


def lines_of(board: Board | None, state: ViewState) -> list[ViewLine]:
    """Return the lines of the view in ``state``."""
    if board is None:
        return []
    return sorted_lines(board, state.view, state.sort, reverse=state.reverse, text=state.filter)


def screen(feed: BoardState, state: ViewState, trail: Trail, width: int, height: int) -> list[Text]:
    """Return exactly ``height`` rows of ``width`` cells."""
    head = _head(feed, state, width, height)
    foot = [_foot(state, width)]
    room = max(0, height - len(head) - len(foot))
    if state.help:
        body = _help(width)
    elif feed.board is None:
        body = [_row(width, Text("no board yet", style="dim"))]
    elif state.followed is not None:
        body = list(_followed(feed.board, state.followed, trail, width))
    else:
        body = _table(lines_of(feed.board, state), state, width, room)
    rows = [*head[: max(0, height - 1)], *body[:room]]
    rows += [_row(width, Text("")) for _ in range(height - len(rows) - len(foot))]
    return [*rows, *foot][:height]


def page_of(feed: BoardState, state: ViewState, width: int, height: int) -> KeyContext:
    """Return the context of a key on a screen of that size."""
    room = height - len(_head(feed, state, width, height)) - 2
    return KeyContext(lines_of(feed.board, state), max(1, room))


def listing(board: Board, state: ViewState, width: int) -> list[Text]:
    """Return all rows at once, for a pipe or a file: without keys, and not cut to a page."""
    rows = [*_head(BoardState(board=board), state, width)[:-1], _row(width, Text(""))]
    trail = Trail()
    if state.followed is not None:
        return rows + list(_followed(board, state.followed, trail, width))
    lines = lines_of(board, state)
    return rows + _table(lines, dataclasses.replace(state, selected="-"), width, len(lines) + 1)


def has_gone(board: Board, followed: FollowedThing) -> bool:
    """Return whether the followed thing should be on the board and isn't.

    A board has only the busiest topics and publishers, so the absence of one means nothing.
    """
    if followed.view is View.BOXES:
        return _find(board.all(lambda region: region.boxes), followed) is None
    if followed.view is View.SERVICES:
        return _find(board.all(lambda region: region.services), followed) is None
    return False


# --- the top ---


def _head(feed: BoardState, state: ViewState, width: int, height: int = _ENDLESS) -> list[Text]:
    """Return the rows above the table; at most half of a screen of ``height``, if possible."""
    board = feed.board
    title = Text("newsfabric top", style="bold")
    if board is not None:
        title.append(f"  {board.frontdesk} in {board.region}  {board.version}", style="")
    rows = [_two_sides(width, title, _freshness(feed, state))]
    if feed.notice:
        rows.append(_row(width, Text(f"! {feed.notice}", style="yellow")))
    if state.help:
        return rows
    if board is not None:
        reasons = sum(
            min(_REASONS + 1, len(region.why)) + region.is_unheard for region in board.regions
        )
        fits = len(rows) + len(board.regions) + reasons + 2 <= height // 2
        rows += _regions(board, width, _REASONS if fits else 0)
    rows.append(_tabs(state, width))
    return rows


def _freshness(feed: BoardState, state: ViewState) -> Text:
    if feed.board is None:
        return Text("")
    at = words.clock(feed.board.now)
    if state.paused:
        return Text(f"paused {at}", style="reverse")
    if feed.old_ms > OLD_MS:
        return Text(f"{words.span(feed.old_ms)} old", style="bold red")
    return Text(f"{at} UTC")


def _regions(board: Board, width: int, reasons: int) -> Iterator[Text]:
    fit = fitting(_REGION_COLUMNS, width, 8)
    yield _cells([column.title for column in _REGION_COLUMNS], _REGION_COLUMNS, fit, width, "dim")
    for region in board.regions:
        mood = _REGION_MOODS.get(region.state, Mood.WARNING)
        yield _cells(_region_cells(region), _REGION_COLUMNS, fit, width, _STYLES[mood])
        if region.is_unheard and reasons:
            yield _row(width, Text(f"  {words.not_heard(region.age)}", style=_STYLES[mood]))
        for why in region.why[:reasons]:
            yield _row(width, Text(f"  {why}", style=_STYLES[mood]))
        if len(region.why) > reasons > 0:
            more = f"  and {len(region.why) - reasons} more"
            yield _row(width, Text(more, style=_STYLES[mood]))


def _region_cells(region: BoardRegion) -> list[str]:
    head = [region.name, region.state, words.span(region.age)]
    if region.is_unheard:
        # Its numbers are as old as its last report.
        return [*head, *([words.UNKNOWN] * (len(_REGION_COLUMNS) - len(head)))]
    totals = region.totals
    return [
        *head,
        f"{words.count(totals.boxes_ready)}/{words.count(totals.boxes)}",
        words.count(totals.readers),
        words.share(totals.readers, totals.capacity),
        words.rate(totals.messages),
        words.rate(totals.deliveries),
        words.rate(totals.connects),
        words.ms(totals.delay_p50),
        words.ms(totals.delay_p99),
    ]


def _tabs(state: ViewState, width: int) -> Text:
    row = Text()
    for n, view in enumerate(View, start=1):
        row.append(f" {n} {view} ", style="reverse" if view is state.view else "dim")
    return _row(width, row)


# --- a table ---


def _table(lines: Sequence[ViewLine], state: ViewState, width: int, room: int) -> list[Text]:
    columns = TABLES[state.view].columns
    longest = max((cell_len(line.name) for line in lines), default=0)
    fit = fitting(columns, width, min(max(16, longest), width // 3))
    titles = [_title(column, state) for column in columns]
    rows = [_cells(titles, columns, fit, width, "bold")]
    if not lines:
        text = f"nothing with {state.filter!r}" if state.filter else "nothing here"
        return [*rows, _row(width, Text(text, style="dim"))]
    at = KeyContext(lines, 1).position(state.selected)
    first = max(0, min(at - (room - 1) // 2, len(lines) - (room - 1)))
    for n, line in enumerate(lines[first : first + max(1, room - 1)], start=first):
        chosen = n == at and state.selected != "-"
        style = f"{_STYLES[line.mood]} reverse" if chosen else _STYLES[line.mood]
        rows.append(_cells(line.cells, columns, fit, width, style))
    return rows


_SORTED: Final = {
    Sort.NAME: ("BOX", "PROCESS", "SHOVEL", "NODE", "TOPIC", "PUBLISHER"),
    Sort.READERS: ("READERS",),
    Sort.RATE: ("SENT/S", "MSG/S"),
    Sort.DELAY: ("P99",),
    Sort.AGE: ("CANARY", "AGE"),
}


def _title(column: Column, state: ViewState) -> str:
    """Return the column's title, marked if the table is sorted by it."""
    table = TABLES[state.view]
    if not table.sorts:
        return column.title
    sort = state.sort if state.sort in table.sorts else table.sorts[0]
    titles = {one.title for one in table.columns}
    by = next((title for title in _SORTED[sort] if title in titles), None)
    if column.title != by:
        return column.title
    falling = (sort is Sort.NAME) == state.reverse
    mark = "▼" if falling else "▲"
    if column.width and len(column.title) >= column.width:
        return column.title[: column.width - 1] + mark
    return column.title + mark


# --- one thing ---


_ONE_OF: Final = {
    View.BOXES: "box",
    View.SERVICES: "process",
    View.TOPICS: "topic",
    View.PUBLISHERS: "publisher",
}


def _followed(board: Board, followed: FollowedThing, trail: Trail, width: int) -> Iterator[Text]:
    yield _row(width, Text(f"{_ONE_OF[followed.view]} {followed.name}", style="bold"))
    if followed.view is View.BOXES:
        box = _find(board.all(lambda region: region.boxes), followed)
        yield from _gone(width, followed) if box is None else _box(board, box, trail, width)
    elif followed.view is View.SERVICES:
        one = _find(board.all(lambda region: region.services), followed)
        yield from _gone(width, followed) if one is None else _service(board, one, width)
    else:
        yield from _busy(board, followed, trail, width)
    yield from _events_of(board, followed, width)


def _find(all_of_them: Iterable[_Named], followed: FollowedThing) -> _Named | None:
    return next(
        (
            one
            for one in all_of_them
            if one.name == followed.name and followed.region in (None, one.region)
        ),
        None,
    )


def _gone(width: int, followed: FollowedThing) -> Iterator[Text]:
    yield _row(width, Text("is not on this board", style="bold red"))


def _box(board: Board, box: BoardBox, trail: Trail, width: int) -> Iterator[Text]:
    yield _state_row(width, box)
    yield from _pairs(
        width,
        [
            ("readers", f"{words.count(box.readers)} of {words.count(box.capacity)}"),
            ("engine", box.engine),
            ("version", box.version),
            ("runs", _runs(board, box.started)),
            ("age", words.span(box.age)),
            ("region", box.region),
        ],
    )
    for name, value in _box_values(box):
        shown = words.ms(value) if name.startswith("delay") else words.rate(value)
        yield _bars(width, name, shown, trail.of(name))
    yield from _figures(width, box.figures.items())


def _service(board: Board, one: Service, width: int) -> Iterator[Text]:
    yield _state_row(width, one)
    yield from _pairs(
        width,
        [
            ("kind", one.kind),
            ("version", one.version),
            ("runs", _runs(board, one.started)),
            ("age", words.span(one.age)),
            ("region", one.region),
        ],
    )
    yield from _figures(width, one.figures.items())


def _busy(board: Board, followed: FollowedThing, trail: Trail, width: int) -> Iterator[Text]:
    found = dict(_traced(followed, board))
    if not found:
        text = "is not among the busiest of any region"
        yield _row(width, Text(text, style="dim"))
    for region in board.regions:
        if trail.of(region.name) or region.name in found:
            shown = words.rate(found.get(region.name))
            yield _bars(width, region.name, f"{shown}/s", trail.of(region.name))


def _traced(followed: FollowedThing, board: Board) -> Iterator[tuple[str, float | None]]:
    """Yield the names and values that bars are drawn of."""
    if followed.view is View.BOXES:
        box = _find(board.all(lambda region: region.boxes), followed)
        yield from () if box is None else _box_values(box)
    elif followed.view in (View.TOPICS, View.PUBLISHERS):
        for region in board.regions:
            all_of_them = region.topics if followed.view is View.TOPICS else region.publishers
            for one in all_of_them:
                if one.name == followed.name:
                    yield region.name, one.messages


def _box_values(box: BoardBox) -> list[tuple[str, float | None]]:
    return [
        ("readers", box.readers),
        ("messages/s", box.messages),
        ("sent/s", box.deliveries),
        ("connects/s", box.connects),
        ("delay p50", box.delay_p50),
        ("delay p99", box.delay_p99),
    ]


def _events_of(board: Board, followed: FollowedThing, width: int) -> Iterator[Text]:
    about = [one for one in board.events if one.who == followed.name]
    for one in about[:-6:-1]:
        yield _row(width, Text(f"{words.clock(one.at)}  {one.text}"))


def _state_row(width: int, one: BoardBox | Service) -> Text:
    waits = f", waits for {', '.join(one.waiting_for)}" if one.waiting_for else ""
    text = words.not_heard(one.age) if one.state == "unheard" else f"{one.state}{waits}"
    return _row(width, Text(text, style=_STYLES[state_mood(one.state)]))


def _runs(board: Board, started: float | None) -> str:
    return words.UNKNOWN if started is None else words.span(max(0.0, board.now - started))


def _pairs(width: int, pairs: Sequence[tuple[str, str]]) -> Iterator[Text]:
    row = Text()
    for name, value in pairs:
        piece = f"{name} {value}"
        if row and cell_len(row.plain) + cell_len(piece) + 3 > width:
            yield _row(width, row)
            row = Text()
        row.append("   " if row else "")
        row.append(f"{name} ", style="dim")
        row.append(value)
    yield _row(width, row)


def _bars(width: int, name: str, value: str, values: list[float | None]) -> Text:
    row = Text(f"{set_cell_size(name, 16)} {value:>9}  ")
    row.append(words.spark(values, width - 28), style="cyan")
    return _row(width, row)


def _figures(width: int, figures: Iterable[tuple[str, float]]) -> Iterator[Text]:
    """Yield metrics sorted by name, in as many columns as fit."""
    cell = 38
    across = max(1, (width + 2) // (cell + 2))
    pieces = []
    for name, value in sorted(figures):
        text = words.figure(name, value)
        room = min(cell, width) - cell_len(text) - 1
        pieces.append(f"{set_cell_size(name, max(1, room))} {text}")
    down = -(-len(pieces) // across)
    for n in range(down):
        yield _row(width, Text("  ".join(pieces[n::down]), style="dim"))


# --- the bottom ---


def _foot(state: ViewState, width: int) -> Text:
    if state.typing:
        return _row(width, Text(f"/{state.filter}▏", style="bold"))
    row = Text()
    if state.filter:
        row.append(f" /{state.filter} ", style="reverse")
    sorts = "".join(sort[0] if sort is not Sort.RATE else "m" for sort in TABLES[state.view].sorts)
    shown = [(one.shown.split(" ")[0], one.short) for one in ACTIONS if one.short]
    for key, what in [*([(sorts, "sort")] if sorts else []), *shown]:
        row.append(f" {key}", style="bold")
        row.append(f" {what}", style="dim")
    return _row(width, row)


def _help(width: int) -> list[Text]:
    cell = 38
    across = 2 if width >= 2 * cell + 2 else 1
    pieces = [f"{set_cell_size(one.shown, 8)} {one.text}" for one in ACTIONS]
    down = -(-len(pieces) // across)
    rows = [Text("Keys; any one leaves this page", style="bold")]
    for n in range(down):
        rows.append(Text("  ".join(set_cell_size(piece, cell) for piece in pieces[n::down])))
    return [_row(width, row) for row in rows]


# --- rows ---


def _cells(
    texts: Sequence[str],
    columns: Sequence[Column],
    fit: Sequence[tuple[int, int]],
    width: int,
    style: str,
) -> Text:
    return _row(width, Text(" ".join(_cell(texts[n], w, columns[n]) for n, w in fit), style=style))


def _cell(text: str, width: int, column: Column) -> str:
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, width - 1) + "…"
    return text + " " * (width - size) if column.left else " " * (width - size) + text


def _two_sides(width: int, left: Text, right: Text) -> Text:
    row = left.copy()
    room = width - cell_len(right.plain) - 1
    row.truncate(max(0, room), overflow="ellipsis")
    row.append(" " * max(0, width - cell_len(row.plain) - cell_len(right.plain)))
    row.append_text(right)
    return _row(width, row)


def _row(width: int, row: Text) -> Text:
    row.truncate(width, overflow="ellipsis", pad=True)
    row.end = ""
    # Rendering a text by itself leaves out its own style (rich 15).
    row.stylize_before(row.style)
    return row
