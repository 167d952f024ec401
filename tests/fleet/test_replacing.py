"""Playbooks of core nodes, store nodes and secrets, under load, on two regions.

The tests share the machines, in their order: each playbook mends the damage of its test.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet import access
from fleet.fleet import Fleet
from fleet.playbooks import INVENTORY, PLAYBOOKS, command, environment
from tests.fleet.conftest import fabric_in
from tests.fleet.fabrics import FleetCrowd, changes, headlines, on, played, plays, publish, until

pytestmark = [pytest.mark.fleet, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(3600)]

CORES = [f"oregon-core-{number}" for number in (1, 2, 3)]
#: More than the fleet of six: two core nodes, and another region.
MORE = [*CORES[1:], "dublin-client-1", "dublin-core-1", "dublin-store-1"]
#: The second store node is added by the first test.
STORES = ["oregon-store-1", "oregon-store-2", "dublin-store-1"]
_SINCE = "systemctl show --timestamp=us --value"


@pytest.fixture(scope="module")
def fleet(
    layers: Path, tmp_path_factory: pytest.TempPathFactory, port_base: int
) -> Iterator[Fleet]:
    with fabric_in(tmp_path_factory, layers, port_base, MORE) as made:
        yield made


def away(fleet: Fleet, name: str, unit: str) -> tuple[str, str]:
    """Return the times at which a unit last stopped and started, comparable as text.

    For a unit that never stopped, both are the time of its start.
    """
    words = f"{_SINCE} --property=InactiveEnterTimestamp --property=ActiveEnterTimestamp {unit}"
    # "Mon 2026-11-23 02:18:24.304325 UTC", a line each, in systemd's own order.
    times = [line.split(" ", 1)[1] for line in on(fleet, name, words).splitlines() if line]
    return min(times), max(times)


def apart(times: list[tuple[str, str]]) -> bool:
    """Return whether each was back before the next one stopped."""
    ordered = sorted(times)
    return all(one[1] < other[0] for one, other in itertools.pairwise(ordered))


def stores_up(fleet: Fleet, name: str) -> int:
    """Return the number of store nodes that are up, as one of them sees them."""
    return on(fleet, name, "nodetool status newsfabric").count("\nUN ")


def test_a_store_node_more_joins_a_fabric_that_runs(fleet: Fleet) -> None:
    fleet.boot(["oregon-store-2"], new=False)
    plays(fleet, "site.yml")
    # The first node was restarted, since its seeds have changed.
    assert {stores_up(fleet, name) for name in STORES} == {3}
    assert set(changes(plays(fleet, "site.yml")).values()) == {0}


def test_a_setting_that_changes_restarts_brokers_and_stores_one_after_the_other(
    fleet: Fleet,
) -> None:
    changed = (
        "--extra-vars",
        "newsfabric_rabbitmq_disk_free=60MB newsfabric_cassandra_heap_mib=400",
    )
    # Brokers of boxes too: a broker that is away for over ten seconds makes its readers move.
    with FleetCrowd(fleet, ("oregon", "dublin"), readers=200, per_second=5) as crowd:
        plays(fleet, "site.yml", *changed)
    assert crowd.missed_nothing, crowd.report
    assert apart([away(fleet, name, "rabbitmq-server") for name in CORES])
    assert apart([away(fleet, name, "cassandra") for name in STORES])
    assert set(changes(plays(fleet, "site.yml", *changed)).values()) == {0}


def test_all_is_restarted_and_readers_miss_nothing(fleet: Fleet) -> None:
    nothing = played(fleet, "rolling-restart.yml", "--extra-vars", "only=everything")
    assert "there are brokers, store, services and boxes" in nothing.stdout
    assert sum(changes(nothing).values()) == 0

    before = [away(fleet, name, "rabbitmq-server") for name in CORES]
    with FleetCrowd(fleet, ("oregon", "dublin"), readers=200, per_second=5) as crowd:
        plays(fleet, "rolling-restart.yml", "--limit", "oregon")
    assert crowd.missed_nothing, crowd.report
    after = [away(fleet, name, "rabbitmq-server") for name in CORES]
    assert apart(after)
    assert max(before) < min(after)


def test_a_core_node_that_lost_its_disk_is_replaced(fleet: Fleet) -> None:
    node = ("--extra-vars", "node=oregon-core-1")
    alive = played(fleet, "replace-core-node.yml", *node)
    assert "oregon-core-1 has its broker's data still, so it isn't lost" in alive.stdout
    assert sum(changes(alive).values()) == 0

    with FleetCrowd(fleet, ("oregon", "dublin"), readers=200, per_second=5) as crowd:
        fleet.pull_plug(["oregon-core-1"])
        fleet.boot(["oregon-core-1"], new=True)
        plays(fleet, "replace-core-node.yml", *node)
    assert crowd.noticed_nothing, crowd.report
    for name in CORES:
        status = on(fleet, name, "rabbitmqctl --quiet cluster_status --formatter json")
        assert json.loads(status)["running_nodes"] == [f"{name}@localhost"]
    assert set(changes(plays(fleet, "site.yml")).values()) == {0}


def test_a_regions_only_store_node_gets_its_data_from_the_other_region(fleet: Fleet) -> None:
    node = ("--extra-vars", "node=dublin-store-1")
    alive = played(fleet, "replace-store-node.yml", *node)
    assert "dublin-store-1 has its data still, so it isn't lost" in alive.stdout

    headline = f"kept at {time.time()}"
    assert publish(fleet, headline) == 201
    assert headline in headlines(fleet, "dublin")
    fleet.pull_plug(["dublin-store-1"])
    fleet.boot(["dublin-store-1"], new=True)
    plays(fleet, "replace-store-node.yml", *node)
    assert stores_up(fleet, "dublin-store-1") == 3
    assert headline in headlines(fleet, "dublin")


def test_a_store_node_is_not_replaced_while_another_of_its_data_centre_is_down(
    fleet: Fleet,
) -> None:
    node = ("--extra-vars", "node=oregon-store-1")
    fleet.pull_plug(["oregon-store-1"])
    fleet.boot(["oregon-store-1"], new=True)
    on(fleet, "oregon-store-2", "systemctl stop cassandra")
    refused = played(fleet, "replace-store-node.yml", *node)
    assert "another node of the data centre is down, bring it back first" in refused.stdout
    assert sum(changes(refused).values()) == 0

    on(fleet, "oregon-store-2", "systemctl start cassandra")
    until(
        "the others know that it is back",
        lambda: stores_up(fleet, "dublin-store-1") == stores_up(fleet, "oregon-store-2") == 2,
    )
    plays(fleet, "replace-store-node.yml", *node)
    assert set(changes(plays(fleet, "site.yml")).values()) == {0}


def test_secrets_are_rotated_under_load_also_by_a_run_that_was_interrupted(fleet: Fleet) -> None:
    with FleetCrowd(fleet, ("oregon", "dublin"), readers=200, per_second=5) as crowd:
        access.renew_secret(fleet.folders)
        refused = played(fleet, "site.yml")
        assert "has the passwords of another newsfabric_secret" in refused.stdout
        assert sum(changes(refused).values()) == 0

        words = command(PLAYBOOKS / "rotate-secrets.yml", INVENTORY)
        with subprocess.Popen(
            words, env=environment(fleet.folders), stdout=subprocess.PIPE, text=True
        ) as first:
            assert first.stdout is not None
            # Halfway: brokers and store have the new passwords, the first core node too.
            next(line for line in first.stdout if "[Restart services of the core]" in line)
            next(line for line in first.stdout if "[service : Start the service]" in line)
            first.kill()
        plays(fleet, "rotate-secrets.yml")
    assert crowd.noticed_nothing, crowd.report
    again = plays(fleet, "rotate-secrets.yml")
    assert set(changes(again).values()) == {0}

    former = access.api_key(fleet.folders, former=True)
    assert publish(fleet, "by the former key", former) == 201
    access.forget_secret(fleet.folders)
    plays(fleet, "site.yml")
    assert publish(fleet, "by the former key", former) == 401
