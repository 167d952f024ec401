"""picows on uvloop: a reader sends its topic."""

from __future__ import annotations

import sys

import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_create_server
from topic_lines import Topics, each_line

TOPICS = Topics()


class PicowsReader(WSListener):
    """The connection of one reader."""

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Add the reader to the topic in the frame, and reply with ``{}``; picows calls this."""
        TOPICS[frame.get_payload_as_utf8_text()].add(transport)
        transport.send(WSMsgType.TEXT, b"{}")

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """Remove the reader, whose connection has ended; picows calls this."""
        TOPICS.remove(transport)


def publish(topic: str, payload: str) -> None:
    """Send ``payload`` to each reader of ``topic``."""
    data = payload.encode()
    for transport in TOPICS[topic]:
        transport.send(WSMsgType.TEXT, data)


async def main() -> None:
    """Serve the port of the first argument until standard input ends."""
    await ws_create_server(
        lambda _request: PicowsReader(), "127.0.0.1", int(sys.argv[1]), backlog=1024
    )
    await each_line(publish)


uvloop.run(main())
