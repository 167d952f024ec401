"""The tables of ``newsfabric top``: the columns of each, and the lines of a board. Pure.

A column without room is left out, the least needed first; the name gets the remaining width.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from operations.board_document import (
    Board,
    BoardBox,
    BoardBusy,
    BoardEvent,
    BoardNode,
    BoardRegion,
    Service,
    Shovel,
)
from operations.top import words

# Ages (ms) of a canary, which arrives each second: it is late; its shovel will soon be remade.
LATE_MS: Final = 3_000
STALE_MS: Final = 10_000


class View(enum.StrEnum):
    """The tables."""

    BOXES = "boxes"
    SERVICES = "services"
    SHOVELS = "shovels"
    NODES = "nodes"
    TOPICS = "topics"
    PUBLISHERS = "publishers"
    EVENTS = "events"


class Sort(enum.StrEnum):
    """The keys to sort by. All but names begin with the largest."""

    NAME = "name"
    READERS = "readers"
    RATE = "rate"
    DELAY = "delay"
    AGE = "age"


class Mood(enum.StrEnum):
    """The condition that a line shows."""

    WELL = "well"
    WARNING = "warning"
    BAD = "bad"
    DIM = "dim"


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """``width`` in cells; 0 for the column that gets the remaining width. ``spare``: the column
    with the highest is left out first, one with 0 never."""

    title: str
    width: int
    spare: int = 0
    left: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ViewLine:
    """A line. ``key`` identifies the thing that it shows, as long as that exists."""

    key: str
    name: str
    region: str
    cells: tuple[str, ...]
    mood: Mood
    by: Mapping[Sort, float | None]

    def has(self, text: str) -> bool:
        """Return whether a cell contains ``text``, in any case."""
        wanted = text.casefold()
        return any(wanted in cell.casefold() for cell in (*self.cells, self.region))


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A view: its columns, its lines, and the keys it can be sorted by, the default first."""

    columns: tuple[Column, ...]
    lines: Callable[[Board], Iterator[ViewLine]]
    sorts: tuple[Sort, ...]


def sorted_lines(
    board: Board, view: View, sort: Sort, *, reverse: bool, text: str
) -> list[ViewLine]:
    """Return the lines of ``view`` with ``text``, sorted; lines without a number are last."""
    table = TABLES[view]
    found = [line for line in table.lines(board) if not text or line.has(text)]
    if view is View.EVENTS:
        # As they happened, the newest first: events have no other order.
        return found if reverse else found[::-1]
    sort = sort if sort in table.sorts else table.sorts[0]
    found.sort(key=lambda line: (line.name, line.key), reverse=sort is Sort.NAME and reverse)
    if sort is not Sort.NAME:
        sign = 1 if reverse else -1
        found.sort(key=lambda line: _rank(line.by.get(sort), sign))
    return found


def _rank(value: float | None, sign: int) -> float:
    return math.inf if value is None else sign * value


def fitting(columns: Sequence[Column], width: int, least: int = 16) -> list[tuple[int, int]]:
    """Return the columns that fit into ``width`` cells, as (index, cells), a space between two.

    Columns are left out until the column of width 0 has at least ``least`` cells.
    """
    kept = list(range(len(columns)))
    while True:
        taken = sum(columns[n].width for n in kept) + len(kept) - 1
        spare = max(kept, key=lambda n: columns[n].spare)
        if width - taken >= least or columns[spare].spare == 0:
            break
        kept.remove(spare)
    left = max(1, width - taken)
    return [(n, columns[n].width or left) for n in kept]


def box_lines(board: Board) -> Iterator[ViewLine]:
    """Yield a line for each box."""
    for box in board.all(lambda region: region.boxes):
        yield ViewLine(
            key=f"{box.region}/{box.name}",
            name=box.name,
            region=box.region,
            mood=state_mood(box.state),
            by={
                Sort.READERS: box.readers,
                Sort.RATE: box.deliveries,
                Sort.DELAY: box.delay_p99,
                Sort.AGE: box.age,
            },
            cells=_box_cells(box),
        )


