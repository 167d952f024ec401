"""The findings of ``newsfabric doctor``, and its advice."""

from __future__ import annotations

import json
import resource
import socket
import types
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from localfabric.cli.doctor_command import doctor
from localfabric.nodes.ports import free_ports
from localfabric.world import doctor as examining
from localfabric.world.doctor import DoctorLine, Level, worst
from localfabric.world.memory_left import MemoryLeft

GIB = 1 << 30
TAKEN = "port 18000 (a broker) is taken: stop what uses it"


@pytest.mark.parametrize(
    ("finding", "level", "says"),
    [
        (examining.python((3, 11, 0), "CPython"), "ok", "CPython 3.11.0"),
        (examining.python((3, 12, 0), "CPython"), "ok", "CPython 3.12.0"),
        (examining.python((4, 0, 0), "CPython"), "ok", "CPython 4.0.0"),
        (examining.python((3, 10, 9), "CPython"), "error", "CPython 3.10.9"),
        (examining.erlang("25", ""), "ok", "OTP 25"),
        (examining.erlang("", "no libtinfo"), "error", "it doesn't run: no libtinfo"),
        (examining.dataplane("/bin/dataplane", "", "native"), "ok", "/bin/dataplane"),
        (examining.dataplane("", "x", "auto"), "warning", "not built, so gateways run the slower"),
        (examining.dataplane("", "x", "native"), "error", "not built, so gateways run the slower"),
        (examining.dataplane("", "x", "tornado"), "ok", "not built, and"),
        (examining.localhost("127.0.0.1"), "ok", "127.0.0.1"),
        (examining.localhost(""), "error", "is no name on this machine"),
        (examining.ports("", runs=False), "ok", "free"),
        (examining.ports(TAKEN, runs=True), "ok", "taken by the world that runs"),
        (examining.ports(TAKEN, runs=False), "error", "port 18000 (a broker) is taken"),
        (examining.memory(MemoryLeft(2 * GIB)), "ok", "2.0 GiB available"),
        (examining.memory(MemoryLeft(2 * GIB - 1)), "warning", "2.0 GiB available"),
        (examining.memory(MemoryLeft(GIB)), "warning", "1.0 GiB available"),
        (examining.memory(MemoryLeft(GIB - 1)), "error", "1.0 GiB available"),
        (
            examining.memory(MemoryLeft(GIB // 2, "/sys/fs/cgroup/a")),
            "error",
            "0.5 GiB available by the limit of /sys/fs/cgroup/a",
        ),
        (examining.descriptors(resource.RLIM_INFINITY), "ok", "no limit"),
        (examining.descriptors(4096), "ok", "4096 a process"),
        (examining.descriptors(1024), "warning", "1024 a process"),
        (examining.descriptors(256), "error", "256 a process"),
        # adjtimex(2): TIME_OK, a leap second that has just passed (TIME_WAIT), TIME_ERROR.
        (examining.clock(2026, 0), "ok", "set by a time service"),
        (examining.clock(2027, 4), "ok", "set by a time service"),
        (examining.clock(2026, 5), "warning", "nothing sets it"),
        (examining.clock(2025, 0), "error", "its year is 2025"),
        (examining.clock(2025, 5), "error", "its year is 2025"),
        (examining.disk(3 * GIB, ".", True), "ok", "3.0 GiB free at ."),
        (examining.disk(GIB, ".", True), "warning", "1.0 GiB free at ."),
        (examining.disk(1 << 20, ".", True), "error", "0.0 GiB free at ."),
        (examining.disk(3 * GIB, "/x", False), "error", "/x can't be written"),
    ],
)
def test_each_thing_is_judged_and_what_is_not_well_says_what_to_do(
    finding: DoctorLine, level: Level, says: str
) -> None:
    assert (finding.level, finding.says[: len(says)]) == (level, says)
    assert bool(finding.do) == (level != "ok")


@pytest.mark.parametrize(
    ("processes", "ready", "alive", "noted", "level", "says"),
    [
        (0, False, False, False, "ok", "nothing is left in w"),
        (0, True, False, True, "warning", "a dead world's files are in w"),
        (9, True, True, True, "ok", "a world runs in w"),
        (9, False, True, True, "warning", "a world runs in w, and isn't ready"),
        (9, True, False, True, "error", "9 processes of a dead world in w"),
        (9, False, False, False, "error", "9 processes of a dead world in w"),
    ],
)
def test_what_an_earlier_world_has_left_is_distinguished_from_one_that_runs(
    processes: int, ready: bool, alive: bool, noted: bool, level: Level, says: str
) -> None:
    finding = examining.left("w", processes=processes, ready=ready, alive=alive, noted=noted)
    assert (finding.level, finding.says) == (level, says)
    assert finding.do == ("" if level == "ok" else "`newsfabric down` ends what is left of it")


def test_the_worst_of_all_counts() -> None:
    found = [DoctorLine("a", "ok", ""), DoctorLine("b", "warning", "")]
    assert worst(found[:1]) == "ok"
    assert worst(found) == "warning"
    assert worst([*found, DoctorLine("c", "error", ""), *found]) == "error"


@pytest.mark.sockets
@pytest.mark.parametrize("state", [0, 5])
def test_the_kernel_is_asked_whether_something_sets_the_clock(
    state: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = types.SimpleNamespace(adjtimex=lambda asked: state if len(asked) == 208 else -1)
    monkeypatch.setattr(examining.ctypes, "CDLL", lambda name: kernel)
    result = examined("--json", "--state", str(tmp_path), NEWSFABRIC_RABBITMQ_HOME="none")
    (found,) = [x for x in json.loads(result.output)["findings"] if x["what"] == "clock"]
    assert found["level"] == {0: "ok", 5: "warning"}[state]


def examined(*words: str, **environ: str) -> Result:
    return CliRunner().invoke(doctor, words, env=environ)


@pytest.mark.sockets
def test_a_machine_without_rabbitmq_is_reported_and_the_rest_is_looked_at(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    result = examined("--state", str(tmp_path), NEWSFABRIC_RABBITMQ_HOME=missing)
    assert result.exit_code == 1
    lines = result.output.splitlines()
    at = lines.index("error    RabbitMQ: none that can be run")
    assert lines[at + 1].startswith(f"         → {missing} has no sbin/rabbitmq-server")
    assert [line.split(":")[0].split(maxsplit=1)[1] for line in lines if "→" not in line] == [
        "Python",
        "RabbitMQ",
        "data plane",
        "localhost",
        "earlier world",
        "ports",
        "memory",
        "descriptors",
        "clock",
        "disk",
    ]


def test_a_taken_port_is_an_error_with_what_to_do(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        result = examined("--json", "--port-base", str(port), "--state", str(tmp_path / "world"))
    assert result.exit_code == 1
    document = json.loads(result.output)
    assert document["level"] == "error"
    (found,) = [one for one in document["findings"] if one["what"] == "ports"]
    assert found == {
        "what": "ports",
        "level": "error",
        "says": f"port {port} (Erlang's port mapper) is taken",
        "do": "stop what uses it, or choose --port-base",
    }
    assert not (tmp_path / "world").exists()


@pytest.mark.sockets
def test_notes_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "world.json").write_text("{}")
    result = examined("--json", "--state", str(tmp_path))
    (found,) = [x for x in json.loads(result.output)["findings"] if x["what"] == "earlier world"]
    assert found["level"] == "error"
    assert "world.json isn't what newsfabric wrote" in found["says"]
