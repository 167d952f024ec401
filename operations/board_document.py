"""A board's document (``GET /board.json``) as values, for `newsfabric top` and the mirror. Pure.

The document comes from another machine, its names from further away, and all of it is shown in a
terminal. So every text is bounded and without unprintable characters: an escape sequence in a
topic's name is shown, not obeyed. A missing field, or one of another type, is unknown (None, or
empty), never an error: a frontdesk of another release must not blind the operator. ValueError only
for a document that isn't a board at all.

Two other parsers differ on purpose. A frontdesk passes another's reply on to browsers in its own
document, and so takes all of it or nothing (wholesale.frontdesk.board.answers_elsewhere). The page
has its own in JavaScript (wholesale/frontdesk/pages/files/board-document.js), as lenient as this
one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from newsfabric.messages.reports import MAX_FIGURES, MAX_REASONS, MAX_TEXT, OLD_MS
from newsfabric.numbers import is_number

MAX_REGIONS: Final = 64
# Items of one kind in one region.
MAX_ITEMS: Final = 10_000
MAX_EVENTS: Final = 100
_MAX_NUMBER: Final = 1e15

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RegionTotals:
    """A region's sums. Rates are per second, delays in ms."""

    readers: float | None
    capacity: float | None
    boxes: float | None
    boxes_ready: float | None
    messages: float | None
    deliveries: float | None
    connects: float | None
    delay_p50: float | None
    delay_p99: float | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BoardBox:
    """A retail box. Rates are per second, delays and ages in ms.

    ``state`` is ``unheard`` without a recent report, as for a service.
    """

    region: str
    name: str
    state: str
    waiting_for: tuple[str, ...]
    readers: float | None
    capacity: float | None
    messages: float | None
    deliveries: float | None
    connects: float | None
    delay_p50: float | None
    delay_p99: float | None
    engine: str
    version: str
    age: float | None
    started: float | None
    figures: Mapping[str, float]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A process of a region's core. ``started`` in ms since the epoch."""

    region: str
    name: str
    kind: str
    version: str
    state: str
    waiting_for: tuple[str, ...]
    age: float | None
    started: float | None
    figures: Mapping[str, float]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shovel:
    """A shovel as its owner sees it; ``canary_age`` in ms."""

    region: str
    name: str
    runs_on: str
    source: str
    state: str
    canary_age: float | None
    messages: float | None
    restarts: float | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BoardNode:
    """A RabbitMQ node of a cluster; ``age`` is the age (ms) of the last report of it."""

    region: str
    cluster: str
    name: str
    running: bool
    alarm: str
    age: float | None

    @property
    def is_unheard(self) -> bool:
        """True without a recent report of the node."""
        return _is_old(self.age)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BoardBusy:
    """A topic or a publisher, and its messages a second."""

    region: str
    name: str
    messages: float | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BoardEvent:
    """An event on the board; ``seq`` counts within one frontdesk's life."""

    seq: int
    at: float | None
    region: str
    kind: str
    who: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BoardRegion:
    """A region, and the age (ms) of its data."""

    name: str
    frontdesk_url: str
    age: float | None
    state: str
    why: tuple[str, ...]
    totals: RegionTotals
    boxes: tuple[BoardBox, ...]
    services: tuple[Service, ...]
    shovels: tuple[Shovel, ...]
    nodes: tuple[BoardNode, ...]
    topics: tuple[BoardBusy, ...]
    publishers: tuple[BoardBusy, ...]

    @property
    def is_unheard(self) -> bool:
        """True if all data of the region are old."""
        return self.state == "away" or _is_old(self.age)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The reply of one frontdesk; ``now`` is its clock, in ms since the epoch."""

    frontdesk: str
    region: str
    version: str
    now: float
    regions: tuple[BoardRegion, ...]
    events: tuple[BoardEvent, ...]

    def all(self, of: Callable[[BoardRegion], tuple[_T, ...]]) -> Iterator[_T]:
        """Yield the items that ``of`` returns for each region, one after the other."""
        for region in self.regions:
            yield from of(region)


def with_events_before(board: Board, before: Board | None) -> Board:
    """Return ``board``, which has only new events, with the events of ``before`` too, if both are
    of the same life of a frontdesk."""
    if before is None or before.frontdesk != board.frontdesk:
        return board
    first = board.events[0].seq if board.events else None
    last = before.events[-1].seq if before.events else 0
    if first is not None and first <= last:
        return board
    return dataclasses.replace(board, events=(*before.events, *board.events)[-MAX_EVENTS:])


def plain(value: Any) -> str:
    """Return ``value`` if it is text, bounded, with unprintable characters escaped."""
    if not isinstance(value, str):
        return ""
    text = value if len(value) <= MAX_TEXT else f"{value[: MAX_TEXT - 1]}…"
    # Controls, and characters that change the direction of writing, aren't printable.
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def parse_board(document: Any) -> Board:
    """Return the board in a parsed ``board.json``; ValueError if it isn't one."""
    if not isinstance(document, dict) or not isinstance(document.get("regions"), list):
        raise ValueError("not a board: it has no regions")
    events = sorted(
        (_event(one) for one in _dicts(document, "events", MAX_EVENTS)), key=lambda one: one.seq
    )
    return Board(
        frontdesk=plain(document.get("frontdesk")),
        region=plain(document.get("region")),
        version=plain(document.get("version")),
        now=_number(document, "now_ms") or 0.0,
        regions=tuple(_region(one) for one in _dicts(document, "regions", MAX_REGIONS)),
        events=tuple(events),
    )


