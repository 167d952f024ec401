"""A collector of traces: accepts OTLP over HTTP as JSON, and checks it as every collector would."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import tornado.web

from newsfabric.process.service import listen
from newsfabric.tracing.otel_spans import Kind, Span

PATIENCE = 60.0
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_SPAN_ID = re.compile(r"[0-9a-f]{16}")


def span(**fields: object) -> Span:
    made = {
        "trace_id": TRACE,
        "span_id": PARENT,
        "parent": None,
        "name": "route",
        "service": "router",
        "kind": Kind.CONSUMER,
        "start_ms": 10,
        "end_ms": 12,
        "attributes": {},
        **fields,
    }
    return Span(**made)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class Collected:
    """A received span, with its resource's attributes."""

    fields: dict[str, Any]
    resource: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.fields["name"])

    @property
    def trace_id(self) -> str:
        return str(self.fields["traceId"])

    @property
    def span_id(self) -> str:
        return str(self.fields["spanId"])

    @property
    def parent(self) -> str | None:
        return self.fields.get("parentSpanId")

    @property
    def attributes(self) -> dict[str, Any]:
        return plain(self.fields["attributes"])

    @property
    def events(self) -> list[tuple[str, dict[str, Any]]]:
        return [(event["name"], plain(event["attributes"])) for event in self.fields["events"]]

    @property
    def ms(self) -> tuple[int, int]:
        times = (self.fields["startTimeUnixNano"], self.fields["endTimeUnixNano"])
        return int(times[0]) // 1_000_000, int(times[1]) // 1_000_000


def plain(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {one["key"]: _plain(one["value"]) for one in attributes}


def _plain(value: dict[str, Any]) -> Any:
    ((kind, inside),) = value.items()
    if kind == "arrayValue":
        return [_plain(one) for one in inside["values"]]
    return int(inside) if kind == "intValue" else inside


class Collector:
    """A collector; ``answers`` are statuses to give before 200, ``body`` is the body with 200."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Collected] = []
        self.requests = 0
        self.answers: list[int] = []
        self.body: dict[str, Any] = {}
        # While it isn't set, no request is answered.
        self.answering = asyncio.Event()
        self.answering.set()
        self.came = asyncio.Event()

    def take_spans(self, body: bytes) -> None:
        for resource in json.loads(body)["resourceSpans"]:
            about = plain(resource["resource"]["attributes"])
            for scope in resource["scopeSpans"]:
                for fields in scope["spans"]:
                    assert _TRACE_ID.fullmatch(fields["traceId"])
                    assert _SPAN_ID.fullmatch(fields["spanId"])
                    assert int(fields["startTimeUnixNano"]) <= int(fields["endTimeUnixNano"])
                    self.spans.append(Collected(fields, about))

    async def has(self, count: int) -> list[Collected]:
        """Wait for ``count`` spans; return all received spans."""
        async with asyncio.timeout(PATIENCE):
            while len(self.spans) < count:
                self.came.clear()
                await self.came.wait()
        return self.spans

    async def was_asked(self, times: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.requests < times:
                self.came.clear()
                await self.came.wait()


class _Traces(tornado.web.RequestHandler):
    def initialize(self, collector: Collector) -> None:
        self._collector = collector

    async def post(self) -> None:
        collector = self._collector
        assert self.request.headers["Content-Type"] == "application/json"
        collector.requests += 1
        collector.came.set()
        await collector.answering.wait()
        if collector.answers:
            self.set_status(collector.answers.pop(0))
            return
        collector.take_spans(self.request.body)
        collector.came.set()
        self.write(collector.body)


@contextlib.asynccontextmanager
async def open_collector() -> AsyncIterator[Collector]:
    """Run a collector on loopback until the end of the block."""
    collector = Collector()
    routes = [(r"/v1/traces", _Traces, {"collector": collector})]
    application = tornado.web.Application(routes, log_function=lambda _handler: None)
    server, port = listen(application, host="127.0.0.1", port=0)
    # More than any batch needs; a real collector accepts megabytes.
    server.conn_params.max_body_size = 1 << 22
    collector.url = f"http://127.0.0.1:{port}"
    try:
        yield collector
    finally:
        collector.answering.set()
        server.stop()
        await server.close_all_connections()