def _box_cells(box: BoardBox) -> tuple[str, ...]:
    return (
        box.name,
        box.state,
        words.count(box.readers),
        words.share(box.readers, box.capacity),
        words.rate(box.messages),
        words.rate(box.deliveries),
        words.rate(box.connects),
        words.ms(box.delay_p50),
        words.ms(box.delay_p99),
        words.span(box.age),
        box.engine,
        box.version,
        box.region,
        _remark(box),
    )


def _remark(one: BoardBox | Service) -> str:
    if one.state == "unheard":
        return words.not_heard(one.age)
    return ", ".join(one.waiting_for)


def service_lines(board: Board) -> Iterator[ViewLine]:
    """Yield a line for each process beside a core."""
    for one in board.all(lambda region: region.services):
        running = None if one.started is None else max(0.0, board.now - one.started)
        yield ViewLine(
            key=f"{one.region}/{one.name}",
            name=one.name,
            region=one.region,
            mood=state_mood(one.state),
            by={Sort.AGE: one.age},
            cells=(
                one.name,
                one.kind,
                one.state,
                words.span(one.age),
                words.span(running),
                one.version,
                one.region,
                _remark(one),
            ),
        )


def shovel_lines(board: Board) -> Iterator[ViewLine]:
    """Yield a line for each shovel."""
    for one in board.all(lambda region: region.shovels):
        yield ViewLine(
            key=f"{one.region}/{one.runs_on}/{one.name}",
            name=one.name,
            region=one.region,
            mood=_shovel_mood(one),
            by={Sort.AGE: one.canary_age, Sort.RATE: one.messages},
            cells=(
                one.name,
                one.runs_on,
                one.source,
                one.state,
                words.span(one.canary_age),
                words.rate(one.messages),
                words.count(one.restarts),
            ),
        )


def node_lines(board: Board) -> Iterator[ViewLine]:
    """Yield a line for each RabbitMQ node."""
    for one in board.all(lambda region: region.nodes):
        yield ViewLine(
            key=f"{one.cluster}/{one.name}",
            name=one.name,
            region=one.region,
            mood=_node_mood(one),
            by={Sort.AGE: one.age},
            cells=(one.name, one.cluster, _node_state(one), words.span(one.age), one.alarm),
        )


def _node_mood(one: BoardNode) -> Mood:
    if one.is_unheard:
        return Mood.DIM
    return Mood.BAD if not one.running else Mood.WARNING if one.alarm else Mood.WELL


def _node_state(one: BoardNode) -> str:
    if one.is_unheard:
        return "unheard"
    return "running" if one.running else "away"


def topic_lines(board: Board) -> Iterator[ViewLine]:
    """Return the busiest topics of each region that is heard."""
    return (_busy_line(one) for region in _recent_regions(board) for one in region.topics)


def publisher_lines(board: Board) -> Iterator[ViewLine]:
    """Return the busiest publishers of each region that is heard."""
    return (_busy_line(one) for region in _recent_regions(board) for one in region.publishers)


def _recent_regions(board: Board) -> Iterator[BoardRegion]:
    return (region for region in board.regions if not region.is_unheard)


def _busy_line(one: BoardBusy) -> ViewLine:
    return ViewLine(
        key=f"{one.region}/{one.name}",
        name=one.name,
        region=one.region,
        mood=Mood.WELL,
        by={Sort.RATE: one.messages},
        cells=(one.name, one.region, words.rate(one.messages)),
    )


def event_lines(board: Board) -> Iterator[ViewLine]:
    """Yield a line for each event."""
    for one in board.events:
        yield ViewLine(
            key=str(one.seq),
            name=one.who,
            region=one.region,
            mood=_event_mood(one),
            by={},
            cells=(words.clock(one.at), one.region, one.who, one.text),
        )


