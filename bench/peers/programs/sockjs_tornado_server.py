"""sockjs-tornado on uvloop: a reader says its topic. Its first frame, "o", comes before that."""

from __future__ import annotations

import contextlib
import sys

import uvloop
from sockjs.tornado import SockJSConnection, SockJSRouter, proto
from topic_lines import Topics, each_line
from tornado.web import Application
from tornado.websocket import WebSocketClosedError

TOPICS = Topics()


class Connection(SockJSConnection):
    """One reader."""

    def on_message(self, topic: str) -> None:
        """sockjs-tornado calls it with each line: a topic, or nothing."""
        # The crowd waits for an answer to each of its two lines, and "o" is one.
        if topic:
            TOPICS[topic].add(self)
            self.send("{}")

    def on_close(self) -> None:
        """sockjs-tornado calls it once the reader has gone."""
        TOPICS.remove(self)


def publish(topic: str, payload: str) -> None:
    """Send ``payload`` to each reader of ``topic``; those that are closing get nothing."""
    # As its broadcast() does it, which however ends at the first socket that is just closing.
    text = proto.json_encode(payload)
    for reader in TOPICS[topic]:
        with contextlib.suppress(WebSocketClosedError):
            reader.session.send_jsonified(text, False)


async def main() -> None:
    """Serve the port of the first argument until standard input ends."""
    router = SockJSRouter(Connection, "/sockjs", {"heartbeat_delay": 600})
    Application(router.urls).listen(int(sys.argv[1]), "127.0.0.1", backlog=1024)
    await each_line(publish)


uvloop.run(main())
