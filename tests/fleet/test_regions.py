"""Playbooks of boxes, regions and backups, on two regions of the smallest size.

The tests share the machines, in their order: each playbook mends the damage of its test.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.fleet import Fleet
from fleet.playbooks import INVENTORY, PLAYBOOKS, command, environment
from tests.fleet.conftest import fabric_in
from tests.fleet.fabrics import (
    FleetCrowd,
    boxes,
    changes,
    headlines,
    hears,
    on,
    played,
    plays,
    publish,
    until,
)

pytestmark = [pytest.mark.fleet, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(3600)]

ROLES = ("client", "core", "store", "retail")


@pytest.fixture(scope="module")
def fleet(
    layers: Path, tmp_path_factory: pytest.TempPathFactory, port_base: int
) -> Iterator[Fleet]:
    """Yield a fabric of ten machines: a second region beside the fleet of six."""
    with fabric_in(
        tmp_path_factory, layers, port_base, [f"dublin-{role}-1" for role in ROLES]
    ) as made:
        yield made


def test_a_region_is_emptied_and_comes_back_and_readers_miss_nothing(fleet: Fleet) -> None:
    refused = played(fleet, "evacuate-region.yml", "--extra-vars", "region=oregon")
    assert "tokyo hands over to oregon what isn't gold" in refused.stdout
    assert sum(changes(refused).values()) == 0

    with FleetCrowd(fleet, ("dublin", "oregon"), readers=200, per_second=5, amqp=True) as crowd:
        plays(fleet, "evacuate-region.yml", "--extra-vars", "region=dublin")
        assert "inactive" in on(fleet, "dublin-core-1", "systemctl is-active rabbitmq-server")
        assert boxes(fleet, "oregon") == 2
        deployed = played(fleet, "deploy.yml")
        assert "dublin-core-1 is evacuated: bring it back first" in deployed.stdout
        plays(fleet, "restore-region.yml", "--extra-vars", "region=dublin")
        assert boxes(fleet, "dublin") == 1
    assert crowd.report["left"] == 200
    # The publisher was sent elsewhere, and came back.
    assert crowd.report["routed_in"] == ["dublin", "oregon"]
    assert (crowd.report["lost"], crowd.report["doubled"]) == (0, 0)
    assert crowd.report["fullest_second"] <= 2 * 200 / crowd.report["left_in_seconds"]

    until("oregon's board hears dublin", lambda: hears(fleet, "oregon", "dublin"), 60.0)
    until("dublin's board hears oregon", lambda: hears(fleet, "dublin", "oregon"), 60.0)

    again = plays(fleet, "site.yml")
    assert set(changes(again).values()) == {0}


def test_a_message_of_before_is_read_in_a_new_store(fleet: Fleet, tmp_path: Path) -> None:
    headline = f"kept at {time.time()}"
    assert publish(fleet, headline) == 201
    backup = tmp_path / "a-backup"
    options = ("--extra-vars", f"backup={backup}")
    plays(fleet, "backup.yml", *options)
    assert sorted(path.name for path in backup.iterdir()) == [
        "SHA256SUMS",
        "oregon-store-1.tar.gz",
    ]
    assert set(changes(plays(fleet, "backup.yml", *options)).values()) == {0}

    stores = ["oregon-store-1", "dublin-store-1"]
    fleet.pull_plug(stores)
    fleet.boot(stores, new=True)
    plays(fleet, "site.yml")
    assert headline not in headlines(fleet, "dublin")

    archive = backup / "oregon-store-1.tar.gz"
    whole = archive.read_bytes()
    archive.write_bytes(whole[:-1])
    torn = played(fleet, "restore.yml", *options)
    assert torn.returncode != 0
    assert sum(changes(torn).values()) == 0
    archive.write_bytes(whole)

    plays(fleet, "restore.yml", *options)
    for region in ("oregon", "dublin"):
        assert headline in headlines(fleet, region)


def test_a_box_more_is_made_and_drained_and_an_interrupted_run_is_given_again(
    fleet: Fleet,
) -> None:
    new = ("--extra-vars", "boxes=dublin-retail-2")
    nobody = played(fleet, "scale-out-retail.yml", "--extra-vars", "boxes=dublin-core-1")
    assert "say with -e boxes=" in nobody.stdout

    fleet.boot(["dublin-retail-2"], new=False)
    words = command(PLAYBOOKS / "scale-out-retail.yml", INVENTORY, new)
    with subprocess.Popen(
        words, env=environment(fleet.folders), stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        # Halfway: its broker is configured, and doesn't run yet.
        next(line for line in first.stdout if "[rabbitmq : Its settings]" in line)
        first.kill()
    touched = plays(fleet, "scale-out-retail.yml", *new)
    assert changes(touched)["oregon-core-1"] == 0
    assert boxes(fleet, "dublin") == 2
    assert set(changes(plays(fleet, "scale-out-retail.yml", *new)).values()) == {0}

    plays(fleet, "drain-retail.yml", "--limit", "dublin-retail-1")
    assert boxes(fleet, "dublin") == 1
    assert "dublin-retail-1 isn't asked: it is drained" in plays(fleet, "verify.yml").stdout
    # Only the core is broken now, and nothing else is named.
    on(fleet, "dublin-core-1", "systemctl stop newsfabric-router@1")
    broken = played(fleet, "verify.yml", "--limit", "dublin-core-1")
    assert "dublin-core-1 isn't ready: {'router-1': 'no answer'}" in broken.stdout
