"""A control group for each machine, on a host where no systemd makes them.

systemd-nspawn puts the processes of a machine below its own group. Started from one shell, all
machines would be in one: a stopping unit would wait for the same unit of all other machines.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Final

from fleet.kernel import PROC

_SYSTEMD_RUNS: Final = Path("/run/systemd/system")
# The kernel releases a group some moments after its last process.
_SECONDS: Final = 10.0
_POLL: Final = 0.05


def systemd_runs() -> bool:
    """Return whether this host's init is systemd, which then gives each machine a group."""
    return _SYSTEMD_RUNS.is_dir()


def hierarchies() -> list[Path]:
    """Return the mount points of systemd's trees: version 2, and on an old host "name=systemd"."""
    found = []
    for line in (PROC / "self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split()[:3]
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options.split(",")):
            found.append(Path(before.split()[4]))
    return found


def make(fleet: str, name: str) -> list[Path]:
    """Return the groups of one machine, made new and empty."""
    groups = [tree / fleet / name for tree in hierarchies()]
    for group in groups:
        remove(group)
        group.mkdir(parents=True)
    return groups


def remove_all(fleet: str) -> None:
    """Remove all groups made by :func:`make`; no process may be in them."""
    for tree in hierarchies():
        remove(tree / fleet)


def remove(group: Path) -> None:
    """Remove a group and those in it. OSError if processes stay in one."""
    ends = time.monotonic() + _SECONDS
    for inner in sorted([group, *group.rglob("*/")], reverse=True):
        while True:
            try:
                with contextlib.suppress(FileNotFoundError):
                    inner.rmdir()
                break
            except OSError:
                if time.monotonic() > ends:
                    raise
                time.sleep(_POLL)


def entering(groups: list[Path]) -> tuple[str, ...]:
    """Return the words before a command line that make it run in these groups."""
    script = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; shift; exec "$@"'
    return ("sh", "-ec", script, "enter", *(str(group) for group in groups), "--")
