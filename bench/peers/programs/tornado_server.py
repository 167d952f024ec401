"""Tornado's WebSocket on uvloop: a reader says its topic."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import uvloop
from topic_lines import Topics, each_line
from tornado.web import Application
from tornado.websocket import WebSocketClosedError, WebSocketHandler

TOPICS = Topics()


class Handler(WebSocketHandler):
    def check_origin(self, origin: str) -> bool:
        return True

    def get_compression_options(self) -> dict[str, Any] | None:
        return {} if sys.argv[2:] == ["deflate"] else None

    def on_message(self, message: str | bytes) -> None:
        TOPICS[str(message)].add(self)
        self.write_message("{}")

    def on_close(self) -> None:
        TOPICS.remove(self)


def publish(topic: str, payload: str) -> None:
    for handler in TOPICS[topic]:
        with contextlib.suppress(WebSocketClosedError):
            handler.write_message(payload)


async def main() -> None:
    Application([("/websocket", Handler)]).listen(int(sys.argv[1]), "127.0.0.1", backlog=1024)
    await each_line(publish)


uvloop.run(main())
