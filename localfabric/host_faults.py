"""Breaks parts of a fabric on hosts and heals them again. Blocks while ssh runs.

A part is a unit (``oregon-core-1/router@1``), or a whole machine (``oregon-core-1``), which can
only be killed: its power is cut. A region stands for all of its machines. Here systemd restarts
killed processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from localfabric.world.faults import LINK, FaultEffect, Signal
from localfabric.world.parts import unknown_name
from newsfabric.errors import WorldError
from operations.hosts.described import Host, Hosts, Verb
from operations.hosts.remote import HostReport, Unit, host_reports, run, run_here
from operations.hosts.status import hosts_unwell

_SIGNALS: Final = {
    "kill": ("SIGKILL", "killed"),
    "stop": ("SIGSTOP", "stopped"),
    "cont": ("SIGCONT", "goes on"),
}
_MACHINE: Final = "machine"
_UNIT: Final = "unit"
# A machine boots in seconds, and may have to wait until another command has ended.
_COMMAND_SECONDS: Final = 180.0


class HostFaults:
    """The faults of the fabric on ``hosts``, and their healing."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts

    def signal(self, verb: Signal, names: Sequence[str]) -> list[FaultEffect]:
        """Send a signal to the main process of each; a machine can only be killed.

        ConfigError or WorldError, before any signal, if one of them can't get it.
        """
        chosen = self._find(names, host_reports(self._hosts))
        for each in chosen:
            if isinstance(each, Host) and verb != "kill":
                raise WorldError(f"{each.name} is a machine, which can be killed only")
            if isinstance(each, Unit) and each.pid is None:
                raise WorldError(f"{each.name} is dead: `newsfabric chaos heal` starts it")
        return [
            self._machine("kill", each, "plug pulled")
            if isinstance(each, Host)
            else self._signal(verb, each)
            for each in chosen
        ]

    def heal(self, names: Sequence[str]) -> list[FaultEffect]:
        """Start dead units, continue stopped ones, boot machines, mend links; without names all
        that is unwell, and every link that a command can mend."""
        links = self._hosts.links()
        seen = host_reports(self._hosts)
        chosen = self._find([n for n in names if n not in links], seen)
        mended = [name for name in names if name in links]
        if not names:
            units = [unit for found in seen.values() if found for unit in found.units]
            chosen = [*hosts_unwell(self._hosts, seen), *(u for u in units if not _is_well(u))]
            mended = list(links) if "heal" in self._hosts.commands else []
        done = [self._heal(each, seen) for each in chosen]
        return [*done, *(self._link("heal", name, "healed") for name in mended)]

    def unwell(self) -> list[str]:
        """Return the names of machines and units that are unreachable, stopped or not running."""
        seen = host_reports(self._hosts)
        units = (unit for found in seen.values() if found for unit in found.units)
        machines = (host.name for host in hosts_unwell(self._hosts, seen))
        return [*machines, *(unit.name for unit in units if not _is_well(unit))]

    def cut(self, names: Sequence[str]) -> list[FaultEffect]:
        """Cut links silently, each by its name or all of a place; ConfigError for another name."""
        links = self._hosts.links()
        found: dict[str, None] = {}
        for name in names:
            if name not in links and name not in self._hosts.places:
                raise unknown_name(name, (*links, *self._hosts.places), "link")
            found |= dict.fromkeys(k for k, ends in links.items() if name in (k, *ends))
        return [self._link("cut", name, "cut") for name in found]

    def _find(
        self, names: Iterable[str], seen: Mapping[str, HostReport | None]
    ) -> list[Host | Unit]:
        known: dict[str, Host | Unit] = {host.name: host for host in self._hosts.hosts}
        known |= {unit.name: unit for each in seen.values() if each for unit in each.units}
        found: dict[str, Host | Unit] = {}
        for name in names:
            machines: list[Host | Unit] = [h for h in self._hosts.hosts if h.place == name]
            if name not in known and not machines:
                raise unknown_name(name, [*known, *self._hosts.places], "part")
            found |= {each.name: each for each in machines or [known[name]]}
        return list(found.values())

    def _signal(self, verb: Signal, unit: Unit) -> FaultEffect:
        number, done = _SIGNALS[verb]
        run(
            self._hosts,
            unit.host,
            ["systemctl", "kill", "--kill-who=main", f"--signal={number}", unit.unit],
        )
        return FaultEffect(unit.name, _UNIT, done, unit.pid)

    def _heal(self, part: Host | Unit, seen: Mapping[str, HostReport | None]) -> FaultEffect:
        if isinstance(part, Host):
            if seen[part.name] is not None:
                return FaultEffect(part.name, _MACHINE, "was well")
            return self._machine("boot", part, "booted")
        if part.stopped:
            return self._signal("cont", part)
        if part.active:
            return FaultEffect(part.name, _UNIT, "was well", part.pid)
        run(self._hosts, part.host, ["systemctl", "reset-failed", part.unit])
        run(self._hosts, part.host, ["systemctl", "start", "--no-block", part.unit])
        return FaultEffect(part.name, _UNIT, "started")

    def _machine(self, verb: Verb, host: Host, done: str) -> FaultEffect:
        self._command(verb, host.name)
        return FaultEffect(host.name, _MACHINE, done)

    def _link(self, verb: Verb, name: str, done: str) -> FaultEffect:
        self._command(verb, *self._hosts.links()[name])
        return FaultEffect(name, LINK, done)

    def _command(self, verb: Verb, *names: str) -> None:
        if verb not in self._hosts.commands:
            raise WorldError(f"hosts.json has no command {verb!r}: it can't be done here")
        run_here([*self._hosts.commands[verb], *names], seconds=_COMMAND_SECONDS)


def _is_well(unit: Unit) -> bool:
    return unit.active and not unit.stopped
