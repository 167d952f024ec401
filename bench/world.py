"""A world for the bench: started with the command that users type, timed, stopped again."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PORT_BASE = 26000


def newsfabric(state: Path, *arguments: str) -> str:
    """Run the ``newsfabric`` command on the world at ``state``; return its output."""
    command = _command(state, *arguments)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@contextlib.contextmanager
def world_at(state: Path, *options: str) -> Iterator[float]:
    """Start a world at ``state``, yield the seconds that it took, and stop it in any case.

    ``options`` are more words for ``newsfabric up``.
    """
    start = time.monotonic()
    try:
        newsfabric(state, "up", "--detach", *options)
        yield time.monotonic() - start
    finally:
        # In a session of its own: a Ctrl-C meant for a test must not interrupt it.
        down = _command(state, "down")
        subprocess.run(down, check=False, stdout=subprocess.DEVNULL, start_new_session=True)


@contextlib.contextmanager
def running_world(*options: str) -> Iterator[tuple[dict[str, Any], float]]:
    """Yield the status of a fresh two-region world, and the seconds that it took; else as
    :func:`world_at`."""
    with tempfile.TemporaryDirectory(prefix="newsfabric-bench-") as folder:
        state = Path(folder) / "world"
        with world_at(state, "--port-base", str(PORT_BASE), *options) as took:
            yield json.loads(newsfabric(state, "status", "--json")), took


def _command(state: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "operations.cli", *arguments, "--state", str(state)]
