"""Ends what tests have started when pytest itself is killed, and so can't.

pytest starts it at the other end of a pipe. When the pipe ends, pytest is gone, or done: then
every process with pytest's mark in its environment is killed, whoever started it and however far
it went away (a data plane has a session of its own, and no parent). Nothing but the standard
library: it starts in a few milliseconds and waits in a few megabytes.

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
# A dying process may just have had a child.
ROUNDS = 20
PAUSE = 0.1


def watch(mark: str) -> subprocess.Popen[bytes]:
    """Mark this process's children to come, and have them ended when it ends.

    Close its ``stdin`` for that, or die.
    """
    os.environ[VARIABLE] = mark
    unmarked = {name: value for name, value in os.environ.items() if name != VARIABLE}
    return subprocess.Popen(
        [sys.executable, "-IS", __file__, mark],
        env=unmarked,
        stdin=subprocess.PIPE,
        # Ctrl-C is for pytest.
        start_new_session=True,
    )


def marked(mark: str) -> list[int]:
    """Every live process that was started with ``mark``."""
    wanted = f"{VARIABLE}={mark}".encode()
    return [
        pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _has(pid, wanted)
    ]


def _has(pid: int, wanted: bytes) -> bool:
    try:
        return wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        # Gone meanwhile, or another user's. A zombie has no environment.
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
