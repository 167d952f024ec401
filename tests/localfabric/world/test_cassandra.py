"""A Cassandra node's files and command, and the search for its jars."""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
from pathlib import Path

import pytest

from localfabric.nodes.ports import free_ports
from localfabric.world.cassandra import (
    StoreNode,
    answers,
    command,
    configuration,
    few_wakeups,
    prepare,
    tokens,
)
from localfabric.world.cassandra_home import CassandraHome, find_cassandra
from newsfabric.errors import SetupError


def node(folder: Path) -> StoreNode:
    return StoreNode(
        name="oregon-store-1",
        datacentre="oregon",
        folder=folder,
        cql_port=18104,
        gossip_port=18105,
        tokens=tokens(centre=0, node=0, nodes=1),
        seeds=("127.0.0.1:18105", "127.0.0.1:18205"),
    )


def home(folder: Path) -> CassandraHome:
    return CassandraHome(version="5.0.4", lib=folder / "lib", java=folder / "java")


def test_a_node_listens_on_loopback_alone_and_keeps_everything_in_its_folder(tmp_path):
    prepare(node(tmp_path))
    settings = json.loads((tmp_path / "conf" / "cassandra.yaml").read_text())
    assert settings["listen_address"] == settings["rpc_address"] == "127.0.0.1"
    assert settings["native_transport_port"] == 18104
    assert settings["storage_port"] == 18105
    folders = [settings[name] for name in settings if name.endswith("_directory")]
    assert all(folder.startswith(str(tmp_path)) for folder in folders)
    assert settings["data_file_directories"] == [f"{tmp_path}/data"]


def test_a_node_answers_a_write_when_its_log_is_synced(tmp_path):
    assert configuration(node(tmp_path))["commitlog_sync"] == "batch"


@pytest.mark.parametrize(("replicas", "policy"), [(1, "ignore"), (3, "stop_paranoid")])
def test_a_node_with_a_damaged_file_leaves_if_two_others_have_its_rows(tmp_path, replicas, policy):
    one = dataclasses.replace(node(tmp_path), replicas=replicas)
    assert configuration(one)["disk_failure_policy"] == policy


def test_a_node_knows_its_data_centre(tmp_path):
    prepare(node(tmp_path))
    properties = (tmp_path / "conf" / "cassandra-rackdc.properties").read_text()
    assert "dc=oregon\n" in properties


def test_a_node_is_run_from_jars_with_a_bounded_heap(tmp_path):
    words = command(node(tmp_path), home(tmp_path), heap_mb=300)
    assert words[0] == str(tmp_path / "java")
    assert "-Xmx300m" in words
    assert words[-2:] == [
        f"{tmp_path}/conf:{tmp_path}/lib/*",
        "org.apache.cassandra.service.CassandraDaemon",
    ]


def test_only_a_node_that_is_measured_has_both_compilers(tmp_path):
    one, found = node(tmp_path), home(tmp_path)
    assert "-XX:TieredStopAtLevel=1" in command(one, found)
    assert "-XX:TieredStopAtLevel=1" not in command(one, found, optimised=True)


def test_what_is_started_to_wake_seldom_has_a_slack_of_a_millisecond_and_nothing_else():
    def slack() -> str:
        read = ["cat", "/proc/self/timerslack_ns"]
        return subprocess.run(read, capture_output=True, text=True, check=True).stdout.strip()

    before = slack()
    with few_wakeups():
        assert slack() == "1000000"
    assert slack() == before


def test_tokens_are_even_within_a_data_centre():
    ring = sorted(token for n in range(3) for token in tokens(centre=1, node=n, nodes=3))
    steps = {after - before for before, after in itertools.pairwise(ring)}
    assert len(ring) == 12
    assert max(steps) - min(steps) <= 1


def test_where_nobody_listens_nothing_answers():
    (port,) = free_ports(1)
    assert not answers(port, timeout=0.2)


def make_jar(folder: Path) -> None:
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "cassandra-all-5.0.4.jar").touch()


def make_java(folder: Path) -> dict[str, str]:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(mode=0o755)
    return {"JAVA_HOME": str(folder)}


def test_the_jars_are_found_where_setup_puts_them(tmp_path):
    make_jar(tmp_path / ".tools" / "cassandra")
    found = find_cassandra(tmp_path, make_java(tmp_path / "jdk"))
    assert found.version == "5.0.4"
    assert found.lib == tmp_path / ".tools" / "cassandra" / "lib"
    assert found.java == tmp_path / "jdk" / "bin" / "java"


def test_a_named_home_comes_first(tmp_path):
    make_jar(tmp_path / ".tools" / "cassandra")
    make_jar(tmp_path / "mine")
    environ = make_java(tmp_path / "jdk") | {"NEWSFABRIC_CASSANDRA_HOME": str(tmp_path / "mine")}
    assert find_cassandra(tmp_path, environ).lib == tmp_path / "mine" / "lib"


def test_what_is_missing_is_reported_with_the_mend(tmp_path):
    java = make_java(tmp_path / "jdk")
    with pytest.raises(SetupError, match="scripts/setup cassandra"):
        find_cassandra(tmp_path, java)
    with pytest.raises(SetupError, match="has no lib/cassandra-all"):
        find_cassandra(tmp_path, java | {"NEWSFABRIC_CASSANDRA_HOME": str(tmp_path)})
    with pytest.raises(SetupError, match="openjdk-17"):
        find_cassandra(tmp_path, {"PATH": str(tmp_path)}, system=tmp_path)


def test_a_java_that_cassandra_runs_on_comes_before_the_one_of_the_path(tmp_path):
    make_jar(tmp_path / ".tools" / "cassandra")
    newest = Path(make_java(tmp_path / "usr/lib/jvm/java-25-openjdk-amd64")["JAVA_HOME"])
    path = {"PATH": str(newest / "bin")}
    assert find_cassandra(tmp_path, path, system=tmp_path).java == newest / "bin/java"
    fit = Path(make_java(tmp_path / "usr/lib/jvm/java-21-openjdk-amd64")["JAVA_HOME"])
    assert find_cassandra(tmp_path, path, system=tmp_path).java == fit / "bin/java"
