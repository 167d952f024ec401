"""Ends a world whose ``up`` was killed before it could do so.

A shell waits at the end of a pipe that only ``up`` holds open. ``up`` writes a line into it when
the world may live on (it is ready and detached) or has ended. If the pipe ends without a line,
``up`` is dead, and the shell becomes ``newsfabric down``, which finds every process.

PR_SET_PDEATHSIG is not used: children of a child don't inherit it (a gateway has some), and it
couldn't be revoked when a world is detached.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from localfabric.world.processes import MARKER

# A shell waits in a megabyte, a Python would take forty.
_WAIT = 'read -r _ || exec "$@"'
_GRACE = 5.0


class Watchdog:
    """A watchdog over this process for the world in ``state``, until :meth:`release`.

    It has the world's mark, so that ``down`` ends it with the rest.
    """

    def __init__(self, state: Path) -> None:
        down = [
            sys.executable,
            "-m",
            "operations.cli",
            "down",
            "--keep-logs",
            "--state",
            str(state),
        ]
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _WAIT, "newsfabric-watchdog", *down],
            env={**os.environ, MARKER: str(state)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # A terminal's Ctrl-C, or its end, is for `up`.
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The pid of its process."""
        return self._shell.pid

    def release(self) -> None:
        """End the watch: the world has ended, or may live without this process. Idempotent."""
        # The shell may have been ended with the world. On a busy machine it may end later, but it
        # has its line.
        with contextlib.suppress(BrokenPipeError, subprocess.TimeoutExpired):
            self._shell.communicate(b"\n", timeout=_GRACE)

    def __enter__(self) -> Watchdog:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
