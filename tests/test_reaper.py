"""Processes started by tests end with their pytest, however pytest ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

SUPPORT = Path(__file__).parent / "support"
PATIENCE = 60.0

# It starts a process in a session of its own without a parent, as daemons do; prints the pid.
STARTER = """
import os, sys
sys.path.insert(0, sys.argv[1])
from reaper import watch
reaper = watch("mark-" + str(os.getpid()))
if os.fork() == 0:
    os.setsid()
    os.execv(sys.executable, [sys.executable, "-c", "import os, time\\nif os.fork(): os._exit(0)\\n"
        "print(os.getpid(), flush=True)\\ntime.sleep(600)"])
sys.stdin.read()
reaper.communicate()
"""


@pytest.fixture
def starter() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", STARTER, str(SUPPORT)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def _daemon(starter: subprocess.Popen[str]) -> psutil.Process:
    assert starter.stdout is not None
    return psutil.Process(int(starter.stdout.readline()))


def test_a_daemon_ends_when_its_starter_is_killed(starter: subprocess.Popen[str]) -> None:
    daemon = _daemon(starter)
    os.kill(starter.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs([daemon], PATIENCE)
    assert alive == []


def test_a_daemon_is_gone_when_its_starter_has_ended(starter: subprocess.Popen[str]) -> None:
    daemon = _daemon(starter)
    starter.communicate(timeout=PATIENCE)
    assert starter.returncode == 0
    _, alive = psutil.wait_procs([daemon], PATIENCE)
    assert alive == []
