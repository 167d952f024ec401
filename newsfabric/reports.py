"""What each process of the fabric says of itself each second, for operators, as values and JSON.

A report goes over exchange ``upstream`` of the region's core to every frontdesk, whose picture of
the region is made of nothing else. It is for looking, never for deciding where readers go: that
follows from :class:`~newsfabric.control.LoadReport` alone, which is smaller and has its own key.

``figures`` are metrics of the process by the names that :mod:`newsfabric.figures` gives them, so
that each number an operator sees can be found in ``/metrics``.

Reports come from other machines. :func:`decode_report` raises ValueError on whatever
:func:`encode_report` didn't make, and everything in a report is bounded in number and length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import orjson

from newsfabric.amqp.message import Message, Properties
from newsfabric.control import MAX_BYTES, MAX_COUNT
from newsfabric.numbers import is_number, is_whole
from newsfabric.topics import CONTROL_WORD

REPORT: Final = "report"

ProcessKind = Literal["router", "mailbox", "frontdesk", "keeper", "box", "scaler"]
KINDS: Final[tuple[ProcessKind, ...]] = get_args(ProcessKind)

MAX_TEXT: Final = 255
MAX_REASONS: Final = 16
MAX_FIGURES: Final = 96
MAX_SHOVELS: Final = 256
MAX_NODES: Final = 64
MAX_BUSIEST: Final = 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShovelSeen:
    """A shovel as its owner sees it.

    ``runs_on`` is where (``oregon/core`` or a box's name), ``source`` where it takes from.
    ``state`` is RabbitMQ's word for it, or ``missing``. ``canary_age_ms`` is None before the first
    canary, ``messages_per_second`` where nobody knows.
    """

    name: str
    runs_on: str
    source: str
    state: str
    canary_age_ms: int | None
    messages_per_second: float | None
    restarts: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen:
    """A RabbitMQ node as a keeper sees it. ``alarm`` is ``memory``, ``disk`` or nothing."""

    cluster: str
    node: str
    running: bool
    alarm: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """A topic or a publisher, and how many messages a second it has."""

    name: str
    messages_per_second: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A process's word about itself.

    ``started_ms`` and ``sent_ms`` are of its clock. ``state`` is ``starting``, ``ready`` or
    ``draining``, and ``waiting_for`` says why it isn't ready. ``engine`` is a gateway's.
    """

    region: str
    name: str
    kind: ProcessKind
    version: str
    started_ms: int
    sent_ms: int
    state: str
    waiting_for: tuple[str, ...] = ()
    engine: str = ""
    figures: Mapping[str, float] = dataclasses.field(default_factory=dict)
    shovels: tuple[ShovelSeen, ...] = ()
    nodes: tuple[NodeSeen, ...] = ()
    topics: tuple[Busy, ...] = ()
    publishers: tuple[Busy, ...] = ()


def report_key(region: str, name: str) -> str:
    """Routing key of a process's reports; ``report_key("*", "*")`` binds them all."""
    return f"{CONTROL_WORD}.{REPORT}.{region}.{name}"


def encode_report(report: Report, *, user_id: str | None = None) -> Message:
    """``report`` for exchange upstream. ``user_id`` is whom its sender logged in as: the broker
    checks it, and frontdesks believe nothing else."""
    properties = Properties(content_type="application/json", type=REPORT, user_id=user_id)
    return Message(
        report_key(report.region, report.name),
        orjson.dumps(dataclasses.asdict(report)),
        properties,
    )


def decode_report(message: Message) -> Report:
    """The report in ``message``; ValueError if it isn't one."""
    if message.properties.type != REPORT:
        raise ValueError(f"not a report: type is {message.properties.type!r}")
    if len(message.body) > MAX_BYTES:
        raise ValueError(f"not a report: {len(message.body)} bytes")
    try:
        fields = orjson.loads(message.body)
    except orjson.JSONDecodeError as exc:
        raise ValueError(f"not a report: {exc}") from exc
    fields = _object(fields, "report")
    return Report(
        region=_text(fields, "region"),
        name=_text(fields, "name"),
        kind=_kind(fields),
        version=_text(fields, "version"),
        started_ms=_count(fields, "started_ms"),
        sent_ms=_count(fields, "sent_ms"),
        state=_text(fields, "state"),
        waiting_for=tuple(
            _text({"waiting_for": value}, "waiting_for")
            for value in _list(fields, "waiting_for", MAX_REASONS)
        ),
        engine=_text(fields, "engine"),
        figures=_figures(fields),
        shovels=tuple(_shovel(value) for value in _list(fields, "shovels", MAX_SHOVELS)),
        nodes=tuple(_node(value) for value in _list(fields, "nodes", MAX_NODES)),
        topics=tuple(_busy(value) for value in _list(fields, "topics", MAX_BUSIEST)),
        publishers=tuple(_busy(value) for value in _list(fields, "publishers", MAX_BUSIEST)),
    )


def _kind(fields: dict[str, Any]) -> ProcessKind:
    for kind in KINDS:
        if fields.get("kind") == kind:
            return kind
    raise ValueError(f"kind must be one of {', '.join(KINDS)}")


def _figures(fields: dict[str, Any]) -> dict[str, float]:
    found = _object(fields.get("figures"), "figures")
    if len(found) > MAX_FIGURES:
        raise ValueError(f"more than {MAX_FIGURES} figures")
    for name, value in found.items():
        _text({"figures": name}, "figures")
        if not is_number(value, -MAX_COUNT, MAX_COUNT):
            raise ValueError("a figure must be a number")
    return {name: float(value) for name, value in found.items()}


def _shovel(value: Any) -> ShovelSeen:
    fields = _object(value, "shovel")
    return ShovelSeen(
        name=_text(fields, "name"),
        runs_on=_text(fields, "runs_on"),
        source=_text(fields, "source"),
        state=_text(fields, "state"),
        canary_age_ms=None
        if fields.get("canary_age_ms") is None
        else _count(fields, "canary_age_ms"),
        messages_per_second=None
        if fields.get("messages_per_second") is None
        else _rate(fields, "messages_per_second"),
        restarts=_count(fields, "restarts"),
    )


def _node(value: Any) -> NodeSeen:
    fields = _object(value, "node")
    return NodeSeen(
        cluster=_text(fields, "cluster"),
        node=_text(fields, "node"),
        running=_flag(fields, "running"),
        alarm=_text(fields, "alarm"),
    )


def _busy(value: Any) -> Busy:
    fields = _object(value, "busy")
    return Busy(
        name=_text(fields, "name"), messages_per_second=_rate(fields, "messages_per_second")
    )


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no object")
    return value


def _list(fields: dict[str, Any], name: str, most: int) -> list[Any]:
    values = fields.get(name)
    if not isinstance(values, list) or len(values) > most:
        raise ValueError(f"{name} must be a list of at most {most}")
    return values


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise ValueError(f"{name} must be text of at most {MAX_TEXT} characters")
    return value


def _flag(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name)
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false")
    return value


def _count(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if not is_whole(value, 0, MAX_COUNT):
        raise ValueError(f"{name} must be a whole number")
    return int(value)


def _rate(fields: dict[str, Any], name: str) -> float:
    value = fields.get(name)
    if not is_number(value, 0, MAX_COUNT):
        raise ValueError(f"{name} must be a number")
    return float(value)
