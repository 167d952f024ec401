"""A world whose keeper is killed ends; one that its keeper let go lives on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from localfabric.world.processes import MARKER, kill, marked

PATIENCE = 60.0

# The keeper watches over the world in argv[1], starts a part of it, and then obeys the test.
KEEPER = f"""
import os, subprocess, sys
from pathlib import Path
from localfabric.world.watchdog import Watchdog
with Watchdog(Path(sys.argv[1])) as watchdog:
    part = subprocess.Popen(
        ["sleep", "600"],
        env={{**os.environ, "{MARKER}": sys.argv[1]}},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    print(watchdog.pid, part.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", KEEPER, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()
    kill(marked(tmp_path))


def _started(keeper: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the watchdog and the part."""
    assert keeper.stdout is not None
    return [psutil.Process(int(pid)) for pid in keeper.stdout.readline().split()]


def test_what_a_killed_keeper_has_started_is_ended(keeper: subprocess.Popen[str]) -> None:
    started = _started(keeper)
    os.kill(keeper.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(started, PATIENCE)
    assert alive == []


def test_what_was_let_go_lives_on_without_a_watchdog(keeper: subprocess.Popen[str]) -> None:
    watchdog, part = _started(keeper)
    keeper.communicate(timeout=PATIENCE)
    assert keeper.returncode == 0
    assert not watchdog.is_running()
    assert part.is_running()
