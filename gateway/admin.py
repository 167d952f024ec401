"""What agent and operators ask a gateway: ``/load``, ``/report``, ``/engine``, ``/logs``,
``/drain``, ``/take-over``, health, metrics.

Served on loopback only, on a port of its own, to programs alone (:mod:`newsfabric.operators`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from typing import TYPE_CHECKING, Final

import tornado.web

from gateway import measures
from newsfabric.errors import ConfigError
from newsfabric.figures import Figures
from newsfabric.operators import OperatorsApplication
from newsfabric.service import MetricsHandler, PlainHandler, health_routes, trace_route
from newsfabric.version import version

if TYPE_CHECKING:
    from gateway.core import Core

# Of what is missing an operator needs to see the beginning.
_LOGS_SHOWN: Final = 100
_RUNS_SHOWN: Final = 20


@dataclasses.dataclass(frozen=True, slots=True)
class Urls:
    """Where readers find this gateway's transports."""

    sockjs: str
    websocket: str
    sse: str

    @classmethod
    def under(cls, base: str) -> Urls:
        """The URLs under ``base``, an ``http`` or ``https`` URL without path."""
        base = base.rstrip("/")
        # http → ws, https → wss.
        return cls(f"{base}/sockjs", f"ws{base[4:]}/websocket", f"{base}/events")


class Rates:
    """Deliveries and connects of the last full second. Call :meth:`sample` once a second."""

    def __init__(self, core: Core) -> None:
        self.deliveries = 0.0
        self.connects = 0.0
        self._core = core
        self._last = (core.clock(), 0, 0)

    def sample(self) -> None:
        """Look at the counters."""
        at, deliveries, connects = self._last
        self._last = (self._core.clock(), self._core.deliveries, self._core.connects)
        seconds = max(1e-3, self._last[0] - at)
        self.deliveries = (self._last[1] - deliveries) / seconds
        self.connects = (self._last[2] - connects) / seconds


class LoadHandler(PlainHandler):
    """``GET /load``: what the agent reports upstream each second."""

    def initialize(self, core: Core, rates: Rates, urls: Urls) -> None:
        self._core, self._rates, self._urls = core, rates, urls

    async def get(self) -> None:
        await self._core.look()
        self.write(
            {
                "connections": self._core.reader_count,
                "capacity": self._core.settings.capacity,
                "deliveries_per_second": round(self._rates.deliveries, 1),
                "connects_per_second": round(self._rates.connects, 1),
                "ready": self._core.readiness().ready,
                "draining": self._core.admission.draining,
                "sockjs_url": self._urls.sockjs,
                "websocket_url": self._urls.websocket,
                "sse_url": self._urls.sse,
            }
        )


class ReportHandler(PlainHandler):
    """``GET /report``: what operators are shown of it; the agent puts it into the box's report."""

    def initialize(self, core: Core, figures: Figures) -> None:
        self._core, self._figures = core, figures

    async def get(self) -> None:
        await self._core.look()
        ready = self._core.readiness()
        self.write(
            {
                "engine": self._core.engine.name,
                "version": version(),
                "ready": ready.ready,
                "waiting_for": list(ready.waiting_for),
                "figures": self._figures.read(self._core.clock()),
            }
        )


class EngineHandler(PlainHandler):
    """``GET /engine``: which engine runs, in which processes."""

    def initialize(self, core: Core) -> None:
        self._core = core

    def get(self) -> None:
        self.write(self._core.processes)


class LogsHandler(PlainHandler):
    """``GET /logs``: the logs of which numbers are missing here, and the first runs of these."""

    def initialize(self, core: Core) -> None:
        self._core = core

    def get(self) -> None:
        lacking = [known for known in self._core.hub.logs.unfinished() if known.lacks]
        self.write(
            {
                "logs": [
                    {
                        **known.log._asdict(),
                        "mark": known.mark,
                        "low": known.low,
                        "ended": known.ended,
                        "missing": list(itertools.islice(known.missing(), _RUNS_SHOWN)),
                    }
                    for known in lacking[:_LOGS_SHOWN]
                ],
                "more": max(0, len(lacking) - _LOGS_SHOWN),
            }
        )


class DrainHandler(PlainHandler):
    """``POST /drain``: begin to drain, as SIGTERM does. Asking again changes nothing."""

    def initialize(self, core: Core, stop: asyncio.Event) -> None:
        self._core, self._stop = core, stop

    def post(self) -> None:
        self._stop.set()
        self.set_status(202)
        self.write({"draining": True, "connections": self._core.reader_count})


class TakeOverHandler(PlainHandler):
    """``POST /take-over``: a new data plane in the place of the one that runs; no reader notices.

    Its program is read anew: that is how a data plane is upgraded. Answers with its pid, or with
    409 and the error; then the one that ran serves on.
    """

    def initialize(self, core: Core) -> None:
        self._core = core

    async def post(self) -> None:
        try:
            self.write({"dataplane_pid": await self._core.engine.take_over()})
        except ConfigError as exc:
            self.set_status(409)
            self.write({"error": str(exc)})


class GatewayMetricsHandler(MetricsHandler):
    """``/metrics``, with the hub's gauges read when they are asked for."""

    def initialize(self, core: Core) -> None:  # type: ignore[override]
        super().initialize(core.readiness)
        self._core = core

    async def prepare(self) -> None:
        await self._core.look()


def admin_application(
    core: Core, rates: Rates, urls: Urls, stop: asyncio.Event
) -> tornado.web.Application:
    """The application of the admin port."""
    return OperatorsApplication(
        [
            (r"/load", LoadHandler, {"core": core, "rates": rates, "urls": urls}),
            (r"/report", ReportHandler, {"core": core, "figures": Figures(measures.FIGURES)}),
            (r"/engine", EngineHandler, {"core": core}),
            (r"/logs", LogsHandler, {"core": core}),
            (r"/take-over", TakeOverHandler, {"core": core}),
            (r"/drain", DrainHandler, {"core": core, "stop": stop}),
            trace_route("gateway", core.settings.name, core.settings.region, core.races.sightings),
            (r"/metrics", GatewayMetricsHandler, {"core": core}),
            *health_routes(core.readiness),
        ],
        names=core.settings.admin_hosts,
    )
