"""The brokers of a region stand side by side: publishers don't wait for one that is frozen."""

from __future__ import annotations

import asyncio
import collections
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack

import pytest
from brokers import freeze, thaw
from client_programs import CONTRACT, program
from client_regions import ClientRegion, ClientRegions, settings

from localfabric.nodes.rabbitmq import LocalNode
from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.amqp import Message
from newsfabric.publish import AsyncPublisher, Published
from newsfabric.settings import Node

# Maven may take a minute to compile the Java library on a busy machine.
pytestmark = [pytest.mark.broker, pytest.mark.timeout(400)]

PATIENCE = 60.0
# So long that a busy machine repeats only lost messages.
SEND_AGAIN = 3.0


class TwoBrokers:
    """Two brokers of one region, each with a router that replies."""

    def __init__(self, nodes: list[LocalNode], brokers: list[ClientRegion]) -> None:
        self._nodes, self.brokers = nodes, brokers

    @property
    def urls(self) -> str:
        return ",".join(broker.url for broker in self.brokers)

    def freeze(self, broker: ClientRegion) -> None:
        freeze(self._nodes[self.brokers.index(broker)])

    def delete_queue(self, broker: ClientRegion, name: str) -> None:
        """Delete a queue as an operator can, even one that is exclusive to another connection."""
        self._nodes[self.brokers.index(broker)].ctl("delete_queue", "--vhost", broker.vhost, name)

    def thaw(self) -> None:
        for node in self._nodes:
            thaw(node)

    def tries(self) -> collections.Counter[str]:
        """Return the number of times that each message came, on either broker."""
        return collections.Counter(
            str(message.properties.message_id) for broker in self.brokers for message in broker.seen
        )


@pytest.fixture(scope="module")
def nodes(
    rabbitmq_home: RabbitmqHome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[LocalNode]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(LocalNode(tmp_path_factory.mktemp("rabbitmq"), rabbitmq_home))
            for _ in range(2)
        ]


@pytest.fixture
async def pair(nodes: list[LocalNode]) -> AsyncIterator[TwoBrokers]:
    async with AsyncExitStack() as stack:
        brokers = []
        for node in nodes:
            where = Node(node.broker.name, node.amqp_url, node.management_url)
            regions = await stack.enter_async_context(ClientRegions.on(where))
            brokers.append(await regions("oregon"))
        made = TwoBrokers(nodes, brokers)
        stack.callback(made.thaw)
        yield made


async def test_while_one_stands_still_the_other_answers_and_later_both_are_used_again(
    pair: TwoBrokers,
) -> None:
    opening = AsyncPublisher.open([pair.urls], app_id="cms", window=20, send_again=SEND_AGAIN)
    async with asyncio.timeout(3 * PATIENCE), await opening as publisher:

        async def publish(message_id: str) -> Published:
            return await publisher.publish("news.x", {}, message_id=message_id)

        before = [await publish(f"before-{n}") for n in range(20)]
        # The first messages may have used the broker that was connected first.
        (usual,) = [broker for broker in pair.brokers if "before-19" in _ids(broker)]
        (other,) = [broker for broker in pair.brokers if broker is not usual]
        pair.freeze(usual)
        during = await asyncio.gather(*(publish(f"during-{n}") for n in range(200)))
        assert [each.id for each in before] == [f"id of before-{n}" for n in range(20)]
        assert [each.id for each in during] == [f"id of during-{n}" for n in range(200)]
        assert {f"during-{n}" for n in range(200)} <= _ids(other)
        pair.thaw()
        while not await _goes_by(usual, other, publish):
            pass
    # The messages of one window are repeated, and now and then a copy is sent as a probe.
    twice = [name for name, count in pair.tries().items() if count > 1]
    assert len(twice) < 100
    assert max(pair.tries().values()) <= 3


async def _goes_by(
    usual: ClientRegion, other: ClientRegion, publish: Callable[[str], Awaitable[Published]]
) -> bool:
    """Return whether the next message uses ``usual`` alone."""
    message_id = uuid.uuid4().hex
    await publish(message_id)
    return message_id in _ids(usual) and message_id not in _ids(other)


def _ids(broker: ClientRegion) -> set[str | None]:
    return {message.properties.message_id for message in broker.seen}


@pytest.mark.parametrize("language", CONTRACT)
async def test_a_broker_that_stops_in_the_middle_costs_no_message(
    pair: TwoBrokers, language: str
) -> None:
    frozen: list[ClientRegion] = []

    def watch(broker: ClientRegion) -> Callable[[Message, int], str]:
        def answer(_message: Message, n: int) -> str:
            if n == 50 and not frozen:
                frozen.append(broker)
                pair.freeze(broker)
            return "routed"

        return answer

    for broker in pair.brokers:
        broker.answers = watch(broker)
    given = settings(pair.urls, window=20, send_again=SEND_AGAIN, timeout=PATIENCE)
    (result,) = await program(language).run(given, {"topic": "news.x", "many": 300})
    assert result["failed"] == 0
    assert len(frozen) == 1
    pair.thaw()
    assert len(pair.tries()) == 300


@pytest.mark.parametrize("language", CONTRACT)
async def test_a_queue_for_receipts_that_is_deleted_costs_no_message(
    pair: TwoBrokers, language: str
) -> None:
    broker, _ = pair.brokers
    broker.answers = lambda _message, _n: None
    given = settings(broker.url, window=20, send_again=SEND_AGAIN, timeout=3 * PATIENCE)
    running = asyncio.create_task(program(language).run(given, {"topic": "news.x", "many": 40}))
    (lost,) = {str(message.properties.reply_to) for message in await broker.saw(20)}
    # The messages are routed, but their receipts are lost.
    await asyncio.to_thread(pair.delete_queue, broker, lost)
    waiting = {message.properties.message_id for message in broker.seen}
    broker.answers = lambda _message, _n: "routed"
    (result,) = await running
    assert result["failed"] == 0
    answered = [m.properties for m in broker.seen if m.properties.reply_to != lost]
    assert waiting <= {properties.message_id for properties in answered}
    assert len({properties.reply_to for properties in answered}) == 1
    assert len(pair.tries()) == 40
