"""deploy/containers: process 1 of a gateway's container, the drain of a pod, the images' files."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.native.program import find_program
from localfabric.nodes.ports import free_ports
from newsfabric.errors import SetupError

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "containers"
KEEP = str(FOLDER / "keep")
DRAIN = [sys.executable, str(FOLDER / "drain")]


def test_who_drained_and_ended_is_not_started_again(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    done = subprocess.run([KEEP, "sh", "-c", f"echo run >> {runs}"], timeout=10, check=False)
    assert (done.returncode, runs.read_text()) == (0, "run\n")


def test_who_failed_is_started_again(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    program = f"echo run >> {runs}; [ $(wc -l < {runs}) -eq 2 ] || exit 7"
    done = subprocess.run(
        [KEEP, "sh", "-c", program], timeout=20, check=False, capture_output=True, text=True
    )
    assert (done.returncode, runs.read_text()) == (0, "run\nrun\n")
    assert done.stderr == "keep: exit code 7, again in 1 s\n"


def test_a_signal_to_stop_is_passed_on_and_waited_for(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    program = f"trap 'sleep 0.2; exit 5' TERM; echo > {ready}; while :; do sleep 0.05; done"
    with subprocess.Popen([KEEP, "sh", "-c", program]) as kept:
        wait_for(ready.exists)
        kept.terminate()
        assert kept.wait(10) == 5


def test_keep_without_a_command_says_how_it_is_called() -> None:
    done = subprocess.run([KEEP], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "usage: keep COMMAND…\n")


def test_draining_a_gateway_that_is_gone_is_done() -> None:
    done = subprocess.run([*DRAIN, str(free_ports(1)[0])], timeout=10, check=False)
    assert done.returncode == 0


def test_draining_wants_a_port() -> None:
    done = subprocess.run([*DRAIN, "gateway"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "usage: drain PORT\n")


class Kept:
    """A native gateway below ``keep``, as in its container."""

    def __init__(self, folder: Path) -> None:
        readers, self.admin, broker = free_ports(3)
        (folder / "topics.toml").write_text('[[topic]]\npattern = "#"\n')
        words = f"""--engine native --name b-retail-0 --region b --store memory: --drain-seconds 0.5
            --broker amqp://127.0.0.1:{broker}/%2F --port {readers}
            --admin-port {self.admin} --topics {folder}/topics.toml
            --dataplane-socket {folder}/control --dataplane-threads 1"""
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [KEEP, sys.executable, "-m", "gateway", *words.split()], stderr=log
            )

    def engine(self) -> dict[str, object] | None:
        """Return the admin port's reply about the processes; None without a reply."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/engine", timeout=5) as text:
                found: dict[str, object] = json.load(text)
        except (OSError, urllib.error.URLError):
            return None
        return found

    def attached(self) -> dict[str, object]:
        """Return that reply as soon as a control plane has its data plane."""
        wait_for(lambda: (self.engine() or {}).get("dataplane_pid"))
        found = self.engine()
        assert found is not None
        return found


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    try:
        find_program()
    except SetupError as why:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(why))
    gateway = Kept(tmp_path)
    yield gateway
    gateway.process.terminate()
    gateway.process.wait(20)


def test_a_killed_control_plane_is_followed_by_one_with_the_same_data_plane(kept: Kept) -> None:
    before = kept.attached()
    os.kill(int(str(before["pid"])), signal.SIGKILL)
    wait_for(lambda: (kept.engine() or before)["pid"] != before["pid"])
    after = kept.attached()
    assert after["dataplane_pid"] == before["dataplane_pid"]


def test_a_pod_that_stops_waits_until_its_gateway_has_drained(kept: Kept) -> None:
    kept.attached()
    done = subprocess.run([*DRAIN, str(kept.admin)], timeout=30, check=False)
    assert done.returncode == 0
    assert kept.engine() is None
    assert kept.process.wait(10) == 0


@pytest.mark.parametrize("file", ["Dockerfile", "Dockerfile.demo"])
def test_an_image_ends_as_a_user_by_number_who_is_not_root(file: str) -> None:
    users = re.findall(r"^USER (\S+)$", (FOLDER / file).read_text(), re.MULTILINE)
    assert users[-1] == "10001:10001"


@pytest.mark.parametrize("file", ["Dockerfile", "Dockerfile.demo"])
def test_an_image_copies_nothing_but_what_the_context_holds(file: str) -> None:
    allowed = (FOLDER.parents[1] / ".dockerignore").read_text().split("*\n", 1)[1].splitlines()
    lines = re.findall(r"^COPY (?!--from)(.+)$", (FOLDER / file).read_text(), re.MULTILINE)
    sources = [word for line in lines for word in line.split()[:-1] if not word.startswith("--")]
    assert sources
    assert {f"!{source}" for source in sources} <= set(allowed)


@pytest.mark.parametrize("changed", [False, True])
def test_an_image_takes_no_wheel_that_the_bundle_has_no_hash_of(
    tmp_path: Path, changed: bool
) -> None:
    wheel = tmp_path / "wheels" / "one-1-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("one.py", "")
        packed.writestr(
            "one-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: one\nVersion: 1\n"
        )
        packed.writestr("one-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        packed.writestr("one-1.dist-info/RECORD", "one.py,,\n")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (wheel.parent / "requirements.txt").write_text(f"one==1 --hash=sha256:{digest}\n")
    if changed:
        with zipfile.ZipFile(wheel, "a") as packed:
            packed.writestr("two.py", "")
    text = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ")
    [options] = re.findall(r"/bin/pip install ([^&\n]+)", text)
    words = options.replace("/tmp/wheels", str(wheel.parent)).split()
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--target", str(tmp_path / "into"), *words],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode == 0) == (not changed), done.stderr
    assert (tmp_path / "into" / "one.py").exists() == (not changed)
    assert ("DO NOT MATCH THE HASHES" in done.stderr) == changed


def wait_for(condition: Callable[[], object]) -> None:
    """Ask repeatedly; fail after 20 seconds."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
