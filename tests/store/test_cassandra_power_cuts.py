"""Three replicas, two of which lose power at once: messages that a quorum acknowledged are there.

The third replica, which may not have lost power, has them as well, and would hide the losses of the
other two: so it is down while they are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator

import pytest
from acknowledged_writes import TOPICS, Writer, lost
from power_cuts import CutDisk

from bench.store import with_tables
from localfabric.nodes.cassandra import LocalCassandra
from localfabric.world.cassandra_home import CassandraHome
from newsfabric.errors import StoreUnavailable, WorldError
from newsfabric.store import Store, open_store

pytestmark = [pytest.mark.slow, pytest.mark.cassandra, pytest.mark.timeout(900)]

KEYSPACE = "power"
PATIENCE = 120.0


class Replicas:
    """Three nodes, each on a disk of its own."""

    def __init__(self, nodes: LocalCassandra, disks: dict[str, CutDisk]) -> None:
        self.nodes = nodes
        self.disks = disks
        self.url = nodes.url(KEYSPACE)
        self.dead: list[str] = []

    def start(self) -> None:
        for disk in self.disks.values():
            disk.power_on()
        self.nodes.start()
        with_tables(self.nodes, replicas=3, keyspace=KEYSPACE)
        for disk in self.disks.values():
            disk.settle()

    def whole(self) -> None:
        """Start the nodes that are still dead after the test before."""
        if self.dead:
            self.nodes.start(*self.dead)
            self.dead = []

    def cut(self, names: list[str], seed: int, share: float) -> None:
        """Cut the power of these nodes at one moment, and end the others."""
        for name in names:
            self.disks[name].cut(seed, share)
        self.nodes.kill()

    def come_back(self, names: list[str]) -> None:
        for name in names:
            self.disks[name].unmount()
            self.disks[name].power_on()
        while not self._start(names):
            pass
        self.dead = [name for name in self.disks if name not in names]

    def _start(self, names: list[str]) -> bool:
        """Start these nodes; if one has torn hints, with which Cassandra doesn't start, delete
        these (docs/operations/losing-a-store-node.md), and return False."""
        try:
            self.nodes.start(*names)
        except WorldError as exc:
            if "Hints Descriptor CRC Mismatch" not in str(exc):
                raise
            self.nodes.kill(*names)
            (torn,) = (each for each in self.nodes.nodes if str(exc).startswith(f"{each.name} "))
            for file in (torn.folder / "hints").iterdir():
                file.unlink()
            return False
        return True


@pytest.fixture(scope="module")
def replicas(
    power_cuts: None, cassandra_home: CassandraHome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replicas]:
    folder = tmp_path_factory.mktemp("replicas")
    nodes = LocalCassandra(folder / "nodes", cassandra_home, nodes=3)
    with contextlib.ExitStack() as ending:
        disks = {
            node.name: CutDisk(node.folder, folder / "disks" / node.name, journal=True)
            for node in nodes.nodes
        }
        for disk in disks.values():
            ending.callback(disk.unmount, "-z")
        ending.callback(nodes.kill)
        made = Replicas(nodes, disks)
        made.start()
        yield made


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = open_store(url, TOPICS)
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(StoreUnavailable):
                    await store.check()
                    break
                await asyncio.sleep(0.2)
        yield store
    finally:
        await store.close()


@pytest.mark.promise("R6")
@pytest.mark.parametrize(
    ("seed", "share"),
    [
        pytest.param(1, 0.0, id="synced"),
        # Torn files: those of SQLite are in test_power_cuts.py.
        pytest.param(2, 0.5, id="synced and some more", marks=pytest.mark.long),
    ],
)
async def test_what_a_quorum_acknowledged_is_there_after_two_of_three_lost_power(
    replicas, seed, share
):
    await asyncio.to_thread(replicas.whole)
    dice = random.Random(seed)
    two = dice.sample(sorted(replicas.disks), 2)
    writer = await asyncio.to_thread(Writer, replicas.url, 100_000 * seed)
    acknowledged = await asyncio.to_thread(writer.acknowledged, dice.randrange(500, 2_000))
    await asyncio.to_thread(replicas.cut, two, seed, share)
    acknowledged |= await asyncio.to_thread(writer.killed)
    await asyncio.to_thread(replicas.come_back, two)
    async with opened(replicas.url) as store:
        assert await lost(store, acknowledged) == set()
