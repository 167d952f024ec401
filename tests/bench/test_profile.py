"""Profiles: the highest costs in a process's samples, and the files left when a profiler fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.profile import __main__ as command
from bench.profile import recording
from bench.profile.costs import Cost, costs_of, without_waits
from bench.profile.recording import Perf, Profile, Profiler, PySpy, Recorder, why
from bench.programs import ROOT
from bench.rows import NotMeasured
from newsfabric.errors import SetupError

LOOKED = "main;turn;send 3"
LOOKS = """trap 'echo "LOOKED" > DATA; exit' INT; echo looks; while :; do sleep 0.01; done"""


class Script(Profiler):
    """A shell script in place of a profiler; DATA in it becomes the file to write."""

    tool = "a profiler"
    colors = "hot"
    hint = "ask for it"

    def __init__(self, name: str, script: str) -> None:
        super().__init__(name, os.getpid())
        self._script = script

    def command(self, data: Path) -> list[str]:
        return ["sh", "-c", self._script.replace("DATA", str(data))]

    def has_begun(self, data: Path, output: str) -> bool:
        return "looks" in output

    def fold(self, data: Path) -> str:
        return data.read_text("utf-8")


def looks_until_reported(folded: str) -> str:
    return LOOKS.replace("LOOKED", folded)


@pytest.fixture
def drawing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program that copies its input in inferno's place."""
    program = tmp_path / "inferno-flamegraph"
    program.write_text("#!/bin/sh\ncat\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(recording, "TOOLS", tmp_path)


def test_a_sample_counts_for_the_function_that_ran() -> None:
    found = costs_of("main;route;encode 6\nmain;route 3\nmain;idle 1\nmain;other;encode 10\n")
    assert found.samples == 20
    assert found.highest == (Cost("encode", 0.8), Cost("route", 0.15), Cost("idle", 0.05))


def test_what_the_kernel_does_counts_for_who_asked() -> None:
    folded = (
        "io-0;turn;send;entry_[k];tcp_sendmsg_[k] 5\n"
        "io-0;turn;send;entry_[k];tcp_sendmsg_[k];tcp_write_xmit_[k] 2\n"
        "io-0;turn;send 2\n"
        "entry_[k] 1\n"
    )
    found = costs_of(folded)
    assert found.kernel_seen
    assert found.highest == (Cost("send", 0.9), Cost("the kernel", 0.1))


def test_a_system_call_without_a_function_in_libc_has_its_name() -> None:
    folded = (
        "io-0;turn;syscall;do_syscall_64_[k];__do_sys_io_uring_enter_[k];io_submit_sqes_[k] 5\n"
        "io-0;turn;syscall;do_syscall_64_[k];__x64_sys_io_uring_enter_[k] 4\n"
        "io-0;turn;syscall 1\n"
    )
    found = costs_of(folded)
    assert found.highest == (Cost("system call io_uring_enter", 0.9), Cost("syscall", 0.1))


def test_who_waits_does_nothing() -> None:
    works = "run (service.py);uv_run (core.c);route (router.py) 1\n"
    waits = (
        "run (service.py);uv_run (core.c);epoll_pwait (libc.so.6) 70\n"
        "run (pool.py);pthread_cond_timedwait@@GLIBC_2.3.2 (libc.so.6) 9\n"
    )
    assert without_waits(waits + works) == works


def test_what_is_done_in_c_counts_for_the_python_that_asked() -> None:
    folded = (
        "main (libc.so.6);run (service.py);Loop__run (loop.c);route (router.py);write (libc) 3\n"
        "main (libc.so.6);run (service.py);Loop__run (loop.c);route (router.py) 1\n"
        "main (libc.so.6);run (service.py);Loop__run (loop.c) 1\n"
    )
    found = costs_of(folded)
    assert found.highest == (Cost("route (router.py)", 0.8), Cost("run (service.py)", 0.2))


def test_a_function_may_have_spaces_and_a_line_that_is_no_stack_is_passed_over() -> None:
    found = costs_of("main;<T as Trait>::run 2\n\nno count\n7\n")
    assert (found.samples, found.highest) == (2, (Cost("<T as Trait>::run", 1.0),))
    assert not found.kernel_seen


def test_without_samples_there_are_no_costs() -> None:
    assert (costs_of("").samples, costs_of("").highest) == (0, ())


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("Error:\nNo permission to look.\nSee the manual.\n", "No permission to look."),
        ("starts\nError: no such process\n", "no such process"),
        ("\nPermission denied\nsudo may help\n", "Permission denied"),
        ("", "it says nothing"),
    ],
)
def test_the_reason_for_a_failure_is_one_line(output: str, reason: str) -> None:
    assert why(output) == reason


