"""Each process's report of its own state, for operators, as values and JSON.

A report is sent each second over exchange ``upstream`` of the region's core to every frontdesk,
whose view of the region is made only of reports. It is for operators, never for deciding where
readers go: that follows from :class:`~newsfabric.messages.control.LoadReport` alone, which is
smaller and has its own key.

``figures`` are metrics of the process by the names that :mod:`newsfabric.process.figures` gives
them, so that each number an operator sees can be found in ``/metrics``.

Reports come from other machines. :func:`decode_report` raises ValueError on any message that
:func:`encode_report` didn't make, and everything in a report is bounded in number and length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import orjson

from newsfabric.amqp.message import Message, Properties
from newsfabric.json_fields import flag, listed, mapping, number, numbers, text, texts, whole
from newsfabric.kinds import CoreKind
from newsfabric.messages.control import fields_of
from newsfabric.topics import CONTROL_WORD

REPORT: Final = "report"

ProcessKind = Literal[CoreKind, "box"]
KINDS: Final[tuple[ProcessKind, ...]] = get_args(ProcessKind)

MAX_TEXT: Final = 255
MAX_REASONS: Final = 16
MAX_FIGURES: Final = 96
MAX_SHOVELS: Final = 256
MAX_NODES: Final = 64
MAX_BUSIEST: Final = 20
#: A report older than this (ms) isn't current.
OLD_MS: Final = 5_000
#: Prefix of the figures with the end of a certificate, as Unix time; its use follows.
CERTIFICATE_ENDS: Final = "tls_certificate_expiry_timestamp_seconds."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShovelSeen:
    """A shovel as its owner sees it.

    ``runs_on`` is its cluster or box (``oregon/core`` or a box's name), ``source`` the place that
    it takes from. ``state`` is RabbitMQ's word for it, or ``missing``. ``canary_age_ms`` is None
    before the first canary, ``messages_per_second`` if unknown: today's brokers count no rates.
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
    """A RabbitMQ node as a keeper sees it. ``alarm`` is ``memory``, ``disk`` or empty; ``unfit``
    counts the shovels that avoid this node, because the keeper couldn't make them work with it."""

    cluster: str
    node: str
    running: bool
    alarm: str
    unfit: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """A topic or a publisher, and its number of messages a second."""

    name: str
    messages_per_second: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A process's report of its own state.

    ``started_ms`` and ``sent_ms`` are by its clock. ``state`` is ``starting``, ``ready`` or
    ``draining``, and ``waiting_for`` has the reasons why it isn't ready. ``engine`` is a gateway's.
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
    """Return the routing key of a process's reports; ``report_key("*", "*")`` binds them all."""
    return f"{CONTROL_WORD}.{REPORT}.{region}.{name}"


def encode_report(report: Report, *, user_id: str | None = None) -> Message:
    """Return ``report`` as a message for exchange upstream. ``user_id`` is the login of its sender:
    the broker checks it, and frontdesks trust only that."""
    properties = Properties(content_type="application/json", type=REPORT, user_id=user_id)
    return Message(
        report_key(report.region, report.name),
        orjson.dumps(dataclasses.asdict(report)),
        properties,
    )


def decode_report(message: Message) -> Report:
    """Return the report in ``message``; ValueError if it isn't one."""
    fields = fields_of(message, REPORT)
    return Report(
        region=text(fields, "region", MAX_TEXT),
        name=text(fields, "name", MAX_TEXT),
        kind=_kind(fields),
        version=text(fields, "version", MAX_TEXT),
        started_ms=whole(fields, "started_ms"),
        sent_ms=whole(fields, "sent_ms"),
        state=text(fields, "state", MAX_TEXT),
        waiting_for=texts(fields, "waiting_for", MAX_REASONS, MAX_TEXT),
        engine=text(fields, "engine", MAX_TEXT),
        figures=numbers(fields, "figures", MAX_FIGURES, MAX_TEXT),
        shovels=tuple(_shovel(value) for value in listed(fields, "shovels", MAX_SHOVELS)),
        nodes=tuple(_node(value) for value in listed(fields, "nodes", MAX_NODES)),
        topics=tuple(_busy(value) for value in listed(fields, "topics", MAX_BUSIEST)),
        publishers=tuple(_busy(value) for value in listed(fields, "publishers", MAX_BUSIEST)),
    )


def _kind(fields: dict[str, Any]) -> ProcessKind:
    for kind in KINDS:
        if fields.get("kind") == kind:
            return kind
    raise ValueError(f"kind must be one of {', '.join(KINDS)}")


def _shovel(value: Any) -> ShovelSeen:
    fields = mapping(value, "shovel")
    return ShovelSeen(
        name=text(fields, "name", MAX_TEXT),
        runs_on=text(fields, "runs_on", MAX_TEXT),
        source=text(fields, "source", MAX_TEXT),
        state=text(fields, "state", MAX_TEXT),
        canary_age_ms=None
        if fields.get("canary_age_ms") is None
        else whole(fields, "canary_age_ms"),
        messages_per_second=None
        if fields.get("messages_per_second") is None
        else number(fields, "messages_per_second"),
        restarts=whole(fields, "restarts"),
    )


def _node(value: Any) -> NodeSeen:
    fields = mapping(value, "node")
    return NodeSeen(
        cluster=text(fields, "cluster", MAX_TEXT),
        node=text(fields, "node", MAX_TEXT),
        running=flag(fields, "running"),
        alarm=text(fields, "alarm", MAX_TEXT),
        # Keepers of older releases don't send it.
        unfit=whole(fields, "unfit") if "unfit" in fields else 0,
    )


def _busy(value: Any) -> Busy:
    fields = mapping(value, "busy")
    return Busy(
        name=text(fields, "name", MAX_TEXT),
        messages_per_second=number(fields, "messages_per_second"),
    )
