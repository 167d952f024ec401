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
    command = [sys.executable, "-m", "operations.cli", *arguments, "--state", str(state)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@contextlib.contextmanager
def running_world(*options: str) -> Iterator[tuple[dict[str, Any], float]]:
    """Yield the status of a fresh two-region world, and the seconds that ``newsfabric up`` took.

    ``options`` are more words for that command.
    """
    with tempfile.TemporaryDirectory(prefix="newsfabric-bench-") as folder:
        state = Path(folder) / "world"
        start = time.monotonic()
        newsfabric(state, "up", "--detach", "--port-base", str(PORT_BASE), *options)
        took = time.monotonic() - start
        try:
            yield json.loads(newsfabric(state, "status", "--json")), took
        finally:
            newsfabric(state, "down")
