"""A program that ends the processes of tests when pytest itself is killed, and so can't.

pytest starts it at the other end of a pipe. The pipe ends when pytest has died or finished. Then
it kills every process with pytest's mark in its environment, whatever its parent or session (a
data plane has a session of its own, and no parent). It uses nothing but the standard library, so
it starts in a few milliseconds and waits in a few megabytes.

    python -IS reaper.py MARK
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

VARIABLE = "NEWSFABRIC_TESTS"
# Kills are repeated, because a dying process may just have started a child.
ROUNDS = 20
PAUSE = 0.1


def watch(mark: str) -> subprocess.Popen[bytes]:
    """Mark this process's future children, so that they are killed when it ends.

    The same happens when the ``stdin`` of the returned process is closed.
    """
    os.environ[VARIABLE] = mark
    unmarked = {name: value for name, value in os.environ.items() if name != VARIABLE}
    return subprocess.Popen(
        [sys.executable, "-IS", __file__, mark],
        env=unmarked,
        stdin=subprocess.PIPE,
        # Ctrl-C must reach pytest alone.
        start_new_session=True,
    )


def marked(mark: str) -> list[int]:
    """Return the pid of every live process that was started with ``mark``."""
    wanted = f"{VARIABLE}={mark}".encode()
    return [
        pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _has(pid, wanted)
    ]


def _has(pid: int, wanted: bytes) -> bool:
    try:
        return wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        # The process has ended, or is another user's. A zombie has no environment.
        return False


def main(mark: str) -> None:
    sys.stdin.read()
    for _ in range(ROUNDS):
        if not (found := marked(mark)):
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE)


if __name__ == "__main__":
    main(sys.argv[1])
