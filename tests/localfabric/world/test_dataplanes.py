import os
import subprocess
import sys
from pathlib import Path

from localfabric.world.dataplanes import control_socket, dataplanes
from localfabric.world.processes import MARKER, kill, marked, spawn

PAUSES = [sys.executable, "-c", "import signal; signal.pause()"]


def test_a_data_plane_is_known_by_its_control_socket() -> None:
    arguments = ["/x/newsfabric-dataplane", "--port", "1", "--control", "/w/sockets/18143"]
    assert control_socket(arguments) == Path("/w/sockets/18143")
    assert control_socket(["/usr/bin/python3", "-m", "gateway"]) is None
    assert control_socket(["--control"]) is None
    assert control_socket([]) is None


def test_only_those_of_this_world_are_found(tmp_path: Path) -> None:
    children: list[subprocess.Popen[bytes]] = []

    def begin(world: str, *arguments: str) -> int:
        variables = {**os.environ, MARKER: str(tmp_path / world)}
        log = tmp_path / "log"
        child = spawn([*PAUSES, *arguments], environment=variables, folder=tmp_path, log=log)
        children.append(child)
        return child.pid

    try:
        begin("here")
        ours = begin("here", "--control", "/w/ours")
        begin("there", "--control", "/w/theirs")
        while len(marked(tmp_path / "here")) + len(marked(tmp_path / "there")) < 3:
            assert all(child.poll() is None for child in children)
        found = dataplanes(tmp_path / "here")
        assert [(one.process.pid, one.socket) for one in found] == [(ours, Path("/w/ours"))]
    finally:
        kill(marked(tmp_path / "here") + marked(tmp_path / "there"))
        for child in children:
            child.wait()
