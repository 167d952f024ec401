"""Latency from a publisher's send to a reader's receive, in the region and in the other one.

Open loop: messages are stamped with the moment at which they were *due*, so a late publisher makes
the figure worse, not better (coordinated omission).
"""

from __future__ import annotations

import asyncio
import dataclasses
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import orjson
import uvloop

from bench.box import subscribe_verb
from bench.programs import running_crowd
from newsfabric.amqp import Message, Properties
from newsfabric.amqp.link import connect

# Bronze (topics.toml): one path, and no wait for the store.
TOPIC = "metrics.bench"
# The size of a news headline: about 250 bytes with the stamp.
PADDING = "x" * 180
# Not measured: caches fill.
WARM_UP_SECONDS = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Delays:
    """Milliseconds from due to received, over ``count`` deliveries of ``expected``."""

    p50: float
    p99: float
    worst: float
    count: int
    expected: int

    @classmethod
    def of(cls, samples_ns: list[int], expected: int) -> Delays:
        """Return the delays of ``samples_ns``, two at least, in nanoseconds and any order."""
        ms = sorted(sample / 1e6 for sample in samples_ns)
        cuts = statistics.quantiles(ms, n=100)
        return cls(cuts[49], cuts[98], ms[-1], len(ms), expected)


def sent_ns(body: bytes) -> int:
    """Return the moment stamped into a body by :func:`publish_steadily`."""
    stamped: int = orjson.loads(body)["sent_ns"]
    return stamped


async def steadily(
    send: Callable[[int, int], Awaitable[Any]], *, rate: float, seconds: float
) -> int:
    """Call ``send(n, due_ns)`` ``rate`` times a second for ``seconds``; return the count.

    The next call doesn't wait for the end of the one before. Return when all have ended.
    """
    total = int(rate * seconds)
    start = time.monotonic_ns() + 50_000_000
    pending = []
    for n in range(total):
        due = start + int(n * 1e9 / rate)
        await asyncio.sleep(max(0, due - time.monotonic_ns()) / 1e9)
        pending.append(asyncio.ensure_future(send(n, due)))
    await asyncio.gather(*pending)
    return total


async def publish_steadily(
    send: Callable[[bytes], Awaitable[Any]], *, rate: float, seconds: float
) -> int:
    """Send ``rate`` stamped bodies a second for ``seconds``; return their count."""
    return await steadily(
        lambda n, due: send(orjson.dumps({"sent_ns": due, "n": n, "text": PADDING})),
        rate=rate,
        seconds=seconds,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """A number of readers, and messages a second for some seconds."""

    readers: int
    rate: float
    seconds: float


def between(
    source: dict[str, Any],
    at: dict[str, Any],
    load: Load,
    *,
    topic: str = TOPIC,
) -> Delays:
    """Measure from a publisher in region ``source`` to readers of the first gateway of ``at``.

    Both are regions of a world's status. The readers are a program in Rust: their own time counts
    as the fabric's delay. With a hundred in Python p50 was 2.7 times the bare chain's, with these
    2.0 times, on one day.
    """
    client = next(broker for broker in source["brokers"] if broker["role"] == "client")
    gateway = at["gateways"][0]["websocket_url"]
    return uvloop.run(_between(client["amqp_url"], gateway, load, topic))


async def _between(amqp_url: str, websocket_url: str, load: Load, topic: str) -> Delays:
    port = urlsplit(websocket_url).port
    assert port is not None
    link = await connect([amqp_url], name="bench")
    try:
        publisher = await link.publisher()
        await publisher.ready()

        async def send(body: bytes) -> None:
            await publisher.publish("publish", Message(topic, body, Properties(app_id="bench")))

        crowd_of = running_crowd(port, load.readers, say=subscribe_verb(topic), sample=1)
        async with crowd_of as crowd:
            await crowd.next_reply()
            warmth = await publish_steadily(send, rate=load.rate, seconds=WARM_UP_SECONDS)
            await crowd.has_got(warmth * load.readers)
            await crowd.send_command("report")
            sent = await publish_steadily(send, rate=load.rate, seconds=load.seconds)
            await crowd.has_got(sent * load.readers)
            report = await crowd.send_command("report")
        p50, p99, worst = report["p50_ms"], report["p99_ms"], report["worst_ms"]
        return Delays(p50, p99, worst, report["delays"], sent * load.readers)
    finally:
        await link.close()


async def settled(samples: list[int]) -> None:
    """Return when no sample has arrived for half a second."""
    before = -1
    while before != len(samples):
        before = len(samples)
        await asyncio.sleep(0.5)
