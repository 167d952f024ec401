"""The CQL files, and the migration of a cluster to them."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from cassandra.connection import DefaultEndPoint
from cassandra.policies import SimpleConvictionPolicy
from cassandra.pool import Host

from localfabric.nodes.cassandra import LocalCassandra
from newsfabric.errors import ConfigError, StoreError, StoreUnavailable
from newsfabric.store._cassandra_schema import (
    Migration,
    Schema,
    cql_folder,
    load_migrations,
    parse_replication,
    pending,
    statements,
)
from newsfabric.store._cassandra_url import Address, parse_address

ROOT = Path(__file__).parents[2]
FIRST = Migration(1, "first", ("CREATE TABLE IF NOT EXISTS a (k int PRIMARY KEY)",), "aaaa")
SECOND = Migration(2, "second", ("CREATE TABLE IF NOT EXISTS b (k int PRIMARY KEY)",), "bbbb")
ONE = {"oregon": 1}


def quiet(line: str) -> None:
    pass


def test_a_checkout_finds_the_files_beside_its_packages():
    assert cql_folder() == ROOT / "cassandra"


def test_our_files_are_numbered_and_every_statement_is_safe_to_run_again():
    migrations = load_migrations(ROOT / "cassandra")
    assert [m.version for m in migrations] == list(range(1, len(migrations) + 1))
    for migration in migrations:
        for statement in migration.statements:
            # An option can be set again without a change.
            made = (
                r"CREATE TABLE IF NOT EXISTS \w+ .*|ALTER TABLE \w+ WITH speculative_retry = '.*'"
            )
            assert re.fullmatch(made, statement, re.DOTALL), statement


@pytest.mark.parametrize(
    "names", [[], ["002_a.cql"], ["001_a.cql", "003_b.cql"], ["001_a.cql", "001_b.cql"], ["a.cql"]]
)
def test_files_without_numbers_or_with_gaps_are_a_config_error(tmp_path, names):
    for name in names:
        (tmp_path / name).write_text("SELECT 1;")
    with pytest.raises(ConfigError):
        load_migrations(tmp_path)


def test_statements_end_with_a_semicolon_at_the_end_of_a_line():
    text = "-- what; this is\nCREATE a (\n  b int, -- a; comment\n  c text\n);\n\nDROP 'x;y';\n"
    assert list(statements(text)) == ["CREATE a (\n  b int,\n  c text\n)", "DROP 'x;y'"]


def test_replicas_are_counted_by_data_centre():
    assert parse_replication("oregon=3, dublin=1") == {"oregon": 3, "dublin": 1}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("oregon=2", "two replicas are worse than one"),
        ("oregon=0", "at least one"),
        ("oregon", "write replicas as"),
        ("oregon=three", "write replicas as"),
        ("o'r=1", "write replicas as"),
        ("", "write replicas as"),
    ],
)
def test_other_replicas_are_a_config_error(text, why):
    with pytest.raises(ConfigError, match=why):
        parse_replication(text)


def test_what_has_been_applied_is_not_pending():
    assert pending([FIRST, SECOND], {}) == (FIRST, SECOND)
    assert pending([FIRST, SECOND], {1: ("first", "aaaa")}) == (SECOND,)
    assert pending([FIRST], {1: ("first", "aaaa")}) == ()


def test_a_file_that_was_changed_after_it_was_applied_is_an_error():
    with pytest.raises(StoreError, match=r"001_first.cql isn't what was applied"):
        pending([FIRST], {1: ("first", "cccc")})


def test_a_schema_of_a_newer_release_is_an_error():
    with pytest.raises(StoreError, match="at version 2, this release knows 1"):
        pending([FIRST], {1: ("first", "aaaa"), 2: ("second", "bbbb")})


class Cluster(Schema):
    """A schema without pending changes, in a cluster of three nodes in each data centre."""

    def __init__(self, has: dict[str, int] | None, wanted: dict[str, int], *, fewer: bool = False):
        address = parse_address("cassandra://127.0.0.1:1/news?dc=oregon")
        super().__init__(address, None, [], replication=wanted, fewer_replicas=fewer)
        hosts = [SimpleNamespace(datacenter=dc) for dc in ("oregon", "dublin") for _ in range(3)]
        self._cluster = SimpleNamespace(metadata=SimpleNamespace(all_hosts=lambda: hosts))
        self._has = has

    def _replication(self) -> dict[str, int] | None:
        return self._has

    def _applied(self) -> dict[int, tuple[str, str]]:
        return {}


def test_replicas_stay_where_fewer_are_asked_for_and_it_says_so():
    schema = Cluster({"oregon": 3, "dublin": 3}, {"oregon": 1, "dublin": 3})
    assert schema.plan().changes == []
    heard: list[str] = []
    assert schema.apply(heard.append) == []
    assert heard == [
        "oregon keeps 3 replicas of news, though fewer are asked for "
        "(--fewer-replicas takes them away)"
    ]


def test_a_data_centre_that_nobody_names_keeps_its_replicas_while_another_gets_more():
    planned = Cluster({"oregon": 1, "dublin": 3}, {"oregon": 3}).plan()
    assert planned.replicate == {"oregon": 3, "dublin": 3}
    assert planned.kept == {"dublin": 3}


def test_replicas_are_taken_away_on_purpose():
    planned = Cluster({"oregon": 3, "dublin": 3}, {"oregon": 1}, fewer=True).plan()
    assert planned.replicate == {"oregon": 1}
    assert planned.notes == []


@pytest.mark.parametrize(
    ("has", "raised"),
    [
        # A new keyspace has nothing to copy.
        (None, []),
        ({"oregon": 3}, ["dublin"]),
        ({"oregon": 1, "dublin": 1}, ["dublin", "oregon"]),
        ({"oregon": 3, "dublin": 3}, []),
    ],
)
def test_data_centres_that_get_more_replicas_are_named(has, raised):
    assert Cluster(has, {"oregon": 3, "dublin": 3}).plan().raised == raised


# Tests on a real node.


@pytest.fixture
def address(cassandra: LocalCassandra) -> Address:
    return parse_address(cassandra.url(f"s{uuid.uuid4().hex[:12]}"))


@pytest.mark.cassandra
def test_apply_makes_the_keyspace_and_the_tables_once(address):
    with Schema(address, None, [FIRST], replication=ONE) as schema:
        assert schema.plan().changes == [
            f"create keyspace {address.keyspace}, replicas oregon: 1",
            "apply 001_first.cql",
        ]
        assert schema.apply(quiet) == [
            f"create keyspace {address.keyspace}, replicas oregon: 1",
            "apply 001_first.cql",
        ]
        assert schema.apply(quiet) == []
    with Schema(address, None, [FIRST, SECOND]) as later:
        assert later.plan().applied == ("001_first",)
        assert later.apply(quiet) == ["apply 002_second.cql"]
        assert later.plan().changes == []


@pytest.mark.cassandra
def test_of_two_runs_at_once_one_applies_and_the_other_finds_nothing_to_do(address):
    with (
        Schema(address, None, [FIRST, SECOND], replication=ONE) as one,
        Schema(address, None, [FIRST, SECOND], replication=ONE) as other,
        ThreadPoolExecutor(2) as threads,
    ):
        done = list(threads.map(lambda schema: schema.apply(quiet), [one, other]))
        applied = [line for lines in done for line in lines if line.startswith("apply")]
        assert sorted(applied) == ["apply 001_first.cql", "apply 002_second.cql"]
        assert one.plan().changes == other.plan().changes == []


@pytest.mark.cassandra
def test_a_keyspace_is_not_made_without_a_number_of_replicas(address):
    with Schema(address, None, [FIRST]) as schema, pytest.raises(StoreError, match="--replication"):
        schema.plan()


@pytest.mark.cassandra
@pytest.mark.parametrize("replicas", [{"oregon": 3}, {"nowhere": 1}])
def test_more_replicas_than_nodes_are_refused(address, replicas):
    with (
        Schema(address, None, [FIRST], replication=replicas) as schema,
        pytest.raises(StoreUnavailable, match="too few"),
    ):
        schema.plan()


@pytest.mark.cassandra
def test_a_data_centre_that_not_every_node_has_heard_of_yet_is_waited_for(address):
    with Schema(address, None, [FIRST], replication=ONE | {"dublin": 1}) as schema:
        # As if the node that lists the others knew of dublin, and the cluster's only node didn't.
        heard = Host(DefaultEndPoint("127.0.0.9"), SimpleConvictionPolicy)
        heard.set_location_info("dublin", "rack1")
        assert schema._cluster is not None
        schema._cluster.metadata.add_or_return_host(heard)
        with pytest.raises(StoreUnavailable, match="not every node knows"):
            schema.apply(quiet)


@pytest.mark.cassandra
def test_a_keyspace_that_not_every_node_has_yet_is_waited_for(address, monkeypatch):
    with Schema(address, None, [FIRST], replication=ONE) as schema:
        # As if another node had made it, and the only node didn't know.
        made = dataclasses.replace(schema.plan(), replicate=None)
        monkeypatch.setattr(schema, "plan", lambda: made)
        with pytest.raises(StoreUnavailable, match="not every node knows"):
            schema.apply(quiet)


@pytest.mark.cassandra
def test_the_command_plans_applies_and_prints_json(address):
    # From the checkout's root, where the folder cassandra/ is on the path before the driver.
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "operations.cli", "schema", *words]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)

    store = ["--store", str(address)]
    first = run("apply", *store, "--replication", "oregon=1", "--json")
    assert first.returncode == 0, first.stderr
    assert len(json.loads(first.stdout)["done"]) == 1 + len(load_migrations(ROOT / "cassandra"))
    planned = run("plan", *store, "--json", "--detailed-exitcode")
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["replication"] == ONE
    assert json.loads(planned.stdout)["changes"] == []


def test_a_cluster_that_does_not_answer_is_one_clear_line():
    command = [sys.executable, "-m", "operations.cli", "schema", "plan"]
    done = subprocess.run(
        [*command, "--store", "cassandra://127.0.0.1:1/k?dc=a"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: cassandra://127.0.0.1:1/k?dc=a: no node answers")
    assert len(done.stderr.splitlines()) == 1
