"""The admin port, for the agent and operators: ``/load``, ``/report``, ``/engine``, ``/logs``,
``/drain``, ``/take-over``, ``/trace``, health, metrics.

It listens on loopback only, and serves programs, not web pages
(:mod:`newsfabric.process.operators`).
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import tornado.web

from gateway.process import measures
from newsfabric.errors import ConfigError
from newsfabric.process.figures import ProcessFigures
from newsfabric.process.operators import OperatorsApplication
from newsfabric.process.service import MetricsHandler, PlainHandler, health_routes, trace_route
from newsfabric.process.version import version

if TYPE_CHECKING:
    from gateway.core.core import Core

# Bounds of ``/logs``: an operator needs only the first logs, and the first runs of each.
_LOGS_SHOWN: Final = 100
_RUNS_SHOWN: Final = 20


def urls_under(base: str) -> dict[str, str]:
    """Return the URLs of the transports below ``base``, an ``http(s)`` URL without a path."""
    base = base.rstrip("/")
    return {
        "sockjs_url": f"{base}/sockjs",
        # http → ws, https → wss.
        "websocket_url": f"ws{base[4:]}/websocket",
        "sse_url": f"{base}/events",
    }


class Rates:
    """Deliveries and connects per second, in the last full second. A task runs :meth:`watch`."""

    def __init__(self, core: Core) -> None:
        self.deliveries = 0.0
        self.connects = 0.0
        self._core = core

    async def watch(self) -> None:
        """Update both figures each second, until cancelled."""
        core = self._core
        while True:
            at, deliveries, connects = core.clock(), core.deliveries, core.connects
            await asyncio.sleep(1.0)
            seconds = core.clock() - at
            self.deliveries = (core.deliveries - deliveries) / seconds
            self.connects = (core.connects - connects) / seconds


class AnswerHandler(PlainHandler):
    """A GET that is answered with the result of ``answer``."""

    def initialize(self, answer: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        """Take ``answer`` from the route; it is awaited at each request."""
        self._answer = answer

    async def get(self) -> None:
        """Answer 200 with the result as JSON."""
        self.write(await self._answer())


async def _load(core: Core, rates: Rates, urls: dict[str, str]) -> dict[str, Any]:
    """Return the answer to ``GET /load``: the figures that the agent reports each second."""
    await core.refresh_metrics()
    return {
        "connections": core.reader_count,
        "capacity": core.settings.capacity,
        "deliveries_per_second": round(rates.deliveries, 1),
        "connects_per_second": round(rates.connects, 1),
        "ready": core.readiness().ready,
        "draining": core.admission.draining,
        **urls,
    }


async def _report(core: Core, figures: ProcessFigures) -> dict[str, Any]:
    """Return the answer to ``GET /report``: the gateway's part of the box's report to operators."""
    await core.refresh_metrics()
    ready = core.readiness()
    return {
        "engine": core.engine.name,
        "version": version(),
        "ready": ready.ready,
        "waiting_for": list(ready.waiting_for),
        "figures": figures.read(core.clock()),
    }


async def _engine(core: Core) -> dict[str, Any]:
    """Return the answer to ``GET /engine``: the engine and its process ids."""
    pid = core.engine.pid
    return {"engine": core.engine.name, "pid": os.getpid(), "dataplane_pid": pid}


async def _logs(core: Core) -> dict[str, Any]:
    """Return the answer to ``GET /logs``: the logs with missing numbers, the first missing runs of
    each, and logs that the directory doesn't list."""
    incomplete = [known for known in core.hub.logs.unfinished() if known.has_missing]
    return {
        "logs": [
            {
                **known.log._asdict(),
                "mark": known.mark,
                "low": known.extent.low,
                "ended": known.extent.ended,
                "missing": list(itertools.islice(known.missing(), _RUNS_SHOWN)),
            }
            for known in incomplete[:_LOGS_SHOWN]
        ],
        "more": max(0, len(incomplete) - _LOGS_SHOWN),
        "unlisted": [log._asdict() for log in core.follower.unlisted.logs[:_LOGS_SHOWN]],
    }


class DrainHandler(PlainHandler):
    """``POST /drain``: begins a drain, as SIGTERM does. A second request changes nothing."""

    def initialize(self, core: Core, stop: asyncio.Event) -> None:
        """Take ``stop`` from the route; setting it ends the gateway after its readers have left."""
        self._core, self._stop = core, stop

    def post(self) -> None:
        """Answer 202 at once, with the number of readers that are still connected."""
        self._stop.set()
        self.set_status(202)
        self.write({"draining": True, "connections": self._core.reader_count})


class TakeOverHandler(PlainHandler):
    """``POST /take-over``: a new data plane replaces the running one; no reader notices.

    The new process runs the program that is on disk now: this upgrades a data plane. The answer has
    its pid, or it is 409 with the error, and the old data plane continues to serve.
    """

    def initialize(self, core: Core) -> None:
        """Take ``core`` from the route; its engine takes over."""
        self._core = core

    async def post(self) -> None:
        """Answer 200 once the new data plane serves, else 409; the Tornado engine has none: 409."""
        try:
            self.write({"dataplane_pid": await self._core.engine.take_over()})
        except ConfigError as exc:
            self.set_status(409)
            self.write({"error": str(exc)})


class GatewayMetricsHandler(MetricsHandler):
    """``/metrics``: the hub's gauges are updated at each request."""

    def initialize(self, core: Core) -> None:  # type: ignore[override]
        """Take ``core`` from the route; its gauges are updated."""
        super().initialize(core.readiness)
        self._core = core

    async def prepare(self) -> None:
        """Read the data plane's counters, before :meth:`get`."""
        await self._core.refresh_metrics()


def admin_application(
    core: Core, urls: dict[str, str], stop: asyncio.Event
) -> tornado.web.Application:
    """Return the admin port's application, for a gateway whose readers connect to ``urls``."""
    rates = Rates(core)
    core.spawn(rates.watch())
    figures = ProcessFigures(measures.FIGURES)
    return OperatorsApplication(
        [
            (r"/load", AnswerHandler, {"answer": functools.partial(_load, core, rates, urls)}),
            (r"/report", AnswerHandler, {"answer": functools.partial(_report, core, figures)}),
            (r"/engine", AnswerHandler, {"answer": functools.partial(_engine, core)}),
            (r"/logs", AnswerHandler, {"answer": functools.partial(_logs, core)}),
            (r"/take-over", TakeOverHandler, {"core": core}),
            (r"/drain", DrainHandler, {"core": core, "stop": stop}),
            trace_route("gateway", core.settings.name, core.settings.region, core.races.sightings),
            (r"/metrics", GatewayMetricsHandler, {"core": core}),
            *health_routes(core.readiness),
        ],
        names=core.settings.admin_hosts,
    )
