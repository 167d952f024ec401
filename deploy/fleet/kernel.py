"""Running processes and mounts, read from /proc each time.

The fleet keeps no pid files: a note can be stale after a crash, the kernel's own lists can't. A
machine is an init whose root is the machine's disk. Its supervisor is the systemd-nspawn that names
the machine's folder on its command line. Killing the supervisor doesn't end the machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import select
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
WATCHES_NAME: Final = "fs.inotify.max_user_instances"
# The signal for "power off" to the init of a container (systemd(1)).
POWER_OFF: Final = signal.SIGRTMIN + 3


@dataclasses.dataclass(frozen=True, slots=True)
class MachineProcesses:
    """The processes of a machine. An init whose supervisor was killed continues alone."""

    supervisor: int | None = None
    init: int | None = None

    @property
    def pids(self) -> list[int]:
        """The process ids, the init first; empty for a machine that is down."""
        return [pid for pid in (self.init, self.supervisor) if pid is not None]


def machine_processes(folder: Path) -> dict[str, MachineProcesses]:
    """Return the processes of each machine whose folder is ``folder/NAME``, by NAME."""
    found: dict[str, MachineProcesses] = {}
    for pid in _pids():
        with contextlib.suppress(OSError):
            if (name := _supervised(pid, folder)) is not None:
                found[name] = dataclasses.replace(
                    found.get(name, MachineProcesses()), supervisor=pid
                )
            elif (name := _initiated(pid, folder)) is not None:
                found[name] = dataclasses.replace(found.get(name, MachineProcesses()), init=pid)
    return found


def _supervised(pid: int, folder: Path) -> str | None:
    """Return the machine that the process boots and watches, if it is a systemd-nspawn of ours."""
    command = command_of(pid)
    if Path(command[0]).name == "systemd-nspawn":
        for word in command:
            root = Path(word.removeprefix("--directory="))
            if word.startswith("--directory=") and root.parent.parent == folder:
                return root.parent.name
    return None


def _initiated(pid: int, folder: Path) -> str | None:
    """Return the machine whose init this is: its number is 1, its root the machine's disk."""
    status = (PROC / f"{pid}/status").read_text()
    numbers = next((line for line in status.splitlines() if line.startswith("NSpid:")), "").split()
    # A process further inside is the init of a host that the machine carries.
    if len(numbers) != 3 or numbers[-1] != "1":
        return None
    for line in (PROC / f"{pid}/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[4] == "/":
            for option in after.split()[2].split(","):
                upper = Path(unescaped(option.removeprefix("upperdir=")))
                if option.startswith("upperdir=") and upper.parent.parent == folder:
                    return upper.parent.name
    return None


def command_of(pid: int) -> list[str]:
    """Return a process's command line; empty if the process is gone."""
    with contextlib.suppress(OSError):
        return os.fsdecode((PROC / f"{pid}/cmdline").read_bytes()).rstrip("\0").split("\0")
    return [""]


def started_at(pid: int) -> float:
    """Return a process's start in seconds since the epoch. OSError if the process is gone."""
    # After the name, which may hold anything, it is the 20th word (proc(5)).
    fields = (PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()
    since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot


def processes_in(namespace: Path) -> list[int]:
    """Return the pids of the processes in this network namespace."""
    try:
        wanted = namespace.stat()
    except OSError:
        return []
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError):
            seen = (PROC / f"{pid}/ns/net").stat()
            if (seen.st_dev, seen.st_ino) == (wanted.st_dev, wanted.st_ino):
                found.append(pid)
    return found


def mounts_below(folder: Path) -> list[Path]:
    """Return the mount points at ``folder`` or below it, the innermost first."""
    points = (
        Path(unescaped(line.split()[4]))
        for line in (PROC / "self/mountinfo").read_text().splitlines()
    )
    return sorted((p for p in points if p.is_relative_to(folder)), reverse=True)


def is_mount(folder: Path) -> bool:
    """Return whether something is mounted exactly here."""
    return folder in mounts_below(folder)


def raise_watches(least: int) -> bool:
    """Allow each user ``least`` inotify instances; return whether fewer were allowed."""
    setting = PROC / "sys" / WATCHES_NAME.replace(".", "/")
    if int(setting.read_text()) >= least:
        return False
    setting.write_text(f"{least}\n")
    return True


def wait_gone(pids: Iterable[int], seconds: float) -> bool:
    """Return whether all of these end, each within ``seconds`` of the one before it."""
    return all(_gone(pid, seconds) for pid in pids)


def _gone(pid: int, seconds: float) -> bool:
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], seconds)[0])
    finally:
        os.close(watched)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal; a process that is gone is no error."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal())


def unescaped(text: str) -> str:
    """Return a path without the escapes of mountinfo: a space is ``\\040`` (proc(5))."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
