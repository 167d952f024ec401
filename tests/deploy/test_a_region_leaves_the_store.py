"""A region leaves the store of two regions, by the steps of docs/operations/add-a-region.md."""

from __future__ import annotations

import subprocess
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cassandra.cluster import NoHostAvailable

from localfabric.nodes.cassandra import LocalCassandra
from localfabric.nodes.ports import free_ports
from localfabric.world.cassandra_home import CassandraHome
from tests.deploy.unit_templates import ROLES

pytestmark = [pytest.mark.slow, pytest.mark.cassandra, pytest.mark.timeout(600)]

STAYS, LEAVES = "oregon-store-1", "dublin-store-1"


@pytest.fixture
def management() -> int:
    """Return the management port of the node that leaves."""
    (port,) = free_ports(1)
    return port


@pytest.fixture
def regions(
    cassandra_home: CassandraHome, tmp_path: Path, management: int
) -> Iterator[LocalCassandra]:
    nodes = LocalCassandra(tmp_path / "nodes", cassandra_home, centres=("oregon", "dublin"))
    try:
        nodes.start(STAYS)
        nodes.start(LEAVES, options=[f"-Dcassandra.jmx.local.port={management}"])
        yield nodes
    finally:
        nodes.kill()


def decommission(home: CassandraHome, port: int, *options: str) -> subprocess.CompletedProcess[str]:
    tool = "org.apache.cassandra.tools.NodeTool"
    template = ROLES / "cassandra" / "templates" / "jvm.options.j2"
    access = [line for line in template.read_text().splitlines() if line.startswith("--add")]
    words = [str(home.java), *access, "-cp", f"{home.lib}/*", tool, "-p", str(port), "decommission"]
    return subprocess.run(
        [*words, *options], capture_output=True, text=True, timeout=120, check=False
    )


def test_its_logins_keep_one_replica_until_its_node_has_left(
    cassandra_home: CassandraHome, store_login: ModuleType, regions: LocalCassandra, management: int
) -> None:
    node = store_login.Node(Namespace(hosts="127.0.0.1", port=regions.nodes[0].cql_port, ca=None))
    session: Any = node.session("anybody", "of a cluster without logins")

    def replicated(replication: str, *, fewer: bool) -> dict[str, str]:
        """Return the replicas by data centre after a run of the playbook."""
        text = Namespace(replication=replication, fewer_replicas=fewer)
        store_login.replicate(session, text)
        found = dict(session.execute(store_login.REPLICATION).one().replication)
        return {dc: n for dc, n in found.items() if dc != "class"}

    def known() -> dict[str, list[str]]:
        """Return, by data centre of each node, those of its peers; nothing if a node is leaving."""
        hosts = [host for host in session.cluster.metadata.all_hosts() if host.is_up]
        try:
            found = {
                host.datacenter: session.execute(store_login.PEERS, host=host) for host in hosts
            }
        except NoHostAvailable:
            return {}
        return {centre: [row.data_center for row in rows] for centre, rows in found.items()}

    def wait_for(expected: dict[str, list[str]]) -> None:
        """Wait until all nodes know each other: both have one address here, so any may be asked."""
        deadline = time.monotonic() + 60
        while known() != expected:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    try:
        wait_for({"oregon": ["dublin"], "dublin": ["oregon"]})
        assert replicated("oregon=1,dublin=1", fewer=False) == {"oregon": "1", "dublin": "1"}
        assert replicated("oregon=1", fewer=True) == {"oregon": "1", "dublin": "1"}
        refused = decommission(cassandra_home, management)
        assert "Not enough live nodes to maintain replication factor" in (
            refused.stdout + refused.stderr
        )
        left = decommission(cassandra_home, management, "--force")
        assert left.returncode == 0, left.stdout + left.stderr
        wait_for({"oregon": []})
        assert replicated("oregon=1", fewer=False) == {"oregon": "1"}
    finally:
        node.close()
