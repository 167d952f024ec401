"""Which worker gets which test, and in which order: see tests/support/spreading.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent / "support"
CONFTEST = """
import pytest
from spreading import ByGroupOrFile, spread

def pytest_xdist_make_scheduler(config, log):
    return ByGroupOrFile(config, log)

def pytest_collection_modifyitems(items, config):
    spread(items, config)

@pytest.fixture(scope="session")
def standing():
    return None

@pytest.fixture
def world(standing):
    return None
"""
TESTS = """
import pytest

@pytest.mark.parametrize("n", range(6))
def test_alone(n):
    pass

@pytest.mark.parametrize("n", range(6))
@pytest.mark.xdist_group("ours")
def test_grouped(n):
    pass

@pytest.mark.parametrize("n", range(6))
def test_in_a_world(world, n):
    pass
"""
SHARED = """
import pytest

@pytest.fixture(scope="session")
def broker():
    return None
"""
SHARING = """
import pytest

@pytest.mark.parametrize("n", range(6))
def test_sharing(broker, n):
    pass
"""
SETTINGS = """
[pytest]
pythonpath = {}
markers =
    world: needs a world
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """The worker and the id of each test, as they ended."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "pytest.ini").write_text(SETTINGS.format(SUPPORT))
    (folder / "conftest.py").write_text(CONFTEST)
    for name in ("test_one.py", "test_two.py"):
        (folder / name).write_text(TESTS)
    below = folder / "tests" / "attacks"
    below.mkdir(parents=True)
    (below / "conftest.py").write_text(SHARED)
    for name in ("test_three.py", "test_four.py"):
        (below / name).write_text(SHARING)
    command = [sys.executable, "-m", "pytest", "-v", "-n", "3", "--dist=loadscope"]
    command += ["--no-loadscope-reorder", "-p", "no:cacheprovider", "--basetemp", "temporary"]
    # A worker may run this.
    alone = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=folder, env=alone, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"^\[(gw\d)\] \[.+\] PASSED (\S+)", done.stdout, re.MULTILINE)
    assert len(found) == 48
    return found


def workers(ran: list[tuple[str, str]], *parts: str) -> set[str]:
    """Who ran the tests whose id has all ``parts``."""
    return {worker for worker, test in ran if all(part in test for part in parts)}


def test_a_file_stays_together(ran: list[tuple[str, str]]) -> None:
    assert len(workers(ran, "test_one.py", "test_alone")) == 1
    assert len(workers(ran, "test_two.py", "test_alone")) == 1


def test_a_group_and_who_shares_a_world_stay_together_across_files(
    ran: list[tuple[str, str]],
) -> None:
    assert len(workers(ran, "test_grouped")) == 1
    assert len(workers(ran, "test_in_a_world")) == 1


def test_who_shares_what_a_folder_makes_for_a_session_stays_together(
    ran: list[tuple[str, str]],
) -> None:
    assert len(workers(ran, "test_sharing")) == 1


def test_worlds_begin_first(ran: list[tuple[str, str]]) -> None:
    first: dict[str, str] = defaultdict(str)
    for worker, test in ran:
        first[worker] = first[worker] or test
    (holder,) = workers(ran, "test_in_a_world")
    assert "test_in_a_world" in first[holder]
