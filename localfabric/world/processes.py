"""Processes of a world: started so that they can always be found again, found, ended.

Each has :data:`MARKER`, the state folder's path, in its environment, and so do its children;
:func:`marked` reads all environments. So no process is lost, whatever happens to ``up`` or to its
notes. A pid alone identifies no process (pids are reused), a pid with its start time does. Linux
only: it reads /proc.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

MARKER: Final = "NEWSFABRIC_WORLD"
_PROC: Final = Path("/proc")


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessId:
    """The identity of a process: ``started`` is in clock ticks since the machine's boot."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """True if it still runs. A zombie doesn't."""
        return _started(self.pid) == self.started

    @property
    def stopped(self) -> bool:
        """True if it is alive and stopped by SIGSTOP."""
        return self.alive and _stat(self.pid)[:1] == ["T"]


def process_id(pid: int) -> ProcessId | None:
    """Return the process of ``pid`` now; None if there is none or it is a zombie."""
    started = _started(pid)
    return None if started is None else ProcessId(pid, started)


def ticks_since_boot() -> float:
    """Return the present time in the unit of :attr:`ProcessId.started`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")


def spawn(
    command: Sequence[str], *, environment: Mapping[str, str], folder: Path, log: Path
) -> subprocess.Popen[bytes]:
    """Start ``command`` in a session of its own: a terminal's Ctrl-C doesn't reach it."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            # Only the owner may read its files: messages, logs, cookies.
            umask=0o077,
        )
    finally:
        os.close(descriptor)


def marked(state: Path) -> list[ProcessId]:
    """Return every live process of the world in ``state``, except this one."""
    wanted = f"{MARKER}={state}".encode()
    found = (
        process_id(int(entry.name))
        for entry in _PROC.iterdir()
        if entry.name.isdecimal() and int(entry.name) != os.getpid() and _carries(entry, wanted)
    )
    return [process for process in found if process is not None]


def arguments_of(process: ProcessId) -> list[str]:
    """Return the command line of ``process``, word by word; empty when it is gone."""
    with contextlib.suppress(OSError):
        words = (_PROC / str(process.pid) / "cmdline").read_bytes().split(b"\0")
        return [os.fsdecode(word) for word in words[:-1]]
    return []


def command_of(process: ProcessId) -> str:
    """Return the command line of ``process`` for a person; empty when it is gone."""
    return os.fsencode(" ".join(arguments_of(process))).decode("utf-8", "replace").strip()


def end(processes: Collection[ProcessId], *, grace: float) -> None:
    """Send SIGTERM, then SIGKILL after ``grace`` seconds to those still alive; block until then."""
    _signal(processes, signal.SIGTERM)
    if not _gone(processes, grace):
        kill(processes)


def kill(processes: Collection[ProcessId]) -> None:
    """Send SIGKILL; return when all are gone, or after 10 seconds."""
    _signal(processes, signal.SIGKILL)
    _gone(processes, 10.0)


def pause(process: ProcessId) -> None:
    """Send SIGSTOP; return when it is stopped or gone, or after 10 seconds."""
    _signal([process], signal.SIGSTOP)
    _until(lambda: process.stopped or not process.alive, 10.0)


def unpause(process: ProcessId) -> None:
    """Send SIGCONT; return when it continues or is gone, or after 10 seconds."""
    _signal([process], signal.SIGCONT)
    _until(lambda: not process.stopped, 10.0)


def last_lines(log: Path, count: int = 15) -> str:
    """Return the end of a log, for a person who asks why its process died."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 64 * 1024))
        return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-count:])
    return ""


def _started(pid: int) -> int | None:
    fields = _stat(pid)
    return None if not fields or fields[0] in "ZX" else int(fields[19])


def _stat(pid: int) -> list[str]:
    """Return the fields of proc(5) from the state (3) on; empty when there is no such process."""
    try:
        # The command, in parentheses, may hold anything.
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return []


def _carries(entry: Path, wanted: bytes) -> bool:
    try:
        return wanted in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        # Gone meanwhile, or another user's.
        return False


def _signal(processes: Collection[ProcessId], number: signal.Signals) -> None:
    for process in processes:
        if process.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)


def _gone(processes: Collection[ProcessId], timeout: float) -> bool:
    return _until(lambda: not any(process.alive for process in processes), timeout)


def _until(check: Callable[[], bool], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
