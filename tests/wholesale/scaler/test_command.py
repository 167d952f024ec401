"""Driver ``command``: the call of its program, and the use of its answers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from wholesale.scaler.drivers import DriverError, DriverLimit, Instance, command
from wholesale.scaler.drivers.command import CommandDriver

pytestmark = pytest.mark.sockets


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls"


def driver(tmp_path: Path, script: str, *, seconds: float = 20.0) -> CommandDriver:
    """Return a driver of a shell script, in which ``$calls`` is a file to write to."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ncalls={tmp_path / 'calls'}\n{script}\n", "utf-8")
    program.chmod(0o700)
    return CommandDriver([str(program), "--site", "oregon"], seconds=seconds)


def text_of(file: Path) -> str:
    return file.read_text("utf-8")


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


async def test_boxes_are_a_line_of_json_each(tmp_path: Path) -> None:
    script = """echo '{"name": "b1", "age_seconds": 3, "zone": "a"}'
echo
echo '{"name": "b2", "age_seconds": 4.5}'"""
    assert await driver(tmp_path, script).boxes() == (
        Instance("b1", 3.0, "a"),
        Instance("b2", 4.5, ""),
    )


async def test_it_is_called_with_what_is_wanted_and_who_shall_end(
    tmp_path: Path, calls: Path
) -> None:
    recording = driver(tmp_path, 'echo "$@" >> $calls')
    await recording.want(7)
    await recording.end(["b1", "b2"])
    await recording.end([])
    await recording.end([f"b{n}" for n in range(150)])
    lines = text_of(calls).splitlines()
    assert lines[:2] == ["--site oregon want 7", "--site oregon end b1 b2"]
    assert [len(line.split()) for line in lines[2:]] == [103, 53]


async def test_a_failure_is_reported_with_its_last_line(tmp_path: Path) -> None:
    failing = driver(tmp_path, "echo first >&2; echo 'no such site' >&2; exit 2")
    with pytest.raises(DriverError, match="want: exit code 2: no such site"):
        await failing.want(2)


async def test_exit_code_3_says_that_there_may_be_no_more(tmp_path: Path) -> None:
    with pytest.raises(DriverLimit, match="quota"):
        await driver(tmp_path, "echo quota >&2; exit 3").want(2)


async def test_a_program_that_hangs_is_killed_with_its_children(
    tmp_path: Path, calls: Path
) -> None:
    hanging = driver(tmp_path, "sleep 1000 &\necho $! > $calls\nwait", seconds=1.0)
    with pytest.raises(DriverError, match="not done within 1 s"):
        await hanging.want(2)
    # It was killed at once; another process reaps it.
    assert state_of(int(text_of(calls))) in ("", "Z")


async def test_a_program_that_talks_for_ever_is_killed(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="of output"):
        await driver(tmp_path, "exec yes").boxes()


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "[]",
        '{"name": "b1"}',
        '{"name": "B 1", "age_seconds": 1}',
        '{"name": "b1", "age_seconds": -1}',
        '{"name": "b1", "age_seconds": 1e99}',
        '{"name": "b1", "age_seconds": true}',
        '{"name": "b1", "age_seconds": 1, "zone": 5}',
    ],
)
async def test_a_list_with_a_line_that_is_no_box_is_no_list(tmp_path: Path, line: str) -> None:
    with pytest.raises(DriverError):
        await driver(tmp_path, f"echo '{line}'").boxes()


async def test_a_list_of_more_boxes_than_there_can_be_is_no_list(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="more than 1000 lines"):
        await driver(tmp_path, "yes '{}' | head -n 1001").boxes()


async def test_a_program_that_isnt_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="No such file"):
        await CommandDriver([str(tmp_path / "nothing")]).boxes()


async def test_the_program_isnt_given_our_login(
    tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEWSFABRIC_AMQP_PASSWORD", "s3cret-word")
    monkeypatch.setenv("SITE_KEY", "its own")
    await driver(tmp_path, "env > $calls").want(1)
    text = text_of(calls)
    assert "s3cret-word" not in text
    assert "SITE_KEY=its own" in text


async def test_a_child_in_a_session_of_its_own_that_keeps_the_pipes_costs_no_descriptor(
    tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_LAST_WORDS", 0.2)
    asking = driver(tmp_path, "setsid sleep 1000 &\necho $! >> $calls", seconds=0.5)
    counts = []
    for _ in range(4):
        with pytest.raises(DriverError, match="not done within"):
            await asking.want(1)
        # The loop closes its descriptors in its next turns.
        for _ in range(5):
            await asyncio.sleep(0)
        counts.append(len(os.listdir("/proc/self/fd")))
    for pid in text_of(calls).split():
        os.kill(int(pid), signal.SIGKILL)
    assert counts[-1] <= counts[0]


async def test_no_descriptor_is_left_behind(tmp_path: Path) -> None:
    asking = driver(tmp_path, "true")
    await asking.want(1)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await asking.want(1)
    assert len(os.listdir("/proc/self/fd")) <= before
    assert sys.platform == "linux"
