"""What a box says of itself each second, from what its gateway says. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from newsfabric.control import MAX_COUNT, BoxState, LoadReport
from newsfabric.numbers import is_number, is_whole
from newsfabric.reports import MAX_FIGURES


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLoad:
    """The gateway's answer to ``GET /load`` on its admin port."""

    connections: int
    capacity: int
    deliveries_per_second: float
    connects_per_second: float
    ready: bool
    draining: bool
    sockjs_url: str
    websocket_url: str
    sse_url: str


def parse_load(document: Any) -> GatewayLoad:
    """The load in a parsed answer; ValueError names what is wrong with it."""
    if not isinstance(document, dict):
        raise ValueError("the gateway's load is no object")
    return GatewayLoad(
        connections=_count(document, "connections"),
        capacity=_count(document, "capacity"),
        deliveries_per_second=_rate(document, "deliveries_per_second"),
        connects_per_second=_rate(document, "connects_per_second"),
        ready=document.get("ready") is True,
        draining=document.get("draining") is True,
        sockjs_url=_text(document, "sockjs_url"),
        websocket_url=_text(document, "websocket_url"),
        sse_url=_text(document, "sse_url"),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GatewayWord:
    """The gateway's answer to ``GET /report``: what operators are shown of it."""

    engine: str
    version: str
    waiting_for: tuple[str, ...]
    figures: Mapping[str, float]


def parse_word(document: Any) -> GatewayWord:
    """The gateway's word in a parsed answer; ValueError names what is wrong with it."""
    if not isinstance(document, dict):
        raise ValueError("the gateway's report is no object")
    reasons, figures = document.get("waiting_for"), document.get("figures")
    if not isinstance(reasons, list) or not all(isinstance(one, str) for one in reasons):
        raise ValueError("the gateway's waiting_for must be a list of texts")
    if not isinstance(figures, dict) or len(figures) > MAX_FIGURES:
        raise ValueError("the gateway's figures must be an object")
    if not all(is_number(value, -MAX_COUNT, MAX_COUNT) for value in figures.values()):
        raise ValueError("the gateway's figures must be numbers")
    return GatewayWord(
        engine=_text(document, "engine"),
        version=_text(document, "version"),
        waiting_for=tuple(reasons),
        figures=figures,
    )


# A gateway that doesn't answer: nobody can be sent there.
AWAY = GatewayLoad(
    connections=0,
    capacity=0,
    deliveries_per_second=0.0,
    connects_per_second=0.0,
    ready=False,
    draining=False,
    sockjs_url="",
    websocket_url="",
    sse_url="",
)


def emptied(last: GatewayLoad) -> GatewayLoad:
    """The load of a box whose gateway has let all readers go; ``last`` is what it said before.

    A capacity of 0 is said of a gateway that doesn't answer, so it is kept.
    """
    return dataclasses.replace(
        last,
        connections=0,
        capacity=max(1, last.capacity),
        deliveries_per_second=0.0,
        connects_per_second=0.0,
    )


def box_state(gateway: GatewayLoad, *, fed: bool, draining: bool) -> BoxState:
    """``ready`` only while the gateway is, and while news arrive (``fed``)."""
    if draining or gateway.draining:
        return "draining"
    return "ready" if gateway.ready and fed else "starting"


def report(
    region: str, box: str, gateway: GatewayLoad, state: BoxState, sent_ms: int
) -> LoadReport:
    """The load report to send upstream."""
    return LoadReport(
        region=region,
        box=box,
        state=state,
        connections=gateway.connections,
        capacity=gateway.capacity,
        deliveries_per_second=gateway.deliveries_per_second,
        connects_per_second=gateway.connects_per_second,
        sockjs_url=gateway.sockjs_url,
        websocket_url=gateway.websocket_url,
        sse_url=gateway.sse_url,
        sent_ms=sent_ms,
    )


def _count(document: dict[str, Any], field: str) -> int:
    value = document.get(field)
    if not is_whole(value, 0, MAX_COUNT):
        raise ValueError(f"the gateway's {field} must be a whole number")
    return int(value)


def _rate(document: dict[str, Any], field: str) -> float:
    value = document.get(field)
    if not is_number(value, 0, MAX_COUNT):
        raise ValueError(f"the gateway's {field} must be a number")
    return float(value)


def _text(document: dict[str, Any], field: str) -> str:
    value = document.get(field)
    if not isinstance(value, str):
        raise ValueError(f"the gateway's {field} must be text")
    return value
