"""Tests that open sockets are found by their code (tests/support/openers.py), or when they run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openers import reaches


def starts() -> None:
    subprocess.run(["true"], check=True)


class Started:
    def __init__(self) -> None:
        starts()


class Child(Started):
    pass


def calls_itself(times: int) -> int:
    return times and calls_itself(times - 1)


@pytest.fixture
def started() -> Started:
    return Child()


@pytest.mark.parametrize("leading", [starts, Started, Child, lambda: [Child() for _ in range(2)]])
def test_a_name_is_found_behind_functions_and_classes(leading: Callable[[], Any]) -> None:
    assert reaches([leading])


def test_what_names_no_opener_opens_nothing() -> None:
    assert not reaches([calls_itself])


def test_a_test_is_marked_for_its_fixtures(request: pytest.FixtureRequest, started: object) -> None:
    assert request.node.get_closest_marker("sockets") is not None


def test_a_test_without_them_is_not(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("sockets") is None


TESTS = """
import asyncio, socket, subprocess, uvloop

def test_bind():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))

def test_program():
    subprocess.run(["true"])

def test_program_of_uvloop():
    async def start():
        await (await asyncio.create_subprocess_exec("true")).wait()
    uvloop.run(start())

def test_pair():
    left, right = socket.socketpair()
    left.close(), right.close()
    asyncio.run(asyncio.sleep(0))
"""


def test_a_test_that_lacks_the_mark_fails_in_make_unit(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parent / "support")}
    command = [sys.executable, "-m", "pytest", "-p", "no_sockets", "--no-sockets", "test_it.py"]
    ran = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
    failed = re.findall(r"^ERROR .*::(\w+)", ran.stdout, re.MULTILINE)
    assert failed == ["test_bind", "test_program", "test_program_of_uvloop"], ran.stdout
