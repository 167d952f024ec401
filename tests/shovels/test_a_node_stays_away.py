"""A node dies, stays away and comes back, in a real cluster of two."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

import pytest
from brokers import Brokers as Nodes
from fabrics import TOPICS

from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.settings import Credentials, Fabric, Region
from newsfabric.topology import Binding, Cluster
from shovels.apply import Brokers, Done, Status, carry_out, look, states
from shovels.homes import AWAY_AFTER, STEADY_AFTER, Seen, Uptimes

pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.timeout(240)]

CLIENT, CORE = Cluster("oregon", "client"), Cluster("oregon", "core")
FIRST, SECOND = "oregon-client-1", "oregon-client-2"
CORE_1, CORE_2 = "oregon-core-1", "oregon-core-2"


class Clock:
    """A keeper's memory of nodes, whose time passes when a test says so."""

    def __init__(self) -> None:
        self._uptimes = Uptimes()
        self.now = 0.0

    def observe(self, expected: Iterable[str], running: frozenset[str]) -> Seen:
        return self._uptimes.observe(expected, running, self.now)


@pytest.fixture(scope="module")
def nodes(rabbitmq_home: RabbitmqHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Two clusters of two; the tests leave all running."""
    folder = tmp_path_factory.mktemp("clusters")
    with Nodes(folder, rabbitmq_home, [[FIRST, SECOND], [CORE_1, CORE_2]]) as started:
        yield started


@pytest.fixture
def known(nodes: Nodes) -> Fabric:
    region = Region(
        name="oregon",
        frontdesk_url="http://127.0.0.1:1",
        client=(nodes.node(FIRST), nodes.node(SECOND)),
        core=(nodes.node(CORE_1), nodes.node(CORE_2)),
    )
    return Fabric((region,))


async def _rounds(brokers: Brokers, clock: Clock, count: int) -> list[Done]:
    done: list[Done] = []
    for _ in range(count):
        found = await look(brokers, "oregon", TOPICS, clock.observe)
        done += await carry_out(brokers, found)
    assert [(each.action.name, each.error) for each in done if each.error] == []
    return done


async def _source_queue(brokers: Brokers) -> str:
    shovels = await (await brokers.reach(CORE)).shovels()
    return str(shovels["publish.oregon.1"]["src-queue"])


async def _until_running(brokers: Brokers) -> None:
    async with asyncio.timeout(30):
        while True:
            status = (await states(brokers, [CORE]))[CORE]
            assert isinstance(status, Status)
            if {shovel.state for shovel in status.shovels} == {"running"}:
                return
            await asyncio.sleep(0.2)


async def test_its_queue_moves_to_the_other_node_and_back(nodes: Nodes, known: Fabric) -> None:
    clock = Clock()
    async with Brokers(known, Credentials()) as brokers:
        await _rounds(brokers, clock, 1)
        homes = {q.name: q.home for q in (await (await brokers.reach(CLIENT)).queues()).values()}
        assert homes["shovel.publish.oregon.1"] == f"{FIRST}@localhost"
        assert homes["shovel.publish.oregon.2"] == f"{SECOND}@localhost"
        assert await _rounds(brokers, clock, 1) == []

        await asyncio.to_thread(nodes.kill, FIRST)
        assert await _rounds(brokers, clock, 1) == []
        clock.now += AWAY_AFTER
        await _rounds(brokers, clock, 1)
        moved = f"shovel.publish.oregon.1.{SECOND}"
        assert await _source_queue(brokers) == moved
        client = await brokers.reach(CLIENT)
        assert Binding("publish", moved) in await client.bindings()
        await _until_running(brokers)
        assert await _rounds(brokers, clock, 2) == []

        await asyncio.to_thread(nodes.start, FIRST)
        await _rounds(brokers, clock, 2)
        assert await _source_queue(brokers) == moved
        clock.now += STEADY_AFTER
        await _rounds(brokers, clock, 2)
        assert await _source_queue(brokers) == "shovel.publish.oregon.1"
        client = await brokers.reach(CLIENT)
        assert moved not in await client.queues()
        assert Binding("publish", "shovel.publish.oregon.1") in await client.bindings()
        await _until_running(brokers)
        assert await _rounds(brokers, clock, 1) == []


async def _router_keys(brokers: Brokers) -> set[str]:
    bindings = await (await brokers.reach(CORE)).bindings()
    return {binding.key for binding in bindings if binding.queue == "router.2"}


async def test_while_the_first_core_node_is_away_the_second_router_queue_takes_everything(
    nodes: Nodes, known: Fabric
) -> None:
    gold = set(TOPICS.patterns("gold"))
    clock = Clock()
    async with Brokers(known, Credentials()) as brokers:
        await _rounds(brokers, clock, 1)
        assert await _router_keys(brokers) == gold

        await asyncio.to_thread(nodes.kill, CORE_1)
        await _rounds(brokers, clock, 1)
        clock.now += AWAY_AFTER
        await _rounds(brokers, clock, 1)
        assert await _router_keys(brokers) == {"#"}
        assert await _rounds(brokers, clock, 1) == []

        await asyncio.to_thread(nodes.start, CORE_1)
        await _rounds(brokers, clock, 1)
        assert await _router_keys(brokers) == {"#"}
        clock.now += STEADY_AFTER
        await _rounds(brokers, clock, 2)
        assert await _router_keys(brokers) == gold
        assert await _rounds(brokers, clock, 1) == []
