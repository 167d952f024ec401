import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localfabric.world.processes import (
    MARKER,
    ProcessId,
    command_of,
    end,
    kill,
    last_lines,
    marked,
    process_id,
    spawn,
)

pytestmark = pytest.mark.sockets

OBEYS = "import signal; print('up', flush=True); signal.pause()"
IGNORES = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {OBEYS}"
HAS_A_CHILD = (
    f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {OBEYS!r}]); {OBEYS}"
)


class MarkedProcesses:
    """Processes that are marked with a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.children: list[subprocess.Popen[bytes]] = []

    def start(self, script: str, ups: int = 1) -> ProcessId:
        log = self.folder / f"{len(self.children)}.log"
        environment = {**os.environ, MARKER: str(self.folder)}
        command = [sys.executable, "-c", script]
        child = spawn(command, environment=environment, folder=self.folder, log=log)
        self.children.append(child)
        while log.read_text().count("up") < ups:
            assert child.poll() is None, log.read_text()
        found = process_id(child.pid)
        assert found is not None
        return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[MarkedProcesses]:
    world = MarkedProcesses(tmp_path)
    yield world
    kill(marked(tmp_path))
    for child in world.children:
        child.wait()


def test_a_process_is_found_by_its_mark_and_so_are_its_children(world: MarkedProcesses) -> None:
    parent = world.start(HAS_A_CHILD, ups=2)
    found = marked(world.folder)
    assert parent in found
    assert len(found) == 2
    assert marked(world.folder / "another") == []


def test_a_child_whose_parent_was_killed_is_still_found(world: MarkedProcesses) -> None:
    parent = world.start(HAS_A_CHILD, ups=2)
    kill([parent])
    (orphan,) = marked(world.folder)
    assert OBEYS[:20] in command_of(orphan)


def test_a_process_in_a_session_of_its_own_hears_no_ctrl_c_of_ours(world: MarkedProcesses) -> None:
    process = world.start(OBEYS)
    assert os.getsid(process.pid) == process.pid


def test_its_log_is_readable_by_its_owner_alone(world: MarkedProcesses) -> None:
    world.start("open('made', 'w'); " + OBEYS)
    assert (world.folder / "0.log").stat().st_mode & 0o777 == 0o600
    assert (world.folder / "made").stat().st_mode & 0o777 == 0o600


def test_who_obeys_sigterm_is_not_killed(world: MarkedProcesses) -> None:
    end([world.start(OBEYS)], grace=10.0)
    assert world.children[0].wait() == -signal.SIGTERM


def test_who_ignores_sigterm_is_killed_after_the_grace(world: MarkedProcesses) -> None:
    end([world.start(IGNORES)], grace=0.05)
    assert world.children[0].wait() == -signal.SIGKILL


def test_a_dead_process_is_not_alive_and_a_zombie_is_dead(world: MarkedProcesses) -> None:
    process = world.start(OBEYS)
    assert process.alive
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not process.alive, "it is a zombie now"
    world.children[0].wait()
    assert not process.alive


def test_a_pid_with_another_start_time_is_somebody_else_and_not_signalled(
    world: MarkedProcesses,
) -> None:
    process = world.start(OBEYS)
    end([ProcessId(process.pid, process.started - 1)], grace=0.05)
    assert process.alive


def test_the_end_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {n}\n" for n in range(100)))
    assert last_lines(log, 2) == "line 98\nline 99"
    assert last_lines(tmp_path / "none.log") == ""
