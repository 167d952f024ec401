"""Store nodes of hosts have the settings of worlds' nodes, with which power cuts and damaged disks
are tested."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest

from localfabric.world.cassandra import StoreNode, command, configuration
from localfabric.world.cassandra_home import CassandraHome
from tests.deploy.unit_templates import ROLES

TEMPLATES = ROLES / "cassandra" / "templates"
HOSTS = {"oregon": ["oregon-store-1", "oregon-store-2", "oregon-store-3"]}


def node(folder: Path, replicas: int) -> StoreNode:
    return StoreNode(
        name="oregon-store-1",
        datacentre="oregon",
        folder=folder,
        cql_port=1,
        gossip_port=2,
        tokens=(0,),
        seeds=("127.0.0.1:2",),
        replicas=replicas,
    )


def setting(name: str, nodes: int) -> str:
    """Return a setting of a host's cassandra.yaml, in a region with so many ``nodes``."""
    lines = (TEMPLATES / "cassandra.yaml.j2").read_text().splitlines()
    (line,) = [each for each in lines if each.startswith(f"{name}:")]
    groups = {"store": HOSTS["oregon"][:nodes], "oregon": HOSTS["oregon"][:nodes]}
    given = {"newsfabric_replicas": 3, "newsfabric_place": "oregon", "groups": groups}
    return jinja2.Template(line).render(given).partition(": ")[2]


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("name", ["commitlog_sync", "disk_failure_policy", "hints_flush_period"])
def test_a_host_has_what_power_cuts_and_damage_are_played_with(
    tmp_path: Path, name: str, nodes: int
) -> None:
    assert setting(name, nodes) == configuration(node(tmp_path, replicas=nodes))[name]


@pytest.mark.parametrize(
    "option", ["cassandra.commitlog.ignorereplayerrors", "cassandra.gossip_quarantine_delay_ms"]
)
def test_a_host_starts_with_the_options_of_worlds(tmp_path: Path, option: str) -> None:
    home = CassandraHome(version="5.0.4", lib=tmp_path, java=tmp_path / "java")
    words = command(node(tmp_path, replicas=3), home)
    (ours,) = [word for word in words if word.startswith(f"-D{option}=")]
    assert ours in (TEMPLATES / "jvm.options.j2").read_text().splitlines()
