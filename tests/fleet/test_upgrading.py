"""RabbitMQ is replaced under load: in place, and with its machine by another Debian's, and back.

A region of this fleet has one client node and one core node, so publishers wait for each. The tests
share the machines, in their order.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.fleet import Fleet
from fleet.image import SUITES
from tests.fleet.conftest import SUITE, fabric_in
from tests.fleet.fabrics import FleetCrowd, changes, on, played, plays

pytestmark = [pytest.mark.fleet, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(3600)]

logger = logging.getLogger(__name__)

BOXES = ["oregon-retail-1", "oregon-retail-2"]
BROKERS = ["oregon-client-1", "oregon-core-1", *BOXES]
# One process reads for all: each reader takes a message in twenty seconds, and a backlog at once.
READERS = 5000
#: Disconnected readers ask the second frontdesk where to go on: the same one.
OREGON = ("oregon", "oregon")


@pytest.fixture(scope="module")
def fleet(
    layers: Path, tmp_path_factory: pytest.TempPathFactory, port_base: int
) -> Iterator[Fleet]:
    with fabric_in(tmp_path_factory, layers, port_base, []) as made:
        yield made


def identity(fleet: Fleet, name: str) -> str:
    """Return the identity of a broker's data: it differs each time a broker begins without data."""
    return on(fleet, name, "sha256sum /var/lib/rabbitmq/.erlang.cookie").split()[0]


def test_each_broker_of_a_region_is_replaced_and_readers_miss_nothing(fleet: Fleet) -> None:
    nobody = played(fleet, "upgrade-rabbitmq.yml", "--extra-vars", "node=paris")
    assert "names a broker's host, or all of a region or proxy cluster: oregon" in nobody.stdout
    assert sum(changes(nobody).values()) == 0

    before = {name: identity(fleet, name) for name in BROKERS}
    with FleetCrowd(fleet, OREGON, readers=200, per_second=5, amqp=True) as crowd:
        plays(fleet, "upgrade-rabbitmq.yml", "--extra-vars", "node=oregon")
    assert crowd.missed_nothing, crowd.report
    after = {name: identity(fleet, name) for name in BROKERS}
    assert [name for name in BROKERS if before[name] == after[name]] == []
    assert set(changes(plays(fleet, "site.yml")).values()) == {0}


def test_data_of_another_version_are_refused_until_they_are_moved_away(fleet: Fleet) -> None:
    written = "/var/lib/rabbitmq/mnesia/newsfabric-version"
    version = on(fleet, "oregon-client-1", f"cat {written}")
    on(fleet, "oregon-client-1", f"echo 3.9 >{written}")
    refused = played(fleet, "site.yml")
    assert "and data of 3.9, which it may be unable to read" in refused.stdout
    assert sum(changes(refused).values()) == 0
    plays(fleet, "upgrade-rabbitmq.yml", "--extra-vars", "node=oregon-client-1")
    assert on(fleet, "oregon-client-1", f"cat {written}") == version


@pytest.mark.parametrize("suite", [suite for suite in SUITES if suite != SUITE] + [SUITE])
def test_each_machine_of_a_region_moves_to_another_debian_and_back(
    fleet: Fleet, suite: str
) -> None:
    if not fleet.image(suite).ready:
        pytest.skip(f"there is no image of {suite}: `python -m fleet image --suite {suite}`")
    if suite == "sid" and not Path("/sys/fs/cgroup/cgroup.controllers").exists():
        pytest.skip("sid's systemd doesn't boot on this machine, which has cgroups of version 1")
    with FleetCrowd(fleet, OREGON, READERS, per_second=0.5, topics=10, amqp=True) as crowd:
        begins_anew(fleet, "oregon-core-1", suite)
        plays(fleet, "replace-core-node.yml", "--extra-vars", "node=oregon-core-1")
        begins_anew(fleet, "oregon-client-1", suite)
        plays(fleet, "site.yml")
    # The boxes of these readers weren't touched.
    assert crowd.noticed_nothing, crowd.report
    logger.info("client and core to %s: %s", suite, crowd.report)
    with FleetCrowd(fleet, OREGON, READERS, per_second=0.5, topics=10, amqp=True) as crowd:
        for box in BOXES:
            plays(fleet, "drain-retail.yml", "--limit", box)
            begins_anew(fleet, box, suite)
            plays(fleet, "site.yml")
    assert crowd.missed_nothing, crowd.report
    logger.info("boxes to %s: %s", suite, crowd.report)
    # A release that isn't out yet doesn't report its name.
    sources = {name: on(fleet, name, "cat /etc/apt/sources.list") for name in BROKERS}
    assert [name for name, text in sources.items() if f" {suite} main\n" not in text] == []


def begins_anew(fleet: Fleet, name: str, suite: str) -> None:
    """Replace the machine by one of the same name with an empty disk."""
    fleet.power_off([name], forget=False)
    fleet.boot([name], new=True, suite=suite)
