"""The processor time and memory of a process, read from /proc; and a description of the machine."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
from pathlib import Path


def processor_seconds(pid: int) -> float:
    """Return the seconds that all living threads of ``pid`` have run, user and system.

    From the scheduler's own clock (``schedstat``, proc(5)), which counts nanoseconds; where the
    kernel doesn't keep it, from ``stat``, which counts ticks of 10 ms.
    """
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end meanwhile; its time is then not counted.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9 if total else _ticks(pid) / 100


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def resident_bytes(pid: int) -> int:
    """Return the memory of ``pid`` that is in RAM (VmRSS)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def machine() -> dict[str, str]:
    """Return the machine that figures belong to: time, processor, kernel, Python, and load."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "when": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": names[0] if names else platform.machine(),
        "cores": str(os.cpu_count()),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "load": f"{os.getloadavg()[0]:.1f}",
    }
