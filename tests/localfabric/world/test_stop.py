import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from localfabric.world.layout import lay_out
from localfabric.world.options import WorldOptions
from localfabric.world.processes import MARKER, kill, marked, process_id, spawn
from localfabric.world.running import planned
from localfabric.world.state import Notes, make_folder, write_notes
from localfabric.world.stop import stop_world

pytestmark = pytest.mark.sockets

OPTIONS = WorldOptions(port_base=22400)
SLEEPS = [sys.executable, "-c", "import signal; signal.pause()"]


children: list[subprocess.Popen[bytes]] = []


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "world"
    kill(marked(tmp_path / "world"))
    while children:
        children.pop().wait()


def begin(state: Path, name: str | None, command: Sequence[str] = SLEEPS) -> None:
    """Make a world of one process: noted as ``name``, or running without a note."""
    layout = lay_out(OPTIONS, state)
    notes = Notes(options=OPTIONS, processes=dict(planned(layout)))
    make_folder(state, notes)
    variables = {**os.environ, MARKER: str(state)}
    child = spawn(command, environment=variables, folder=state, log=layout.paths.log("x"))
    children.append(child)
    while not marked(state):
        assert child.poll() is None
    if name is not None:
        processes = notes.processes | {name: process_id(child.pid)}
        write_notes(state, dataclasses.replace(notes, processes=processes))


def stop(state: Path, *, keep_logs: bool = False) -> bool:
    return stop_world(state, keep_logs=keep_logs, print_line=lambda _text: None)


def test_where_nothing_runs_there_is_nothing_to_stop(state: Path) -> None:
    assert not stop(state)


def test_stopping_twice_is_no_error(state: Path) -> None:
    begin(state, "oregon-router-1")
    assert stop(state)
    assert marked(state) == []
    assert not state.exists()
    assert not stop(state)


def test_a_process_that_was_never_noted_is_found(state: Path) -> None:
    begin(state, None)
    assert stop(state)
    assert marked(state) == []


def test_a_data_plane_without_its_gateway_may_say_goodbye(state: Path) -> None:
    program = """
import pathlib, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
pathlib.Path("../ready").touch()
signal.sigwait([signal.SIGTERM])
pathlib.Path("../goodbye").touch()
"""
    begin(state, None, [sys.executable, "-c", program, "--control", str(state / "sockets/1")])
    while not (state.parent / "ready").exists():
        assert children[0].poll() is None
    assert stop(state)
    assert (state.parent / "goodbye").exists()
    assert marked(state) == []
    assert not state.exists()


def test_damaged_notes_do_not_save_a_process(state: Path) -> None:
    begin(state, None)
    (state / "world.json").write_text("{")
    assert stop(state)
    assert marked(state) == []
    assert not state.exists()


def test_a_deleted_folder_does_not_save_a_process(state: Path) -> None:
    begin(state, None)
    state.rename(state.with_name("gone"))
    assert stop(state)
    assert marked(state) == []


def test_logs_can_be_kept(state: Path) -> None:
    begin(state, "oregon-router-1")
    assert stop(state, keep_logs=True)
    assert [path.relative_to(state).as_posix() for path in state.rglob("*")] == [
        "logs",
        "logs/x.log",
    ]
