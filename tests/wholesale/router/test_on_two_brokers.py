"""A router over two real brokers, one of which is stopped with open sockets."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

import pytest
from brokers import NamedNodes
from core_cluster import TIMEOUT, message

from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric import topology
from newsfabric.amqp import ConfirmingPublisher, Declare, Delivery, Link
from newsfabric.amqp.link import connect
from newsfabric.amqp.spread import SKIPPED, connect_each
from newsfabric.messages import control
from newsfabric.messages.control import Receipt
from newsfabric.settings import Credentials, Node
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicTable
from wholesale.router.service import IN_FLIGHT, RouterService, RouterSettings

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]


NAMES = ("oregon-core-1", "oregon-core-2")


@pytest.fixture
def nodes(rabbitmq_home: RabbitmqHome, tmp_path: Path) -> Iterator[NamedNodes]:
    with NamedNodes(tmp_path, rabbitmq_home, NAMES) as started:
        yield started


class ReceiptedPublisher:
    """A publisher at one broker's ``intake``, and the receipts that arrive there."""

    def __init__(self, link: Link, publisher: ConfirmingPublisher) -> None:
        self._link = link
        self._publisher = publisher
        self._receipts: asyncio.Queue[Receipt] = asyncio.Queue()

    @classmethod
    async def opened(cls, node: Node, topics: TopicTable) -> ReceiptedPublisher:
        async def declare(broker: Declare) -> None:
            await topology.declare_part(broker, topology.core(topics))
            await broker.queue("publisher-1", durable=False, exclusive=True, auto_delete=True)
            await broker.bind("publisher-1", "receipts", "publisher-1")

        link = await connect([node.amqp_url], name="publisher-1")
        publisher = await link.publisher()
        async with asyncio.timeout(TIMEOUT):
            await publisher.ready()
        await link.on_connect(declare)
        opened = cls(link, publisher)
        consumer = await link.consumer(
            "publisher-1", lambda delivery: opened._take_receipt(delivery)
        )
        opened._ack = consumer.ack
        return opened

    def _take_receipt(self, delivery: Delivery) -> None:
        self._ack(delivery)
        self._receipts.put_nowait(control.decode_receipt(delivery.message))

    async def publish(self, *ids: str) -> None:
        """Publish messages with these ids, and wait until each has its receipt."""
        for each in ids:
            await self.send(each)
        await self.receipts_for(ids)

    async def send(self, message_id: str) -> None:
        """Publish a message as soon as the broker accepts one."""
        await self._publisher.ready()
        sent = message(message_id=message_id, reply_to="publisher-1")
        self._publisher.publish_nowait("intake", sent)

    async def receipts_for(self, ids: Iterable[str]) -> None:
        """Wait until each of these messages has its receipt here."""
        waiting = set(ids)
        async with asyncio.timeout(TIMEOUT):
            while waiting:
                # Receipts of messages published elsewhere arrive here too.
                receipt = await self._receipts.get()
                assert receipt.status == "routed"
                waiting.discard(receipt.message_id or "")

    async def close(self) -> None:
        await self._link.close()


def waiting(nodes: NamedNodes) -> int:
    """Count messages in the first broker's queues for routers, with unacknowledged ones."""
    words = ("list_queues", "name", "messages", "--formatter", "json")
    listed = {row["name"]: row["messages"] for row in json.loads(nodes.ctl(*words))}
    return sum(listed[queue] for queue in topology.router_queues())


@pytest.fixture
async def router(nodes: NamedNodes, topics: TopicTable) -> AsyncIterator[RouterService]:
    urls = {name: nodes.node(name).amqp_url for name in NAMES}
    links = await connect_each(urls, name="router", credentials=Credentials())
    taking = await connect_each(urls, name="router taking", credentials=Credentials())
    settings = RouterSettings(name="r1", region="oregon", queues=topology.router_queues())
    yield RouterService(
        settings, links=links, taking=taking, store=MemoryStore(topics), topics=topics
    )
    await asyncio.gather(links.close(), taking.close())


async def test_a_broker_that_is_stopped_delays_no_receipt_and_no_drain(
    nodes: NamedNodes, router: RouterService, topics: TopicTable
):
    first, second = [await ReceiptedPublisher.opened(nodes.node(name), topics) for name in NAMES]
    stop = asyncio.Event()
    serving = asyncio.create_task(router.serve(stop))
    stopped = nodes._processes[NAMES[0]]
    try:
        await first.publish("1")
        await second.publish("2")
        stopped.send_signal(signal.SIGSTOP)
        # More than may be unconfirmed at the stopped broker.
        ids = [f"while it is stopped {n}" for n in range(2 * IN_FLIGHT)]
        before = SKIPPED.labels(NAMES[0]).total
        await second.publish(*ids)
        assert SKIPPED.labels(NAMES[0]).total > before
        assert router.readiness().ready
        stop.set()
        async with asyncio.timeout(TIMEOUT):
            await serving
        assert router.under_way == 0
    finally:
        stopped.send_signal(signal.SIGCONT)
        serving.cancel()
        await asyncio.wait([serving])
        await asyncio.gather(first.close(), second.close())


async def test_what_a_broker_without_room_has_is_routed_by_the_other(
    nodes: NamedNodes, router: RouterService, topics: TopicTable
):
    first, second = [await ReceiptedPublisher.opened(nodes.node(name), topics) for name in NAMES]
    # More than a router takes without acknowledging any.
    ids = [str(n) for n in range(3 * router.settings.prefetch)]
    for each in ids:
        await first.send(each)
    await asyncio.to_thread(nodes.ctl, "set_disk_free_limit", "9000GB")
    stop = asyncio.Event()
    serving = asyncio.create_task(router.serve(stop))
    try:
        # No receipt arrives at the first broker now, so the second one has them all.
        await second.receipts_for(ids)
        async with asyncio.timeout(TIMEOUT):
            # No event tells of it.
            while await asyncio.to_thread(waiting, nodes):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    finally:
        # Otherwise the broker doesn't read the close of the connection.
        await asyncio.to_thread(nodes.ctl, "set_disk_free_limit", "1MB")
        stop.set()
        await serving
        await asyncio.gather(first.close(), second.close())
