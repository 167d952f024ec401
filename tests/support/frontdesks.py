"""A frontdesk that answers ``/endpoints.json`` with the boxes that a test sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from gateways import Box
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from newsfabric.reader import Endpoint


def gateway_of(box: Box) -> Endpoint:
    return Endpoint(
        sockjs_url=f"http://{box.host}/sockjs",
        websocket_url=f"ws://{box.host}/websocket",
        sse_url=f"http://{box.host}/events",
    )


class Frontdesk:
    """A list of ``boxes`` and ``alternates``, served; 503 without boxes, like a real frontdesk."""

    def __init__(self) -> None:
        self.boxes: list[Box] = []
        self.alternates: Sequence[Frontdesk] = ()
        self.asked = 0
        self._sockets = bind_sockets(0, "127.0.0.1")
        self.url = f"http://127.0.0.1:{self._sockets[0].getsockname()[1]}/endpoints.json"
        routes = [("/endpoints.json", _Endpoints, {"frontdesk": self})]
        self._server = HTTPServer(Application(routes, log_function=lambda _: None))
        self._server.add_sockets(self._sockets)

    def document(self) -> dict[str, Any]:
        gateways = [gateway_of(box) for box in self.boxes]
        return {
            "region": "oregon",
            "gateways": [{name: getattr(g, name) for name in g.__slots__} for g in gateways],
            "alternates": [
                {"region": "x", "endpoints_url": frontdesk.url} for frontdesk in self.alternates
            ],
            "retry_ms": 100,
        }

    async def close(self) -> None:
        self._server.stop()
        await self._server.close_all_connections()


class _Endpoints(RequestHandler):
    def initialize(self, frontdesk: Frontdesk) -> None:
        self.frontdesk = frontdesk

    def get(self) -> None:
        self.frontdesk.asked += 1
        self.set_status(200 if self.frontdesk.boxes else 503)
        self.write(orjson.dumps(self.frontdesk.document()))