def looked_at(profilers: list[Profiler], folder: Path) -> dict[str, Profile | NotMeasured]:
    recorder = Recorder(folder)
    with recorder.recording(*profilers):
        pass
    return recorder.found


@pytest.mark.sockets
@pytest.mark.usefixtures("drawing")
def test_a_profiler_that_fails_is_named_and_the_other_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "found"
    bad = Script("data-plane", "echo 'Error: forbidden' >&2; exit 1")
    found = looked_at([bad, Script("control-plane", looks_until_reported(LOOKED))], folder)
    assert found["data-plane"] == NotMeasured("a profiler failed (forbidden); ask for it")
    good = found["control-plane"]
    assert isinstance(good, Profile)
    assert (good.costs.samples, good.costs.highest) == (3, (Cost("send", 1.0),))
    for end in ("svg", "folded"):
        assert (folder / f"control-plane.{end}").read_text("utf-8").strip() == LOOKED
    written = json.loads((folder / "costs.json").read_text("utf-8"))
    assert written["data-plane"] == {"not_measured": "a profiler failed (forbidden); ask for it"}
    assert written["control-plane"]["graph"] == "control-plane.svg"
    assert written["control-plane"]["costs"]["highest"] == [{"what": "send", "share": 1.0}]


@pytest.mark.sockets
@pytest.mark.usefixtures("drawing")
def test_what_is_interrupted_leaves_what_was_seen(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "found")
    with (
        pytest.raises(KeyboardInterrupt),
        recorder.recording(Script("router", looks_until_reported(LOOKED))),
    ):
        raise KeyboardInterrupt
    assert isinstance(recorder.found["router"], Profile)
    assert (tmp_path / "found" / "router.svg").exists()


@pytest.mark.sockets
@pytest.mark.usefixtures("drawing")
def test_a_process_that_did_nothing_has_no_costs(tmp_path: Path) -> None:
    found = looked_at([Script("router", looks_until_reported(""))], tmp_path / "found")
    assert found == {"router": NotMeasured("it did nothing that was seen")}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (Perf, "perf isn't on the PATH; Debian's package is linux-perf"),
        (PySpy, "py-spy isn't on the PATH"),
    ],
)
def test_a_profiler_that_is_missing_says_what_to_do(
    make: Callable[[str, int], Profiler], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(recording, "TOOLS", tmp_path)
    found = looked_at([make("a-process", os.getpid())], tmp_path / "found")["a-process"]
    assert isinstance(found, NotMeasured)
    assert found.why.startswith(says)


def test_a_kernel_that_may_not_be_seen_is_noted() -> None:
    perf = Perf("data-plane", 1)
    assert perf.note(costs_of("io-0;send;entry_[k] 1")) == ""
    assert perf.note(costs_of("io-0;send 1")).startswith("without the kernel's part")


def test_without_its_tools_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "TOOLS", tmp_path)
    done = CliRunner().invoke(command.main, ["--out", str(tmp_path / "found")])
    assert done.exit_code == 1
    assert "py-spy is missing: `scripts/setup profile` installs it" in done.output
    assert not (tmp_path / "found").exists()


@pytest.mark.parametrize("arguments", [["gateway"], ["--seconds", "0"], ["--seconds", "601"]])
def test_what_cannot_be_profiled_is_refused(arguments: list[str]) -> None:
    assert CliRunner().invoke(command.main, arguments).exit_code == 2


@pytest.mark.slow
@pytest.mark.broker
def test_a_router_is_profiled(tmp_path: Path) -> None:
    try:
        recording.require_tools()
    except SetupError as exc:
        # CI has no profilers either: inferno compiles for a minute.
        pytest.skip(str(exc))
    arguments = ["router", "--seconds", "2", "--json", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.profile", *arguments],
        check=True,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        timeout=240,
    )
    router = json.loads(done.stdout)["router"]
    if "not_measured" in router:
        pytest.skip(router["not_measured"])
    assert router["costs"]["samples"] > 0
    assert len(router["costs"]["highest"]) == 3
    assert "<svg" in (tmp_path / "router.svg").read_text("utf-8")
