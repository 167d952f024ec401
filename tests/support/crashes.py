"""Crashes among the data planes that a test starts."""

from __future__ import annotations

import signal

from gateway.native.program import Process

# Tests kill data planes on purpose. A data plane that ends by itself has an exit code, no signal.
_ON_PURPOSE = frozenset({-signal.SIGKILL, -signal.SIGTERM})


def crashed(processes: list[Process]) -> list[tuple[int, int]]:
    """Return pid and exit code of each process that a signal ended: a panic is an abort."""
    codes = [(process.pid, process.poll() or 0) for process in processes]
    return [(pid, code) for pid, code in codes if code < 0 and code not in _ON_PURPOSE]
