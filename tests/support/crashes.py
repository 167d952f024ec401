"""The data planes that a test starts: whether one of them crashed."""

from __future__ import annotations

import signal

from gateway.native.program import Process

# Tests kill data planes on purpose. One that ends by itself has an exit code, not a signal.
_ON_PURPOSE = frozenset({-signal.SIGKILL, -signal.SIGTERM})


def crashed(processes: list[Process]) -> list[tuple[int, int]]:
    """Process id and exit code of those that a signal has ended: a panic is an abort."""
    codes = [(process.pid, process.poll() or 0) for process in processes]
    return [(pid, code) for pid, code in codes if code < 0 and code not in _ON_PURPOSE]
