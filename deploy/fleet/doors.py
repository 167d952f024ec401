"""Doors: what people reach of a fleet from this machine, a board for each region.

The host's own network is left alone: a door is a port of its loopback, held by a program that
connects within the fleet's network (:mod:`fleet.door_program`).
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

_PROGRAM: Final = "fleet.door_program"
# Where the frontdesks are, which show the board too.
FRONTDESK_PORT: Final = 8080


def doors_of(machines: Iterable[Machine], port_base: int) -> dict[str, tuple[int, list[str]]]:
    """Of each region with core machines: its port on the host, and the hosts that it leads to."""
    found: dict[str, tuple[int, list[str]]] = {}
    for machine in machines:
        if machine.role == "core":
            port = port_base + REGIONS.index(machine.region)
            _, hosts = found.setdefault(machine.region, (port, []))
            hosts.append(f"{machine.address}:{FRONTDESK_PORT}")
    return found


def open_doors(network: Network, doors: dict[str, tuple[int, list[str]]], log: Path) -> None:
    """Have exactly these open. FleetError if a port is taken."""
    given = [str(network.path), *(f"{port}={','.join(hosts)}" for port, hosts in doors.values())]
    present = _programs(network)
    if list(present.values()) == [given]:
        return
    for pid in present:
        kernel.kill(pid)
    kernel.wait_gone(present, 5)
    if doors:
        _start(given, log)


def _programs(network: Network) -> dict[int, list[str]]:
    """What each door program in this network was given, by its pid."""
    found = {}
    for pid in kernel.processes_in(network.path):
        words = kernel.words_of(pid)
        if _PROGRAM in words:
            found[pid] = words[words.index(_PROGRAM) + 1 :]
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
        raise FleetError(f"{line or f'the doors did not open; see {log}'}; choose --port-base")