def _region(fields: dict[str, Any]) -> BoardRegion:
    name = plain(fields.get("name"))
    age = _number(fields, "age_ms")
    state = plain(fields.get("state"))
    # Ages of a region's items are as of its own frontdesk's reply.
    aged = _Aged(name, age or 0.0)
    return BoardRegion(
        name=name,
        frontdesk_url=plain(fields.get("frontdesk_url")),
        age=age,
        state=state,
        why=_texts(fields, "why"),
        totals=_totals(fields.get("totals")),
        boxes=tuple(_box(aged, one) for one in _dicts(fields, "boxes")),
        services=tuple(_service(aged, one) for one in _dicts(fields, "services")),
        shovels=tuple(
            _unvouched(_shovel(name, one), aged) if state == "away" else _shovel(name, one)
            for one in _dicts(fields, "shovels")
        ),
        nodes=tuple(
            _node(aged, plain(cluster.get("name")), one)
            for cluster in _dicts(fields, "clusters", MAX_REGIONS)
            for one in _dicts(cluster, "nodes", MAX_REGIONS)
        ),
        topics=tuple(_busy(name, one) for one in _dicts(fields, "topics")),
        publishers=tuple(_busy(name, one) for one in _dicts(fields, "publishers")),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Aged:
    """The region of an item, and the age (ms) of the region's data."""

    name: str
    age: float

    def of(self, fields: Mapping[str, Any]) -> float | None:
        """Return how long ago the last report of an item was received."""
        age = _number(fields, "age_ms")
        return None if age is None else age + self.age


def _is_old(age: float | None) -> bool:
    return age is not None and age > OLD_MS


def _totals(value: Any) -> RegionTotals:
    fields = value if isinstance(value, dict) else {}
    return RegionTotals(
        readers=_number(fields, "readers"),
        capacity=_number(fields, "capacity"),
        boxes=_number(fields, "boxes"),
        boxes_ready=_number(fields, "boxes_ready"),
        messages=_number(fields, "messages_per_second"),
        deliveries=_number(fields, "deliveries_per_second"),
        connects=_number(fields, "connects_per_second"),
        delay_p50=_number(fields, "delay_p50_ms"),
        delay_p99=_number(fields, "delay_p99_ms"),
    )


def _box(region: _Aged, fields: dict[str, Any]) -> BoardBox:
    return BoardBox(
        region=region.name,
        name=plain(fields.get("name")),
        state=_state(fields, region.of(fields)),
        waiting_for=_texts(fields, "waiting_for"),
        readers=_number(fields, "readers"),
        capacity=_number(fields, "capacity"),
        messages=_number(fields, "messages_per_second"),
        deliveries=_number(fields, "deliveries_per_second"),
        connects=_number(fields, "connects_per_second"),
        delay_p50=_number(fields, "delay_p50_ms"),
        delay_p99=_number(fields, "delay_p99_ms"),
        engine=plain(fields.get("engine")),
        version=plain(fields.get("version")),
        age=region.of(fields),
        started=_number(fields, "started_ms"),
        figures=_figures(fields),
    )


def _state(fields: Mapping[str, Any], age: float | None) -> str:
    """Return ``left`` for a process with a drain order, ``unheard`` without a recent report."""
    state = plain(fields.get("state"))
    if state == "gone":
        return "left" if fields.get("left") is True else state
    return "unheard" if _is_old(age) else state


def _service(region: _Aged, fields: dict[str, Any]) -> Service:
    return Service(
        region=region.name,
        name=plain(fields.get("name")),
        kind=plain(fields.get("kind")),
        version=plain(fields.get("version")),
        state=_state(fields, region.of(fields)),
        waiting_for=_texts(fields, "waiting_for"),
        age=region.of(fields),
        started=_number(fields, "started_ms"),
        figures=_figures(fields),
    )


def _shovel(region: str, fields: dict[str, Any]) -> Shovel:
    return Shovel(
        region=region,
        name=plain(fields.get("name")),
        runs_on=plain(fields.get("runs_on")),
        source=plain(fields.get("source")),
        state=plain(fields.get("state")),
        canary_age=_number(fields, "canary_age_ms"),
        messages=_number(fields, "messages_per_second"),
        restarts=_number(fields, "restarts"),
    )


def _unvouched(shovel: Shovel, region: _Aged) -> Shovel:
    """Return the shovel of a region that is away, whose present state is unknown."""
    age = None if shovel.canary_age is None else shovel.canary_age + region.age
    return dataclasses.replace(shovel, state="unknown", canary_age=age, messages=None)


def _node(region: _Aged, cluster: str, fields: dict[str, Any]) -> BoardNode:
    # Releases before 0.2 have no age of a node.
    age = region.of(fields)
    return BoardNode(
        region=region.name,
        cluster=cluster,
        name=plain(fields.get("node")),
        running=fields.get("running") is True,
        alarm=plain(fields.get("alarm")),
        age=region.age if age is None else age,
    )


def _busy(region: str, fields: dict[str, Any]) -> BoardBusy:
    return BoardBusy(
        region=region,
        name=plain(fields.get("name")),
        messages=_number(fields, "messages_per_second"),
    )


def _event(fields: dict[str, Any]) -> BoardEvent:
    return BoardEvent(
        seq=int(_number(fields, "seq") or 0),
        at=_number(fields, "at_ms"),
        region=plain(fields.get("region")),
        kind=plain(fields.get("kind")),
        who=plain(fields.get("who")),
        text=plain(fields.get("text")),
    )


def _figures(fields: dict[str, Any]) -> dict[str, float]:
    found = fields.get("figures")
    if not isinstance(found, dict):
        return {}
    pairs = list(found.items())[:MAX_FIGURES]
    return {plain(name): float(v) for name, v in pairs if is_number(v, -_MAX_NUMBER, _MAX_NUMBER)}


def _number(fields: Mapping[str, Any], name: str) -> float | None:
    value = fields.get(name)
    return float(value) if is_number(value, 0, _MAX_NUMBER) else None


def _texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = fields.get(name)
    return tuple(map(plain, values[:MAX_REASONS])) if isinstance(values, list) else ()


def _dicts(fields: Mapping[str, Any], name: str, most: int = MAX_ITEMS) -> list[dict[str, Any]]:
    values = fields.get(name)
    if not isinstance(values, list):
        return []
    return [value for value in values[:most] if isinstance(value, dict)]
