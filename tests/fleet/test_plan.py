"""Names, addresses and sizes."""

from __future__ import annotations

import collections

import pytest

from fleet.errors import FleetError
from fleet.plan import hosts_file, machine, machines_of, possible_machines


def test_a_name_says_all_of_a_machine() -> None:
    found = machine("dublin-retail-2")
    assert (found.name, found.region, found.role) == ("dublin-retail-2", "dublin", "retail")
    assert (found.address, found.zone) == ("10.77.2.102", "dublin-b")


def test_no_two_machines_that_can_be_share_a_name_or_an_address() -> None:
    machines = possible_machines()
    assert len({m.name for m in machines}) == len(machines)
    assert len({m.address for m in machines}) == len(machines)
    assert [machine(m.name) for m in machines] == list(machines)


def test_the_core_nodes_of_a_region_are_in_three_zones() -> None:
    assert {machine(f"oregon-core-{n}").zone for n in (1, 2, 3)} == {
        "oregon-a",
        "oregon-b",
        "oregon-c",
    }


def test_fifteen_machines_are_two_regions_and_a_proxy() -> None:
    roles = collections.Counter((m.region, m.role) for m in machines_of(15))
    region = {"client": 1, "core": 3, "store": 1, "retail": 2}
    assert roles == {
        **{("oregon", role): count for role, count in region.items()},
        **{("dublin", role): count for role, count in region.items()},
        ("tokyo", "proxy"): 1,
    }


def test_a_fleet_of_six_grows_to_fifteen_without_losing_a_machine() -> None:
    assert len(machines_of(6)) == 6
    assert set(machines_of(6)) < set(machines_of(15))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("oregon", "is called REGION-ROLE-NUMBER"),
        ("oregon-retail-0", "is called REGION-ROLE-NUMBER"),
        ("oregon-retail-1; reboot", "is called REGION-ROLE-NUMBER"),
        ("../oregon-retail-1", "is called REGION-ROLE-NUMBER"),
        ("paris-retail-1", "no region paris"),
        ("oregon-wholesale-1", "no role wholesale"),
        ("oregon-core-6", "at most 5 of core"),
    ],
)
def test_a_name_that_no_machine_can_have_is_refused(name: str, reason: str) -> None:
    with pytest.raises(FleetError, match=reason):
        machine(name)


def test_a_size_that_there_is_not_is_refused() -> None:
    with pytest.raises(FleetError, match="no fleet of 7; there are fleets of 6 and 15"):
        machines_of(7)


def test_each_machine_knows_the_address_of_every_other_that_can_be() -> None:
    lines = hosts_file("oregon-core-1").splitlines()
    assert "10.77.1.21 oregon-core-1" in lines
    assert "10.77.2.199 dublin-retail-99" in lines
