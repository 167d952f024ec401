"""The messages of the soak: one router's stream, written to the store before it is sent."""

from __future__ import annotations

import time
from typing import Final

import orjson

from newsfabric.amqp.message import Message
from newsfabric.messages.control import Tick, encode_tick
from newsfabric.messages.envelope import Envelope, encode, id_of, identity_of
from newsfabric.topics import TopicPolicy, TopicTable

# The topic of which every steady reader must receive each message exactly once.
STEADY: Final = "news.steady"
TABLE: Final = TopicTable(
    [
        TopicPolicy(pattern="news.*", topic_class="gold", keep=50, slow="disconnect"),
        TopicPolicy(pattern="live.*", keep=10, slow="conflate"),
        TopicPolicy(pattern="video.*", topic_class="bronze", keep=10, slow="drop_oldest"),
    ]
)


class NumberingRouter:
    """Numbers messages as a router does. Times are of its own clock, a new millisecond for each."""

    def __init__(self) -> None:
        self.epoch = int(time.time() * 1000)
        self.seq = 0
        self._last_ms = 0

    def message(self, topic: str, body: object, *, key: str | None = None) -> Envelope:
        """Return the next message of the stream."""
        self.seq += 1
        self._last_ms = max(self._last_ms + 1, int(time.time() * 1000))
        name = f"soak-{self.epoch}-{self.seq}"
        identity = identity_of(app_id=None, message_id=name, topic="", published_ms=None, body=b"")
        return Envelope(
            id=id_of(self._last_ms, identity),
            identity=identity,
            topic=topic,
            body=orjson.dumps(body),
            published_ms=self._last_ms,
            origin="oregon",
            router="soak",
            epoch=self.epoch,
            seq=self.seq,
            key=key,
            version=None if key is None else self.seq,
            message_id=name,
        )


def line_of(envelope: Envelope) -> bytes:
    """Return ``envelope`` as a line for the feed of a control plane.

    All numbers before it are settled.
    """
    return _line(encode(envelope, low=envelope.seq - 1))


def tick_line(router: NumberingRouter | None = None) -> bytes:
    """Return a tick of ``router``, all of whose numbers are settled; without one, a tick of another
    router that routes nothing."""
    name, epoch, seq = ("ticker", 1, 0) if router is None else ("soak", router.epoch, router.seq)
    now_ms = int(time.time() * 1000)
    tick = Tick(origin="oregon", router=name, epoch=epoch, seq=seq, sent_ms=now_ms, low=seq)
    return _line(encode_tick(tick))


def _line(message: Message) -> bytes:
    fields = {
        "topic": message.topic,
        "body": message.body.decode(),
        "headers": dict(message.properties.headers or {}),
        "message_id": message.properties.message_id,
        "type": message.properties.type,
        "content_type": message.properties.content_type,
    }
    return orjson.dumps(fields) + b"\n"
