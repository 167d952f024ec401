"""The machines of a fleet: names, regions, roles, zones and addresses, as values.

Everything follows from a machine's name (``oregon-core-2``), so only the names need to be stored. A
region is a network of its own, 10.77.R.0/24; the router has its address .1::

    .11…  client    .21…  core    .31…  store    .41…  proxy    .51…  machine    .101…  retail
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Final

from fleet.errors import FleetError

REGIONS: Final = ("oregon", "dublin", "tokyo")
# First number of the addresses, and the bound of machines of a role in a region.
_ROLES: Final = {
    "client": (11, 5),
    "core": (21, 5),
    "store": (31, 5),
    "proxy": (41, 5),
    # Carries several hosts (machines.yml); no host itself.
    "machine": (51, 9),
    "retail": (101, 99),
}
ROLES: Final = tuple(_ROLES)
_NETWORK: Final = "10.77"
_ZONES: Final = "abc"
_NAME: Final = re.compile(r"([a-z]+)-([a-z]+)-([1-9][0-9]?)")

_SMALL_REGION: Final = {"client": 1, "core": 1, "store": 1, "retail": 2}
_REGION: Final = {"client": 1, "core": 3, "store": 1, "retail": 2}
_PROXY: Final = {"proxy": 1}
SIZES: Final = {
    6: {"oregon": _SMALL_REGION, "tokyo": _PROXY},
    15: {"oregon": _REGION, "dublin": _REGION, "tokyo": _PROXY},
}


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """A machine. Two machines of a name are the same machine."""

    region: str
    role: str
    number: int

    @property
    def name(self) -> str:
        """The name ``REGION-ROLE-NUMBER``, which is also the host name."""
        return f"{self.region}-{self.role}-{self.number}"

    @property
    def address(self) -> str:
        """The IPv4 address in the fleet's network."""
        return f"{network_of(self.region)}.{_ROLES[self.role][0] + self.number - 1}"

    @property
    def zone(self) -> str:
        """The zone; zones are given in turn, and the first machine of each role is in the first."""
        return f"{self.region}-{_ZONES[(self.number - 1) % len(_ZONES)]}"


def network_of(region: str) -> str:
    """Return the first three numbers of a region's addresses."""
    return f"{_NETWORK}.{REGIONS.index(region) + 1}"


def machine(name: str) -> Machine:
    """Return the machine of that name. FleetError if there can be none."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise FleetError(f"{name}: a machine is called REGION-ROLE-NUMBER, like oregon-retail-1")
    region, role, number = found[1], found[2], int(found[3])
    if region not in REGIONS:
        raise FleetError(f"{name}: no region {region}; there are {', '.join(REGIONS)}")
    if role not in _ROLES:
        raise FleetError(f"{name}: no role {role}; there are {', '.join(ROLES)}")
    if number > _ROLES[role][1]:
        raise FleetError(f"{name}: a region has at most {_ROLES[role][1]} of {role}")
    return Machine(region, role, number)


def machines_of(size: int) -> tuple[Machine, ...]:
    """Return the machines that a fleet of this size begins with. FleetError for another size."""
    if size not in SIZES:
        raise FleetError(f"no fleet of {size}; there are fleets of {_listed(SIZES)}")
    return tuple(
        Machine(region, role, number)
        for region, roles in SIZES[size].items()
        for role, count in roles.items()
        for number in range(1, count + 1)
    )


def machines_with(region: str, role: str) -> tuple[Machine, ...]:
    """Return every possible machine of this region and role."""
    return tuple(Machine(region, role, number) for number in range(1, _ROLES[role][1] + 1))


def possible_machines() -> tuple[Machine, ...]:
    """Return every possible machine, so that a list of all needs no update for a new one."""
    return tuple(m for region in REGIONS for role in ROLES for m in machines_with(region, role))


def hosts_file(name: str) -> str:
    """Return the contents of /etc/hosts on the machine ``name``."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    lines += [f"{other.address} {other.name}" for other in possible_machines()]
    return "\n".join([f"# Written by the fleet when {name} was made.", *lines, ""])


def _listed(numbers: Iterable[int]) -> str:
    return " and ".join(str(number) for number in numbers)
