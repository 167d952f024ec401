"""sockjs-tornado on uvloop: a reader sends its topic, after the server's first frame, "o"."""

from __future__ import annotations

import contextlib
import sys

import uvloop
from sockjs.tornado import SockJSConnection, SockJSRouter, proto
from topic_lines import Topics, each_line
from tornado.web import Application
from tornado.websocket import WebSocketClosedError

TOPICS = Topics()


class SockJsReader(SockJSConnection):
    """The connection of one reader."""

    def on_message(self, topic: str) -> None:
        """Add the reader to the topic in the line, if there is one; sockjs-tornado calls this."""
        # The crowd waits for a reply to each of its two lines, and "o" is one.
        if topic:
            TOPICS[topic].add(self)
            self.send("{}")

    def on_close(self) -> None:
        """Remove the reader, whose connection has ended; sockjs-tornado calls this."""
        TOPICS.remove(self)


def publish(topic: str, payload: str) -> None:
    """Send ``payload`` to each reader of ``topic``, except readers that are closing."""
    # As in its broadcast(), which however fails at the first socket that is just closing.
    text = proto.json_encode(payload)
    for reader in TOPICS[topic]:
        with contextlib.suppress(WebSocketClosedError):
            reader.session.send_jsonified(text, False)


async def main() -> None:
    """Serve the port of the first argument until standard input ends."""
    router = SockJSRouter(SockJsReader, "/sockjs", {"heartbeat_delay": 600})
    Application(router.urls).listen(int(sys.argv[1]), "127.0.0.1", backlog=1024)
    await each_line(publish)


uvloop.run(main())
