"""The worker of each test, and the order: see tests/support/spreading.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent / "support"
CONFTEST = """
import pytest
import spreading
from spreading import ByGroupOrFile, spread

spreading.HEAVY_AT_A_TIME = 1

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
WORLD_OF_ITS_OWN = """
import pytest

@pytest.mark.world
@pytest.mark.parametrize("n", range(3))
def test_with_its_own(n):
    pass
"""
MINUTES = """
import pytest

def test_quick():
    pass

@pytest.mark.slow
def test_of_minutes():
    pass
"""
NODES_OF_ITS_OWN = """
import pytest

@pytest.fixture
def cassandra_home():
    return None

@pytest.mark.cassandra
@pytest.mark.parametrize("n", range(3))
def test_with_nodes_of_its_own(cassandra_home, n):
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
    cassandra: needs Cassandra
    slow: takes minutes
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    (folder / "pytest.ini").write_text(SETTINGS.format(SUPPORT))
    (folder / "conftest.py").write_text(CONFTEST)
    for name in ("test_one.py", "test_two.py"):
        (folder / name).write_text(TESTS)
    for name in ("test_own.py", "test_too.py"):
        (folder / name).write_text(WORLD_OF_ITS_OWN)
    (folder / "test_nodes.py").write_text(NODES_OF_ITS_OWN)
    (folder / "test_zz.py").write_text(MINUTES)
    below = folder / "tests" / "attacks"
    below.mkdir(parents=True)
    (below / "conftest.py").write_text(SHARED)
    for name in ("test_three.py", "test_four.py"):
        (below / name).write_text(SHARING)
    return folder


def passed(suite: Path, *options: str) -> list[tuple[str, str]]:
    """Return the worker and the id of each test, in the order of their ends."""
    command = [sys.executable, "-m", "pytest", "-v", "-n", "3", "--dist=loadscope", *options]
    command += ["--no-loadscope-reorder", "-p", "no:cacheprovider", "--basetemp", "temporary"]
    # This test may itself run in a worker.
    alone = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=suite, env=alone, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return re.findall(r"^\[(gw\d)\] \[.+\] PASSED (\S+)", done.stdout, re.MULTILINE)


@pytest.fixture(scope="module")
def ran(suite: Path) -> list[tuple[str, str]]:
    found = passed(suite)
    assert len(found) == 59
    return found


def workers(ran: list[tuple[str, str]], *parts: str) -> set[str]:
    """Return the workers that ran the tests whose id has all ``parts``."""
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
    (holder,) = workers(ran, "test_in_a_world")
    assert "test_in_a_world" in first_of(ran, holder)


def test_no_more_worlds_and_groups_of_nodes_are_up_at_a_time_than_may_be(
    ran: list[tuple[str, str]],
) -> None:
    # One world here, so its holder takes the next one.
    holder = workers(ran, "test_in_a_world")
    assert workers(ran, "test_with_its_own") == holder
    assert workers(ran, "test_with_nodes_of_its_own") == holder


def test_where_only_heavy_groups_are_left_who_may_have_none_ends(suite: Path) -> None:
    found = passed(suite, "-k", "of_its_own or with_its_own or in_a_world")
    assert len(found) == 21
    assert len({worker for worker, _ in found}) == 1


def test_the_file_of_what_takes_minutes_begins_first_in_its_order(
    ran: list[tuple[str, str]],
) -> None:
    (worker,) = workers(ran, "test_of_minutes")
    assert first_of(ran, worker) == "test_zz.py::test_quick"


def first_of(ran: list[tuple[str, str]], worker: str) -> str:
    return next(test for each, test in ran if each == worker)
