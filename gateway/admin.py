"""What agent and operators ask a gateway: ``/load``, ``/report``, ``/engine``, ``/logs``,
``/drain``, ``/take-over``, health, metrics.

Served on loopback only, on a port of its own, to programs alone
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

from gateway import measures
from newsfabric.errors import ConfigError
from newsfabric.process.figures import Figures
from newsfabric.process.operators import OperatorsApplication
from newsfabric.process.service import MetricsHandler, PlainHandler, health_routes, trace_route
from newsfabric.process.version import version

if TYPE_CHECKING:
    from gateway.core import Core

# Of what is missing an operator needs to see the beginning.
_LOGS_SHOWN: Final = 100
_RUNS_SHOWN: Final = 20


def urls_under(base: str) -> dict[str, str]:
    """Where readers find the transports, under an ``http`` or ``https`` URL without path."""
    base = base.rstrip("/")
    return {
        "sockjs_url": f"{base}/sockjs",
        # http → ws, https → wss.
        "websocket_url": f"ws{base[4:]}/websocket",
        "sse_url": f"{base}/events",
    }


class Rates:
    """Deliveries and connects of the last full second. :meth:`watch` goes on beside."""

    def __init__(self, core: Core) -> None:
        self.deliveries = 0.0
        self.connects = 0.0
        self._core = core

    async def watch(self) -> None:
        """Count until cancelled; both figures are per second."""
        core = self._core
        while True:
            at, deliveries, connects = core.clock(), core.deliveries, core.connects
            await asyncio.sleep(1.0)
            seconds = core.clock() - at
            self.deliveries = (core.deliveries - deliveries) / seconds
            self.connects = (core.connects - connects) / seconds


class AnswerHandler(PlainHandler):
    """A GET that is answered with what ``answer`` returns."""

    def initialize(self, answer: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        """Tornado gives it ``answer``, which is awaited at each request."""
        self._answer = answer

    async def get(self) -> None:
        """200 with the answer as JSON."""
        self.write(await self._answer())


async def _load(core: Core, rates: Rates, urls: dict[str, str]) -> dict[str, Any]:
    """``GET /load``: what the agent reports upstream each second."""
    await core.look()
    return {
        "connections": core.reader_count,
        "capacity": core.settings.capacity,
        "deliveries_per_second": round(rates.deliveries, 1),
        "connects_per_second": round(rates.connects, 1),
        "ready": core.readiness().ready,
        "draining": core.admission.draining,
        **urls,
    }


async def _report(core: Core, figures: Figures) -> dict[str, Any]:
    """``GET /report``: what operators are shown of it; the agent puts it into the box's report."""
    await core.look()
    ready = core.readiness()
    return {
        "engine": core.engine.name,
        "version": version(),
        "ready": ready.ready,
        "waiting_for": list(ready.waiting_for),
        "figures": figures.read(core.clock()),
    }


async def _engine(core: Core) -> dict[str, Any]:
    """``GET /engine``: which engine runs, in which processes."""
    pid = core.engine.pid
    return {"engine": core.engine.name, "pid": os.getpid(), "dataplane_pid": pid}


async def _logs(core: Core) -> dict[str, Any]:
    """``GET /logs``: the logs of which numbers are missing here, and the first runs of these; and
    logs that the directory doesn't list."""
    lacking = [known for known in core.hub.logs.unfinished() if known.lacks]
    return {
        "logs": [
            {
                **known.log._asdict(),
                "mark": known.mark,
                "low": known.extent.low,
                "ended": known.extent.ended,
                "missing": list(itertools.islice(known.missing(), _RUNS_SHOWN)),
            }
            for known in lacking[:_LOGS_SHOWN]
        ],
        "more": max(0, len(lacking) - _LOGS_SHOWN),
        "unlisted": [log._asdict() for log in core.follower.unlisted.logs[:_LOGS_SHOWN]],
    }


class DrainHandler(PlainHandler):
    """``POST /drain``: begin to drain, as SIGTERM does. Asking again changes nothing."""

    def initialize(self, core: Core, stop: asyncio.Event) -> None:
        """Tornado gives it ``stop``, which ends the gateway once its readers have gone."""
        self._core, self._stop = core, stop

    def post(self) -> None:
        """202 at once, with the number of readers yet to go."""
        self._stop.set()
        self.set_status(202)
        self.write({"draining": True, "connections": self._core.reader_count})


class TakeOverHandler(PlainHandler):
    """``POST /take-over``: a new data plane in the place of the one that runs; no reader notices.

    Its program is read anew: that is how a data plane is upgraded. Answers with its pid, or with
    409 and the error; then the one that ran serves on.
    """

    def initialize(self, core: Core) -> None:
        """Tornado gives it ``core``, whose engine takes over."""
        self._core = core

    async def post(self) -> None:
        """200 once the new one serves, or 409; the Tornado engine has none: 409."""
        try:
            self.write({"dataplane_pid": await self._core.engine.take_over()})
        except ConfigError as exc:
            self.set_status(409)
            self.write({"error": str(exc)})


class GatewayMetricsHandler(MetricsHandler):
    """``/metrics``, with the hub's gauges read when they are asked for."""

    def initialize(self, core: Core) -> None:  # type: ignore[override]
        """Tornado gives it ``core``, whose gauges are brought up to date."""
        super().initialize(core.readiness)
        self._core = core

    async def prepare(self) -> None:
        """Tornado calls it before :meth:`get`: the data plane is asked."""
        await self._core.look()


def admin_application(
    core: Core, urls: dict[str, str], stop: asyncio.Event
) -> tornado.web.Application:
    """The application of the admin port of a gateway whose readers come to ``urls``."""
    rates = Rates(core)
    core.spawn(rates.watch())
    figures = Figures(measures.FIGURES)
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
