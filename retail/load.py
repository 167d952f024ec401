"""A box's load report of each second, made from its gateway's load. Pure."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from newsfabric.json_fields import mapping, number, numbers, text, texts, whole
from newsfabric.messages.control import BoxState, LoadReport
from newsfabric.messages.reports import MAX_FIGURES, MAX_REASONS, MAX_TEXT


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLoad:
    """The gateway's reply to ``GET /load`` on its admin port."""

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
    """Return the load in a parsed reply; ValueError names the bad field."""
    with _of_the_gateway():
        fields = mapping(document, "load")
        return GatewayLoad(
            connections=whole(fields, "connections"),
            capacity=whole(fields, "capacity"),
            deliveries_per_second=number(fields, "deliveries_per_second"),
            connects_per_second=number(fields, "connects_per_second"),
            ready=fields.get("ready") is True,
            draining=fields.get("draining") is True,
            sockjs_url=text(fields, "sockjs_url"),
            websocket_url=text(fields, "websocket_url"),
            sse_url=text(fields, "sse_url"),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GatewayReport:
    """The gateway's reply to ``GET /report``, for operators."""

    engine: str
    version: str
    waiting_for: tuple[str, ...]
    figures: Mapping[str, float]


def parse_gateway_report(document: Any) -> GatewayReport:
    """Return the gateway's report in a parsed reply; ValueError names the bad field."""
    with _of_the_gateway():
        fields = mapping(document, "report")
        return GatewayReport(
            engine=text(fields, "engine"),
            version=text(fields, "version"),
            waiting_for=texts(fields, "waiting_for", MAX_REASONS, MAX_TEXT),
            figures=numbers(fields, "figures", MAX_FIGURES, MAX_TEXT),
        )


# The load of a gateway that doesn't reply: no reader can be sent there.
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
    """Return the load of a box whose readers are all gone; ``last`` is the gateway's last load.

    The capacity is kept above 0, since 0 means a gateway that doesn't reply.
    """
    return dataclasses.replace(
        last,
        connections=0,
        capacity=max(1, last.capacity),
        deliveries_per_second=0.0,
        connects_per_second=0.0,
    )


def box_state(gateway: GatewayLoad, *, fed: bool, draining: bool) -> BoxState:
    """Return ``ready`` only while the gateway is ready and messages arrive (``fed``)."""
    if draining or gateway.draining:
        return "draining"
    return "ready" if gateway.ready and fed else "starting"


def report(
    region: str, box: str, gateway: GatewayLoad, state: BoxState, sent_ms: int
) -> LoadReport:
    """Return the load report to send upstream."""
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


@contextlib.contextmanager
def _of_the_gateway() -> Iterator[None]:
    try:
        yield
    except ValueError as exc:
        raise ValueError(f"the gateway's {exc}") from exc
