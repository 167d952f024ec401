"""Work that an interrupted run left undone is done by the next run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.deploy.unit_templates import ROLES

FILE: Final = "/etc/sysctl.d/60-newsfabric.conf"
# A kernel whose settings are files. One of them is read-only.
SYSCTL: Final = """#!/bin/sh
cd "$KERNEL" || exit
case $1 in
    --values) cat "$2" ;;
    --load)
        while IFS='= ' read -r key value; do
            case $key in
                [a-z]*) test -w "$key" && echo "$value" | tr ' ' '\\t' >"$key" || result=1 ;;
            esac
        done <"$2"
        exit ${result:-0}
        ;;
esac
"""
WANTED: Final = "# Why.\n\nnet.core.somaxconn = 32768\nnet.ipv4.tcp_rmem = 4096 16384 6291456\n"


def test_nothing_is_left_to_a_handler() -> None:
    # Handlers of a run that fails halfway are never called.
    files = [*ROLES.glob("*/tasks/*.yml"), *(ROLES.parent / "playbooks").rglob("*.yml")]
    assert [file.name for file in files if "notify:" in file.read_text()] == []


# A systemd in which each unit began at eight: services as processes, others as units.
SYSTEMCTL: Final = """#!/bin/sh
case "$*" in
    *ExecMainStartTimestamp*.timer | *ExecMainStartTimestamp*.socket | *never*) ;;
    *ActiveEnterTimestamp*.timer | *ActiveEnterTimestamp*.socket | *ExecMainStartTimestamp*)
        echo "Tue 2026-11-24 08:00:00.000000 UTC" ;;
esac
"""


@pytest.mark.parametrize(("written_at", "older"), [("07:59", False), ("08:01", True)])
def test_what_began_before_its_settings_were_written_is_found(
    playbook: str, tmp_path: Path, written_at: str, older: bool
) -> None:
    program = tmp_path / "systemctl"
    program.write_text(SYSTEMCTL)
    program.chmod(0o755)
    settings = tmp_path / "settings" / "rules" / "alerts.yml"
    settings.parent.mkdir(parents=True)
    settings.touch()
    subprocess.run(["touch", f"--date=2026-11-24 {written_at} UTC", settings], check=True)
    units = ["prometheus", "epmd.socket", "newsfabric-certificates.timer", "never-started"]
    found = tmp_path / "found"
    play = [
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "environment": {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
            "vars": {"service_units": units, "service_reads": [str(settings.parents[1])]},
            "tasks": [
                {"ansible.builtin.include_tasks": str(ROLES / "service" / "tasks" / "older.yml")},
                {
                    "ansible.builtin.copy": {
                        "content": "{{ service_older.stdout }}",
                        "dest": str(found),
                    }
                },
            ],
        }
    ]
    file = tmp_path / "play.yml"
    file.write_text(yaml.safe_dump(play))
    done = subprocess.run(
        [playbook, "-i", "localhost,", str(file)],
        cwd=ROLES.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert found.read_text().split() == (units[:3] if older else [])


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    made = tmp_path / "kernel"
    made.mkdir()
    (made / "net.core.somaxconn").write_text("4096\n")
    (made / "net.ipv4.tcp_rmem").write_text("4096\t16384\t6291456\n")
    return made


def load(kernel: Path, wanted: str) -> tuple[str, int]:
    """Return the output of the task for ``wanted`` (`changed` or nothing), and its exit code."""
    tasks = yaml.safe_load((ROLES / "base" / "tasks" / "kernel.yml").read_text())
    [task] = [task for task in tasks if task["name"] == "Apply kernel settings"]
    settings = kernel.parent / "settings.conf"
    settings.write_text(wanted)
    program = kernel.parent / "sysctl"
    program.write_text(SYSCTL)
    program.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", task["ansible.builtin.shell"]["cmd"].replace(FILE, str(settings))],
        env={"PATH": f"{program.parent}:{os.environ['PATH']}", "KERNEL": str(kernel)},
        capture_output=True,
        text=True,
    )
    return done.stdout.strip(), done.returncode


def test_kernel_settings_are_those_of_the_file_whoever_wrote_it(kernel: Path) -> None:
    assert load(kernel, WANTED) == ("changed", 0)
    assert (kernel / "net.core.somaxconn").read_text() == "32768\n"
    assert load(kernel, WANTED) == ("", 0)


def test_a_setting_that_a_container_hasn_t_is_an_error_but_no_change(kernel: Path) -> None:
    wanted = f"{WANTED}vm.swappiness = 1\n"
    assert load(kernel, wanted) == ("changed", 1)
    assert load(kernel, wanted) == ("", 1)


@pytest.mark.parametrize(("reads", "seconds"), [(True, "21600"), (False, "300")])
def test_a_store_node_that_was_joining_is_waited_for_as_long_as_before(
    playbook: str, tmp_path: Path, reads: bool, seconds: str
) -> None:
    if reads:
        (tmp_path / "first-start.env").touch()
    text = (ROLES / "cassandra" / "tasks" / "answers.yml").read_text()
    *before, waits = yaml.safe_load(text.replace("/etc/cassandra/", f"{tmp_path}/"))
    found = tmp_path / "found"
    content = waits["ansible.builtin.wait_for"]["timeout"]
    play = [
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            # As on a node that has run: it has data.
            "vars": {"cassandra_reads_first": False},
            "tasks": [*before, {"ansible.builtin.copy": {"content": content, "dest": str(found)}}],
        }
    ]
    file = tmp_path / "play.yml"
    file.write_text(yaml.safe_dump(play))
    done = subprocess.run(
        [playbook, "-i", "localhost,", str(file)], cwd=ROLES.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert found.read_text() == seconds