def state_mood(state: str) -> Mood:
    """Return the mood of a process in ``state``."""
    if state in ("ready", "left"):
        return Mood.WELL
    if state == "unheard":
        return Mood.DIM
    return Mood.BAD if state == "gone" else Mood.WARNING


def _shovel_mood(one: Shovel) -> Mood:
    if one.state == "unknown":
        return Mood.DIM
    if one.state != "running" or (one.canary_age is not None and one.canary_age > STALE_MS):
        return Mood.BAD
    return Mood.WARNING if (one.canary_age or 0.0) > LATE_MS else Mood.WELL


def _event_mood(one: BoardEvent) -> Mood:
    if one.kind.endswith(("_gone", "_away", "_silent")):
        return Mood.BAD
    return Mood.WELL if one.kind.endswith(("_back", "_ready")) else Mood.WARNING


TABLES: Final[Mapping[View, Table]] = {
    View.BOXES: Table(
        (
            Column("BOX", 0, left=True),
            Column("STATE", 8, left=True),
            Column("READERS", 8),
            Column("LOAD", 4, spare=3),
            Column("MSG/S", 6, spare=4),
            Column("SENT/S", 7, spare=1),
            Column("CONN/S", 6, spare=6),
            Column("P50", 5, spare=5),
            Column("P99", 5),
            Column("AGE", 5, spare=2),
            Column("ENGINE", 7, spare=8, left=True),
            Column("VERSION", 9, spare=9, left=True),
            Column("REGION", 12, spare=7, left=True),
            Column("WAITS FOR", 24, spare=10, left=True),
        ),
        box_lines,
        (Sort.READERS, Sort.RATE, Sort.DELAY, Sort.AGE, Sort.NAME),
    ),
    View.SERVICES: Table(
        (
            Column("PROCESS", 0, left=True),
            Column("KIND", 9, left=True),
            Column("STATE", 8, left=True),
            Column("AGE", 5),
            Column("RUNS", 5),
            Column("VERSION", 9, spare=1, left=True),
            Column("REGION", 12, spare=3, left=True),
            Column("WAITS FOR", 20, spare=2, left=True),
        ),
        service_lines,
        (Sort.NAME, Sort.AGE),
    ),
    View.SHOVELS: Table(
        (
            Column("SHOVEL", 0, left=True),
            Column("RUNS ON", 17, left=True),
            Column("FROM", 15, spare=1, left=True),
            Column("STATE", 10, left=True),
            Column("CANARY", 7),
            Column("MSG/S", 6, spare=2),
            Column("MADE", 4, spare=3),
        ),
        shovel_lines,
        (Sort.AGE, Sort.RATE, Sort.NAME),
    ),
    View.NODES: Table(
        (
            Column("NODE", 0, left=True),
            Column("CLUSTER", 24, left=True),
            Column("STATE", 8, left=True),
            Column("AGE", 5),
            Column("ALARM", 8, left=True),
        ),
        node_lines,
        (Sort.NAME, Sort.AGE),
    ),
    View.TOPICS: Table(
        (
            Column("TOPIC", 0, left=True),
            Column("REGION", 16, left=True),
            Column("MSG/S", 6),
        ),
        topic_lines,
        (Sort.RATE, Sort.NAME),
    ),
    View.PUBLISHERS: Table(
        (
            Column("PUBLISHER", 0, left=True),
            Column("REGION", 16, left=True),
            Column("MSG/S", 6),
        ),
        publisher_lines,
        (Sort.RATE, Sort.NAME),
    ),
    View.EVENTS: Table(
        (
            Column("AT", 8, left=True),
            Column("REGION", 12, spare=1, left=True),
            Column("WHO", 20, left=True),
            Column("WHAT", 0, left=True),
        ),
        event_lines,
        (),
    ),
}
