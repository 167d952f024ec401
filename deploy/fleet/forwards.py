"""Port forwards: the parts of a fleet that this machine reaches, a board for each region.

The host's own network is left alone: a forward is a port of its loopback, held by a program that
connects within the fleet's network (:mod:`fleet.forward_program`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fleet import kernel
from fleet.errors import FleetError
from fleet.folders import CHECKOUT
from fleet.network import Network
from fleet.plan import REGIONS, Machine

_PROGRAM: Final = "fleet.forward_program"
# The port of the frontdesks, which show the board too.
FRONTDESK_PORT: Final = 8080


def forwards_of(machines: Iterable[Machine], port_base: int) -> dict[str, tuple[int, list[str]]]:
    """Return, for each region with core machines, its port on the host and its target hosts."""
    found: dict[str, tuple[int, list[str]]] = {}
    for machine in machines:
        if machine.role == "core":
            port = port_base + REGIONS.index(machine.region)
            _, hosts = found.setdefault(machine.region, (port, []))
            hosts.append(f"{machine.address}:{FRONTDESK_PORT}")
    return found


def open_forwards(network: Network, forwards: dict[str, tuple[int, list[str]]], log: Path) -> None:
    """Open exactly these forwards. FleetError if a port is taken."""
    given = [str(network.path), *(f"{port}={','.join(hosts)}" for port, hosts in forwards.values())]
    present = _programs(network)
    if list(present.values()) == [given]:
        return
    for pid in present:
        kernel.kill(pid)
    kernel.wait_gone(present, 5)
    if forwards:
        _start(given, log)


def _programs(network: Network) -> dict[int, list[str]]:
    """Return the arguments of each forward program in this network, by its pid."""
    found = {}
    for pid in kernel.processes_in(network.path):
        command = kernel.command_of(pid)
        if _PROGRAM in command:
            found[pid] = command[command.index(_PROGRAM) + 1 :]
    return found


def _start(given: list[str], log: Path) -> None:
    with log.open("ab") as errors:
        # It outlives this program, so it is not this program's child.
        program = subprocess.Popen(
            ["setsid", "--fork", sys.executable, "-m", _PROGRAM, *given],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={
                "PATH": os.environ.get("PATH", os.defpath),
                "PYTHONPATH": str(CHECKOUT / "deploy"),
            },
        )
    with program:
        assert program.stdout is not None
        line = program.stdout.readline().decode().strip()
    if line != "ready":
        raise FleetError(f"{line or f'the forwards did not open; see {log}'}; choose --port-base")
