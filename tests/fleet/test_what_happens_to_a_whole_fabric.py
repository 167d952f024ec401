"""The pages of docs/operations about a region added and removed, and about a fabric that is lost,
each followed step by step.

The tests of a fabric share its machines, in their order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet import access
from fleet.fleet import Fleet
from tests.fleet.conftest import fabric_in
from tests.fleet.fabrics import (
    FleetCrowd,
    asked,
    boxes,
    changes,
    headlines,
    hears,
    on,
    plays,
    publish,
    until,
)

pytestmark = [pytest.mark.fleet, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(3600)]

DUBLIN = [f"dublin-{role}-1" for role in ("client", "core", "store", "retail")]


@pytest.fixture(scope="module")
def fleet(
    layers: Path, tmp_path_factory: pytest.TempPathFactory, port_base: int
) -> Iterator[Fleet]:
    """Yield a fabric of one region and a proxy."""
    with fabric_in(tmp_path_factory, layers, port_base, []) as made:
        yield made


def regions(fleet: Fleet) -> list[str]:
    """Return the regions that oregon's board shows."""
    token = access.operator_token(fleet.folders, "ada", 60.0)
    board = asked(fleet, "/board.json", "oregon", f"Authorization: Bearer {token}")
    return [each["name"] for each in board["regions"]]


def test_a_region_more_has_all_and_nobody_notices(fleet: Fleet) -> None:
    assert publish(fleet, "before there was a dublin") == 201
    until("it is there", lambda: "before there was a dublin" in headlines(fleet, "oregon"), 60.0)
    fleet.boot(DUBLIN, new=False)
    with FleetCrowd(fleet, ("oregon",), readers=200, per_second=5) as crowd:
        plays(fleet, "site.yml")
    assert crowd.noticed_nothing, crowd.report
    assert "before there was a dublin" in headlines(fleet, "dublin")
    assert boxes(fleet, "dublin") == 1
    until("oregon's board hears dublin", lambda: hears(fleet, "oregon", "dublin"), 60.0)
    until("dublin's board hears oregon", lambda: hears(fleet, "dublin", "oregon"), 60.0)
    assert set(changes(plays(fleet, "site.yml")).values()) == {0}


def test_a_region_is_taken_away_and_its_readers_go_on_elsewhere(fleet: Fleet) -> None:
    with FleetCrowd(fleet, ("dublin", "oregon"), readers=200, per_second=5, amqp=True) as crowd:
        plays(fleet, "evacuate-region.yml", "--extra-vars", "region=dublin")
        less = json.dumps({"newsfabric_regions": ["oregon"], "fewer_replicas": True})
        plays(fleet, "site.yml", "--limit", "all:!dublin", "--extra-vars", less)
        owns = on(fleet, "oregon-store-1", "nodetool status newsfabric").partition("dublin")[2]
        assert re.findall(r"[\d.]+%", owns.partition("Datacenter")[0]) == ["0.0%"], owns
        on(fleet, "dublin-store-1", "nodetool decommission --force")
        assert "Datacenter: dublin" not in on(fleet, "oregon-store-1", "nodetool status")
        fleet.power_off(DUBLIN, forget=True)
        plays(fleet, "site.yml")
    assert crowd.report["left"] == 200
    assert crowd.missed_nothing, crowd.report
    assert regions(fleet) == ["oregon"]
    assert "before there was a dublin" in headlines(fleet, "oregon")
    assert set(changes(plays(fleet, "site.yml")).values()) == {0}


def test_all_is_made_anew_of_a_backup_and_the_inventory(fleet: Fleet, tmp_path: Path) -> None:
    assert publish(fleet, "before all was lost") == 201
    until("it is there", lambda: "before all was lost" in headlines(fleet, "oregon"), 60.0)
    backup = ("--extra-vars", f"backup={tmp_path / 'a-backup'}")
    plays(fleet, "backup.yml", *backup)
    assert publish(fleet, "after the backup") == 201

    everything = [machine.name for machine in fleet.members()]
    fleet.pull_plug(everything)
    fleet.boot(everything, new=True)
    plays(fleet, "site.yml")
    plays(fleet, "restore.yml", *backup)
    plays(fleet, "verify.yml")
    found = headlines(fleet, "oregon")
    assert "before all was lost" in found
    assert "after the backup" not in found
    with FleetCrowd(fleet, ("oregon",), readers=50, per_second=5) as crowd:
        pass
    assert crowd.noticed_nothing, crowd.report
