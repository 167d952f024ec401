"""The bare chain: the cost of brokers and shovels alone, measured in the same run as the fabric.

Client broker → shovel → core → a router of one line → shovel → retail broker → consumer. The
brokers are those of a running world; exchanges and queues are the bench's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from bench.latency import Delays, publish_steadily, sent_ns, settled
from newsfabric.amqp import Declare, Delivery, Link, Message, Properties
from newsfabric.amqp.link import connect
from newsfabric.brokers.management import Management
from newsfabric.settings import Credentials
from newsfabric.topology import Bounds, Queue, ShovelLink, shovel_value

IN, CORE, OUT, RETAIL = "bench.in", "bench.core", "bench.out", "bench.retail"
_BOUNDS = Bounds(max_length=100_000, max_bytes=64 << 20, expires_ms=60_000)


async def measure(region: dict[str, Any], *, rate: float, seconds: float) -> Delays:
    """Return the delays of the bare chain in ``region`` (of ``newsfabric status --json``)."""
    brokers = {broker["role"]: broker for broker in region["brokers"]}
    samples: list[int] = []
    async with (
        declaring(brokers["client"], IN) as client,
        declaring(brokers["core"], CORE, OUT) as core,
        declaring(brokers["retail"], RETAIL) as retail,
        shovelling(brokers["core"], brokers["client"], IN, CORE),
        shovelling(brokers["retail"], brokers["core"], OUT, RETAIL),
    ):
        forward = await core.publisher()

        def route(delivery: Delivery) -> None:
            confirmed = forward.publish_nowait(OUT, delivery.message)
            asyncio.ensure_future(confirmed).add_done_callback(lambda _: router.ack(delivery))

        def receive(delivery: Delivery) -> None:
            samples.append(time.monotonic_ns() - sent_ns(delivery.message.body))
            reader.ack(delivery)

        router = await core.consumer(CORE, route)
        reader = await retail.consumer(RETAIL, receive)
        publisher = await client.publisher()

        async def send(body: bytes) -> None:
            await publisher.publish(IN, Message("bench", body, Properties(app_id="bench")))

        await publish_steadily(send, rate=rate, seconds=2)
        await settled(samples)
        samples.clear()
        sent = await publish_steadily(send, rate=rate, seconds=seconds)
        await settled(samples)
        return Delays.of(samples, sent)


@contextlib.asynccontextmanager
async def declaring(broker: Mapping[str, Any], *names: str) -> AsyncIterator[Link]:
    """Yield a link to ``broker``, on which an exchange and a queue of each name are declared.

    ``broker`` is as in a world's status; its addresses are enough. Each queue receives all messages
    of its exchange, up to 100,000 messages and 64 MiB.
    """

    async def declare(on: Declare) -> None:
        for name in names:
            await on.exchange(name)
            await on.queue(name, arguments=_BOUNDS.arguments())
            await on.bind(name, name, "#")

    link = await connect([broker["amqp_url"]], name="bench")
    await link.on_connect(declare)
    try:
        await (await link.publisher()).ready()
        yield link
    finally:
        await link.close()


@contextlib.asynccontextmanager
async def shovelling(
    at: Mapping[str, Any], source: Mapping[str, Any], queue: str, exchange: str
) -> AsyncIterator[None]:
    """Run a shovel like the fabric's on ``at``, from ``queue`` of ``source`` to ``exchange``."""
    link = ShovelLink(
        name=f"bench.{exchange}",
        source=source["amqp_url"],
        queue=Queue(queue, _BOUNDS),
        exchange=exchange,
    )
    async with Management(at["management_url"], Credentials()) as management:
        await management.put_shovel(link.name, shovel_value(link, Credentials()))
        try:
            yield
        finally:
            await management.delete_shovel(link.name)
