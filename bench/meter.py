"""What a process has used: processor time and memory, read from /proc."""

from __future__ import annotations

import contextlib
from pathlib import Path


def processor_seconds(pid: int) -> float:
    """Seconds that all living threads of ``pid`` have run, user and system.

    From the scheduler's own clock (``schedstat``, proc(5)), which counts nanoseconds; where the
    kernel doesn't keep it, from ``stat``, which counts ticks of 10 ms.
    """
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end while we look; what it used is then not counted.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9 if total else _ticks(pid) / 100


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def resident_bytes(pid: int) -> int:
    """Memory of ``pid`` that is in RAM (VmRSS)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
