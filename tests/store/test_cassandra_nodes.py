"""The driver's events about a region's nodes: one that it has forgotten, and one that is killed."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from cassandra import OperationTimedOut
from cassandra.cluster import Cluster, NoHostAvailable
from gateways import until

from localfabric.nodes.cassandra import LocalCassandra
from localfabric.world.cassandra_home import CassandraHome
from newsfabric.store._cassandra_cluster import cluster, keep_nodes_known
from newsfabric.store._cassandra_presence import Presence
from newsfabric.store._cassandra_url import parse_address

pytestmark = [pytest.mark.slow, pytest.mark.cassandra, pytest.mark.timeout(300)]

PATIENCE = 60.0
STALLS = 8


@pytest.fixture(scope="module")
def nodes(
    cassandra_home: CassandraHome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCassandra]:
    with LocalCassandra(tmp_path_factory.mktemp("nodes"), cassandra_home, nodes=2) as made:
        yield made


def stall_while_they_start(made: LocalCassandra) -> None:
    """Stop both nodes for 1.5 s eight times (or until they serve), from their first gossip on."""
    with ThreadPoolExecutor(1) as beside:
        starting = beside.submit(made.start, timeout=240)
        stalls = 0
        while stalls < STALLS and not starting.done():
            if all(listens(node.gossip_port) for node in made.nodes):
                for number in (signal.SIGSTOP, signal.SIGCONT):
                    for node in made.nodes:
                        made.signal(node.name, number)
                    wait([starting], 1.5 if number == signal.SIGSTOP else 0.5)
                stalls += 1
            wait([starting], 0.05)
        starting.result()


def listens(port: int) -> bool:
    """Return whether the port accepts connections; that of a stopped process does, too."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False


def hear_of_both(made: Cluster) -> None:
    """Wait until the driver knows both nodes: one that has just started may not know the other."""
    deadline = time.monotonic() + PATIENCE
    while len(made.metadata.all_hosts()) < 2:
        assert time.monotonic() < deadline, "the first node doesn't hear of the second"
        time.sleep(0.2)
        made.refresh_nodes()


class WatchedPresence(Presence):
    """A presence that lets a test wait for the driver's event that a node is down."""

    def __init__(self, *known: Any) -> None:
        super().__init__(*known)
        self.down = threading.Event()

    def on_down(self, host: Any) -> None:
        super().on_down(host)
        self.down.set()


async def test_a_node_that_the_driver_forgot_is_found_again(nodes: LocalCassandra) -> None:
    made = cluster(parse_address(nodes.url("system")), None)
    ports = {node.cql_port for node in nodes.nodes}

    def known() -> set[int]:
        return {host.endpoint.port for host in made.metadata.all_hosts()}

    try:
        await asyncio.to_thread(made.connect)
        async with asyncio.timeout(PATIENCE):
            while known() != ports:
                await asyncio.to_thread(made.refresh_nodes)
        control_host = made.get_control_connection_host()
        (other,) = (host for host in made.metadata.all_hosts() if host != control_host)
        made.metadata.remove_host(other)
        assert known() == {control_host.endpoint.port}
        keeping = asyncio.create_task(keep_nodes_known(made, every=0.1))
        await until(lambda: known() == ports)
        keeping.cancel()
        await asyncio.wait([keeping])
    finally:
        await asyncio.to_thread(made.shutdown)


def test_nodes_that_stall_while_they_join_find_each_other(
    cassandra_home: CassandraHome, tmp_path: Path
) -> None:
    nodes = LocalCassandra(tmp_path, cassandra_home, nodes=2)
    made = cluster(parse_address(nodes.url("system")), None)
    try:
        stall_while_they_start(nodes)
        made.connect()
        hear_of_both(made)
    finally:
        made.shutdown()
        nodes.kill()


def test_one_of_two_nodes_that_is_killed_leaves_its_region_whole(nodes: LocalCassandra) -> None:
    made = cluster(parse_address(nodes.url("system")), None)
    presence = WatchedPresence("oregon", made.metadata.all_hosts)
    try:
        made.register_listener(presence)
        session = made.connect()
        hear_of_both(made)
        presence.note_nodes()
        assert presence.is_whole(time.monotonic())
        nodes.kill("oregon-store-2")
        deadline = time.monotonic() + PATIENCE
        # A driver notices by its requests; an idle driver may notice late.
        while not presence.down.wait(0.2):
            assert time.monotonic() < deadline, "the driver doesn't notice"
            with contextlib.suppress(NoHostAvailable, OperationTimedOut):
                session.execute("SELECT key FROM system.local")
        assert presence.is_whole(time.monotonic())
    finally:
        made.shutdown()
