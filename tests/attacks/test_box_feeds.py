"""A box on a core broker where keepers make bindings: it gets its feed, and nothing else.

The core is a real broker with the generated definitions, and a keeper's look at boxes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from fabrics import fabric
from guarded import Guarded, opened, publishes

from newsfabric.brokers.management import Management
from newsfabric.settings import Credentials, Node
from newsfabric.topology import (
    Binding,
    Broker,
    Cluster,
    box_feed,
    box_queue,
    brokers_of,
    feed_bindings,
)
from shovels.boxes import Boxes

pytestmark = [pytest.mark.broker, pytest.mark.promise("F4")]

KEEPER = Credentials("keeper.oregon", "pass-word")
ME, MINE, OTHER = "box.edge-1", box_queue("edge-1", 2), box_queue("edge-2", 2)
AS_MADE = box_feed("edge-1", 2, "amqp://").queue.bounds.arguments()


@contextlib.asynccontextmanager
async def keeping(core: Guarded) -> AsyncIterator[Management]:
    name = next(b for b in brokers_of(fabric()) if b.cluster == Cluster("oregon", "core")).name
    node = Node(name=name, amqp_url=core.node.amqp_url, management_url=core.node.management_url)
    boxes = Boxes("oregon", {Broker(Cluster("oregon", "core"), name): node}, KEEPER)
    running = asyncio.create_task(boxes.run())
    try:
        async with Management(core.node.management_url, KEEPER) as api:
            yield api
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def bound(api: Management, queue: str) -> set[Binding]:
    return {each for each in await api.bindings() if each.queue == queue}


async def arrives(api: Management, queue: str, wanted: set[Binding]) -> None:
    async with asyncio.timeout(30):
        while await bound(api, queue) != wanted:  # noqa: ASYNC110 - a broker tells no such event
            await asyncio.sleep(0.1)


async def test_a_box_declares_its_queue_and_is_fed(core: Guarded) -> None:
    async with keeping(core) as api:
        with core.connect(ME) as connection:
            channel = opened(connection)
            channel.queue_declare(MINE, durable=True, arguments=AS_MADE)
            await arrives(api, MINE, set(feed_bindings("oregon", "edge-1", MINE)))
            core.takes("router.oregon", publishes("postoffice", "news.x", b"[1]"))
            core.takes(
                "scaler.oregon",
                publishes("orders", "_fabric.drain.oregon.edge-1", b"[2]", user_id="scaler.oregon"),
                publishes("orders", "_fabric.drain.oregon.edge-2", b"[3]", user_id="scaler.oregon"),
            )
            publishes("upstream", "_fabric.load.oregon.edge-1", b"[4]", user_id=ME)(channel)
            heard = [channel.basic_get(MINE, auto_ack=True)[2] for _ in range(4)]
            assert heard == [b"[1]", b"[2]", b"[4]", None]
            channel.queue_delete(MINE)


@pytest.mark.parametrize(
    "hostile",
    [
        {"x-overflow": "reject-publish", "x-max-length": 0},
        {"x-dead-letter-exchange": "upstream", "x-dead-letter-routing-key": "_fabric.mark"},
    ],
    ids=["refuses", "sends on"],
)
async def test_a_box_holds_up_what_other_regions_send_or_sends_it_on(
    core: Guarded, hostile: dict[str, object]
) -> None:
    async with keeping(core) as api:
        with core.connect(ME) as connection, core.connect("box.edge-2") as another:
            opened(connection).queue_declare(MINE, durable=True, arguments=hostile)
            # This queue appears later, so a look that finds it has found the hostile one, too.
            opened(another).queue_declare(OTHER, durable=True, arguments=AS_MADE)
            await arrives(api, OTHER, set(feed_bindings("oregon", "edge-2", OTHER)))
            assert await bound(api, MINE) == set()
            # A shovel that publishes into it gets its confirm.
            core.takes("router.oregon", publishes("postoffice", "news.x", b"[1]"))
            assert opened(another).basic_get(OTHER, auto_ack=True)[2] == b"[1]"
            opened(connection).queue_delete(MINE)
            opened(another).queue_delete(OTHER)


async def test_a_box_declares_exchanges_under_its_queues_names(core: Guarded) -> None:
    core.takes(
        ME,
        lambda channel: channel.exchange_declare(
            MINE, "topic", durable=True, arguments={"alternate-exchange": "upstream"}
        ),
    )
    async with keeping(core) as api:
        async with asyncio.timeout(30):
            while MINE in await api.exchanges():  # noqa: ASYNC110 - a broker tells no such event
                await asyncio.sleep(0.1)


async def test_another_connections_own_queue_stops_nobody_elses_feed(core: Guarded) -> None:
    async with keeping(core) as api:
        with core.connect(ME) as connection, core.connect("box.edge-2") as another:
            opened(connection).queue_declare(MINE, exclusive=True, arguments=AS_MADE)
            opened(another).queue_declare(OTHER, durable=True, arguments=AS_MADE)
            await arrives(api, OTHER, set(feed_bindings("oregon", "edge-2", OTHER)))
            assert await bound(api, MINE) == set()
            opened(another).queue_delete(OTHER)
