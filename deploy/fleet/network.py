"""The fleet's network: a namespace of its own that routes between the regions' bridges.

A cut is a rule of the router that drops packets from one region to the other, silently, as a broken
cable does: connections hang, none is refused. The host's own network is left alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from fleet.errors import FleetError
from fleet.plan import REGIONS, network_of
from fleet.run import run

_NAMESPACES: Final = Path("/run/netns")
# Before the kernel's own rules (32766 and 32767).
_CUT: Final = 100


class Network:
    """The namespace called ``name`` (at most 15 letters) with its bridges."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = _NAMESPACES / name

    @property
    def exists(self) -> bool:
        """True if the namespace exists, with or without its bridges."""
        return self.path.exists()

    def up(self) -> None:
        """Make the missing parts of the network."""
        if not self.exists:
            run("ip", "netns", "add", self.name)
        self._ip("link", "set", "lo", "up")
        present = {link["ifname"] for link in self._asked("link", "show")}
        for region in REGIONS:
            bridge = bridge_of(region)
            if bridge not in present:
                self._ip("link", "add", bridge, "type", "bridge")
            self._ip("addr", "replace", f"{network_of(region)}.1/24", "dev", bridge)
            self._ip("link", "set", bridge, "up")
        run(*self.within("sysctl", "-qw", "net.ipv4.ip_forward=1"))

    def down(self) -> None:
        """Delete it; the kernel deletes the bridges that are in it. No process may be left."""
        if self.exists:
            run("ip", "netns", "del", self.name)

    def within(self, *command: str) -> tuple[str, ...]:
        """Return a command line that runs ``command`` in this network.

        Not by `ip netns exec`: that mounts a /sys without cgroups, and systemd doesn't boot.
        """
        return ("nsenter", f"--net={self.path}", "--", *command)

    def cuts(self) -> set[frozenset[str]]:
        """Return the pairs of regions between which no packet passes."""
        if not self.exists:
            return set()
        rules = self._asked("rule", "show", "pref", str(_CUT))
        regions = {f"{network_of(region)}.0": region for region in REGIONS}
        return {frozenset((regions[rule["src"]], regions[rule["dst"]])) for rule in rules}

    def cut(self, one: str, other: str) -> None:
        """Drop all packets between two regions, in both directions."""
        self._check(one, other)
        if frozenset((one, other)) not in self.cuts():
            for arguments in _rules(one, other):
                self._ip("rule", "add", *arguments)

    def heal(self, one: str, other: str) -> None:
        """Let packets pass again after :meth:`cut`."""
        self._check(one, other)
        while frozenset((one, other)) in self.cuts():
            for arguments in _rules(one, other):
                self._try("rule", "del", *arguments)

    def _check(self, *regions: str) -> None:
        for region in regions:
            if region not in REGIONS:
                raise FleetError(f"no region {region}; there are {', '.join(REGIONS)}")
        if len(set(regions)) != len(regions):
            raise FleetError("two different regions, please")
        if not self.exists:
            raise FleetError("no fleet is up: `make fleet` starts one")

    def _ip(self, *arguments: str) -> None:
        run("ip", "-n", self.name, *arguments)

    def _try(self, *arguments: str) -> None:
        try:
            self._ip(*arguments)
        except FleetError as exc:
            if "No such file" not in str(exc):
                raise

    def _asked(self, *arguments: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = json.loads(
            run("ip", "-n", self.name, "-j", *arguments) or "[]"
        )
        return found


def bridge_of(region: str) -> str:
    """Return the name of a region's bridge."""
    return f"nf-{region}"


def _rules(one: str, other: str) -> list[list[str]]:
    pairs = [(one, other), (other, one)]
    return [
        [
            "pref",
            str(_CUT),
            "from",
            f"{network_of(a)}.0/24",
            "to",
            f"{network_of(b)}.0/24",
            "blackhole",
        ]
        for a, b in pairs
    ]
