"""A real broker dies, stays away and comes back, beside another of its cluster."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from brokers import NamedNodes as Nodes
from click.testing import CliRunner
from fabrics import TOPICS, broker

from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.settings import Credentials, Fabric, Region, dump_fabric
from newsfabric.topology import Binding, Broker, region_links
from shovels.apply import ManagementClients, TriedAction, carry_out, read_state, states
from shovels.cli import EXIT_CHANGES, shovels
from shovels.places import STEADY_AFTER, Uptimes

pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.timeout(300)]

NAMES = ("oregon-client-1", "oregon-core-1", "oregon-core-2")
CLIENT, FIRST, SECOND = map(broker, NAMES)
ALL = frozenset({CLIENT, FIRST, SECOND})


@pytest.fixture(scope="module")
def nodes(rabbitmq_home: RabbitmqHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Yield a client broker and two core brokers; the tests leave all running."""
    with Nodes(tmp_path_factory.mktemp("brokers"), rabbitmq_home, NAMES) as started:
        yield started


@pytest.fixture
def known(nodes: Nodes) -> Fabric:
    client, *core = map(nodes.node, NAMES)
    region = Region(
        name="oregon", frontdesk_url="http://127.0.0.1:1", client=(client,), core=tuple(core)
    )
    return Fabric((region,))


class Rounds:
    """A keeper whose clock the test moves."""

    def __init__(self, brokers: ManagementClients) -> None:
        self._brokers = brokers
        self._uptimes = Uptimes()
        self.now = 0.0

    async def one(self, away: Collection[Broker] = ()) -> list[TriedAction]:
        seen = self._uptimes.observe({each: each not in away for each in ALL}, self.now)
        # No canaries are sent here, so running shovels are taken for proven.
        links = [link.id for link in region_links(self._brokers.fabric, "oregon", TOPICS)]
        all_of_each = dict.fromkeys(links, ALL)
        seen = dataclasses.replace(seen, proven=all_of_each, back=all_of_each, known=all_of_each)
        done = await carry_out(
            self._brokers, await read_state(self._brokers, "oregon", TOPICS, seen)
        )
        assert [(each.action.name, each.error) for each in done if each.error] == []
        return done

    async def until(self, hosts: Collection[Broker], away: Collection[Broker] = ()) -> None:
        """Wait until the shovel of all messages runs on ``hosts`` alone, and all others run."""
        async with asyncio.timeout(60):
            # A broker's management has no events to wait for.
            while await self.one(away) or await self._running(away) != set(hosts):  # noqa: ASYNC110
                await asyncio.sleep(0.2)

    async def _running(self, away: Collection[Broker]) -> set[Broker]:
        found = await states(self._brokers, ALL - frozenset(away))
        fields = {
            at: {} if isinstance(status, str) else {s.name: s.state for s in status.shovels}
            for at, status in found.items()
        }
        everything = {state for shovels in fields.values() for state in shovels.values()}
        there = {at for at, shovels in fields.items() if "publish.oregon.1" in shovels}
        return there if everything == {"running"} else set()


class Commands:
    """``newsfabric shovels plan`` with options, in a process that only asks the brokers."""

    def __init__(self, folder: Path, known: Fabric) -> None:
        self._folder = folder
        (folder / "fabric.json").write_text(dump_fabric(known), encoding="utf-8")
        gold = "\n".join(
            f'[[topic]]\npattern = "{pattern}"\nclass = "gold"'
            for pattern in TOPICS.copied_patterns
        )
        (folder / "topics.toml").write_text(f'{gold}\n[[topic]]\npattern = "#"\n', encoding="utf-8")

    async def plan(self, option: str) -> int:
        words = ["plan", option, "--state", str(self._folder)]
        return (await asyncio.to_thread(CliRunner().invoke, shovels, words)).exit_code


async def test_its_shovels_move_to_another_broker_and_come_back_once_it_is_steady(
    nodes: Nodes, known: Fabric, tmp_path: Path
) -> None:
    queue, command = "shovel.receipts.1", Commands(tmp_path, known)
    async with ManagementClients(known, Credentials()) as brokers:
        rounds = Rounds(brokers)
        await rounds.one()
        await rounds.until({FIRST})

        await asyncio.to_thread(nodes.kill, FIRST.name)
        await rounds.until({SECOND}, away={FIRST})
        second = brokers.apis[SECOND]
        assert {"publish.oregon.1", "publish.oregon.1.2"} == set(await second.shovels())
        assert Binding("receipts", queue) in await second.bindings()

        await asyncio.to_thread(nodes.start, FIRST.name)
        await rounds.until({FIRST, SECOND})
        # A single look finds nothing to change about a broker that stands in for another.
        assert await command.plan("--detailed-exitcode") == 0
        assert await command.plan("--preferred") == EXIT_CHANGES
        rounds.now += STEADY_AFTER
        await rounds.until({FIRST})
        assert await command.plan("--preferred") == 0
        assert set(await second.shovels()) == {"publish.oregon.1.2"}
        assert Binding("receipts", queue) in await brokers.apis[FIRST].bindings()


async def test_a_broker_that_is_replaced_by_an_empty_one_gets_all_that_it_should_hold(
    nodes: Nodes, known: Fabric
) -> None:
    async with ManagementClients(known, Credentials()) as brokers:
        rounds = Rounds(brokers)
        await rounds.one()
        rounds.now += STEADY_AFTER
        await rounds.until({FIRST})
        before = (await read_state(brokers, "oregon", TOPICS)).actual[FIRST]

        first = brokers.apis[FIRST]
        for name in await first.shovels():
            await first.delete_shovel(name)
        for name in await first.queues():
            await first.delete_queue(name)
        await rounds.until({FIRST})
        after = (await read_state(brokers, "oregon", TOPICS)).actual[FIRST]
        assert (after.queues, after.bindings) == (before.queues, before.bindings)
        assert after.shovels == before.shovels
