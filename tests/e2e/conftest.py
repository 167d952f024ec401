"""Real worlds, each started once for all tests that need its like, by the command users type.

Starting one takes most of a minute on two cores, so tests share them. What a test breaks it mends:
see :meth:`worlds.World.mend`. What can't be mended (no world, half a world, a world that is
stopped) happens in worlds of tests/e2e/test_the_world.py.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from worlds import PORTS, ROOT, World, ports_in_use, require_rabbitmq

from newsfabric.errors import SetupError
from newsfabric.world.cassandra_home import find_cassandra

# A busy machine may need several times what a quiet one does.
START = 300


@contextlib.contextmanager
def _running(folder: Path, first_port: int, *options: str) -> Iterator[World]:
    """A world that is taken down at the end, with nothing left behind."""
    require_rabbitmq()
    world = World(folder / "world")
    where = ("--port-base", str(first_port), "--timeout", str(START))
    up = world.run("up", "--detach", *where, *options, timeout=START + 60)
    assert up.returncode == 0, f"{up.stdout}\n{up.stderr}"
    yield world
    down = world.run("down")
    assert down.returncode == 0, f"{down.stdout}\n{down.stderr}"
    assert world.pids() == set()
    assert ports_in_use(first_port, 300) == []
    assert not world.state.exists()


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two regions with one box each."""
    with _running(tmp_path_factory.mktemp("e2e"), PORTS) as world:
        yield world


@pytest.fixture(scope="session")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two regions with two boxes each, for tests that break most of it."""
    with _running(tmp_path_factory.mktemp("boxes"), PORTS + 300, "--retail", "2") as world:
        yield world


@pytest.fixture(scope="session")
def far_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two regions and a proxy cluster; with Cassandra where it is installed."""
    options = ["--proxy"]
    with contextlib.suppress(SetupError):
        find_cassandra(ROOT, os.environ)
        options += ["--store", "cassandra"]
    with _running(tmp_path_factory.mktemp("far"), PORTS + 600, *options) as world:
        yield world
