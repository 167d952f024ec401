"""What a run left undone that was interrupted, the next one does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.deploy.unit_templates import ROLES

FILE: Final = "/etc/sysctl.d/60-newsfabric.conf"
# A kernel whose settings are files. One of them is for reading only.
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
    # Handlers of a run that fails in between are never called.
    files = [*ROLES.glob("*/tasks/*.yml"), *(ROLES.parent / "playbooks").rglob("*.yml")]
    assert [file.name for file in files if "notify:" in file.read_text()] == []


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    made = tmp_path / "kernel"
    made.mkdir()
    (made / "net.core.somaxconn").write_text("4096\n")
    (made / "net.ipv4.tcp_rmem").write_text("4096\t16384\t6291456\n")
    return made


def load(kernel: Path, wanted: str) -> tuple[str, int]:
    """What the task says of ``wanted`` (`changed` or nothing), and its exit code."""
    tasks = yaml.safe_load((ROLES / "base" / "tasks" / "main.yml").read_text())
    [task] = [task for task in tasks if task["name"] == "The kernel has them"]
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
