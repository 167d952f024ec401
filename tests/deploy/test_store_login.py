"""The program that makes the store's logins: the replicas that it asks for, and the users."""

from __future__ import annotations

from argparse import Namespace
from types import ModuleType

import pytest
from cassandra import AuthenticationFailed, OperationTimedOut
from cassandra.cluster import NoHostAvailable

SIMPLE = {"class": "org.apache.cassandra.locator.SimpleStrategy", "replication_factor": "1"}
BY_CENTRE = {"class": "org.apache.cassandra.locator.NetworkTopologyStrategy"}
NODE = Namespace(hosts="192.0.2.1", port=9042, ca=None)


@pytest.mark.parametrize(
    ("nodes", "now", "replicas"),
    [
        (["oregon"], SIMPLE, {"oregon": "1"}),
        (["oregon"] * 2, BY_CENTRE | {"oregon": "1"}, {"oregon": "1"}),
        (["oregon"] * 3, BY_CENTRE | {"oregon": "1"}, {"oregon": "3"}),
        # One node is lost for good, and isn't replaced yet.
        (["oregon"] * 2, BY_CENTRE | {"oregon": "3"}, {"oregon": "3"}),
        (["oregon"] * 3 + ["dublin"], BY_CENTRE | {"oregon": "3"}, {"oregon": "3", "dublin": "1"}),
    ],
)
def test_a_data_centre_has_all_its_replicas_when_it_has_as_many_nodes(
    store_login: ModuleType, nodes: list[str], now: dict[str, str], replicas: dict[str, str]
) -> None:
    found = store_login.wanted(nodes, now, "oregon=3,dublin=3")
    assert found == {"class": "NetworkTopologyStrategy"} | replicas


@pytest.mark.parametrize("text", ["oregon=1,dublin=3", "dublin=3"])
def test_replicas_are_not_taken_away_because_the_inventory_lacks_a_node(
    store_login: ModuleType, text: str
) -> None:
    nodes, now = ["oregon"] * 3 + ["dublin"] * 3, BY_CENTRE | {"oregon": "3", "dublin": "1"}
    found = store_login.wanted(nodes, now, text)
    assert found == {"class": "NetworkTopologyStrategy", "oregon": "3", "dublin": "3"}


@pytest.mark.parametrize(
    ("nodes", "replicas"),
    [
        # Cassandra can't remove the last replica from a data centre that still has nodes.
        (["oregon"] * 3 + ["dublin"] * 3, {"oregon": "1", "dublin": "1"}),
        (["oregon"] * 3 + ["dublin"], {"oregon": "1", "dublin": "1"}),
        (["oregon"] * 3, {"oregon": "1"}),
    ],
)
def test_replicas_are_taken_away_on_purpose(
    store_login: ModuleType, nodes: list[str], replicas: dict[str, str]
) -> None:
    now = BY_CENTRE | {"oregon": "3", "dublin": "3"}
    found = store_login.wanted(nodes, now, "oregon=1", fewer=True)
    assert found == {"class": "NetworkTopologyStrategy"} | replicas


def test_a_data_centre_whose_nodes_have_all_left_has_no_replicas(store_login: ModuleType) -> None:
    now = BY_CENTRE | {"oregon": "3", "dublin": "1"}
    found = store_login.wanted(["oregon"] * 3, now, "oregon=3")
    assert found == {"class": "NetworkTopologyStrategy", "oregon": "3"}


@pytest.mark.parametrize(
    "errors",
    [{"192.0.2.1": AuthenticationFailed()}, ["192.0.2.1"]],
    ids=["its first connection", "one after it, which the driver gives no reasons for"],
)
def test_a_login_that_a_node_refuses_is_no_session(
    store_login: ModuleType, monkeypatch: pytest.MonkeyPatch, errors: object
) -> None:
    refuse(store_login, monkeypatch, errors)
    assert store_login.Node(NODE).session("writer", "of before") is None


def test_nodes_that_do_not_answer_are_an_error(
    store_login: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(store_login, monkeypatch, {"192.0.2.1": OperationTimedOut()})
    with pytest.raises(NoHostAvailable):
        store_login.Node(NODE).session("writer", "of before")


def refuse(store_login: ModuleType, monkeypatch: pytest.MonkeyPatch, errors: object) -> None:
    def connect(_: object) -> None:
        raise NoHostAvailable("Unable to connect to any servers", errors)

    monkeypatch.setattr(store_login.Cluster, "connect", connect)
