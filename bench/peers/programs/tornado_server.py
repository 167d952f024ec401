"""Tornado's WebSocket on uvloop: a reader sends its topic."""

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
    """The connection of one reader."""

    def check_origin(self, origin: str) -> bool:
        """Allow pages of any site to read; Tornado calls this."""
        return True

    def get_compression_options(self) -> dict[str, Any] | None:
        """Return None, no compression, unless the second argument is ``deflate``; for Tornado."""
        return {} if sys.argv[2:] == ["deflate"] else None

    def on_message(self, message: str | bytes) -> None:
        """Add the reader to the topic in the message, and reply with ``{}``; Tornado calls this."""
        TOPICS[str(message)].add(self)
        self.write_message("{}")

    def on_close(self) -> None:
        """Remove the reader, whose connection has ended; Tornado calls this."""
        TOPICS.remove(self)


def publish(topic: str, payload: str) -> None:
    """Send ``payload`` to each reader of ``topic``, except readers that are closing."""
    for handler in TOPICS[topic]:
        with contextlib.suppress(WebSocketClosedError):
            handler.write_message(payload)


async def main() -> None:
    """Serve the port of the first argument until standard input ends."""
    Application([("/websocket", Handler)]).listen(int(sys.argv[1]), "127.0.0.1", backlog=1024)
    await each_line(publish)


uvloop.run(main())
