"""The checks that our programs make of an ``endpoints.json``."""

from __future__ import annotations

import json

import pytest
import tornado.web

from newsfabric.errors import Disconnected
from newsfabric.process.service import listen
from newsfabric.reader.endpoints import fetch_endpoints

BOX = {
    "sockjs_url": "http://r1.example/sockjs",
    "websocket_url": "ws://r1.example/websocket",
    "sse_url": "http://r1.example/events",
}


class EndpointsFile(tornado.web.RequestHandler):
    def get(self, length: str) -> None:
        document = json.dumps(
            {"region": "oregon", "gateways": [BOX], "alternates": [], "retry_ms": 1000}
        )
        self.write(document.ljust(int(length)))


async def test_an_answer_without_end_is_not_read() -> None:
    server, port = listen(
        tornado.web.Application([(r"/(\d+)", EndpointsFile)]), host="127.0.0.1", port=0
    )
    (box,) = (await fetch_endpoints(f"http://127.0.0.1:{port}/200000")).gateways
    assert box.websocket_url == BOX["websocket_url"]
    with pytest.raises(Disconnected):
        await fetch_endpoints(f"http://127.0.0.1:{port}/300000")
    server.stop()
    await server.close_all_connections()
