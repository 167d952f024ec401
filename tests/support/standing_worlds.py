"""Real worlds, each started once for all tests that need its kind, by the command of users.

Starting one takes half a minute on two cores, so tests share them. Each is stopped after the last
of its tests, since a world at rest takes part of a core too. tests/support/spreading.py lets one
worker hold a world, and puts its tests side by side. A test mends the faults it makes: see
:meth:`worlds.World.mend`. Faults that can't be mended (no world, half a world, a stopped one)
are tested in worlds of tests/e2e/test_the_world.py.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from spreading import world_of
from worlds import PORTS, ROOT, World, ports_in_use, require_rabbitmq

from localfabric.world.cassandra_home import find_cassandra
from newsfabric.errors import SetupError

# Seconds. A busy machine may need several times as long as a quiet one.
START = 300


@contextlib.contextmanager
def _running(folder: Path, first_port: int, *options: str) -> Iterator[World]:
    """Run a world; take it down at the end, and check that nothing is left of it."""
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


class Standing:
    """The world that is up. A request for another kind takes it down and starts that kind."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._stack = contextlib.ExitStack()
        self._kind = ""
        self._world: World | None = None
        # A kind that failed to start would fail again, and take as long.
        self._failed: dict[str, AssertionError] = {}

    def of(self, kind: str, first_port: int, *options: str) -> World:
        if kind in self._failed:
            raise self._failed[kind]
        if self._world is None or self._kind != kind:
            self.close()
            started = _running(self._factory.mktemp(kind), first_port, *options)
            try:
                self._kind, self._world = kind, self._stack.enter_context(started)
            except AssertionError as failed:
                self._failed[kind] = failed
                raise
        return self._world

    def close(self) -> None:
        self._world = None
        self._stack.close()


_STANDING = pytest.StashKey[Standing]()


@pytest.fixture(scope="session")
def standing(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Standing]:
    with contextlib.closing(Standing(tmp_path_factory)) as standing:
        pytestconfig.stash[_STANDING] = standing
        yield standing


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Take the world down if the next test needs another one, or none."""
    standing = item.config.stash.get(_STANDING, None)
    if standing is not None and (nextitem is None or world_of(nextitem) != world_of(item)):
        standing.close()


@pytest.fixture
def world(standing: Standing) -> World:
    """Return a world of two regions with one box each."""
    return standing.of("world", PORTS)


@pytest.fixture
def far_world(standing: Standing) -> World:
    """Return a world of two regions and a proxy cluster; with Cassandra where it is installed."""
    options = ["--proxy"]
    with contextlib.suppress(SetupError):
        find_cassandra(ROOT, os.environ)
        options += ["--store", "cassandra"]
    return standing.of("far", PORTS + 600, *options)


@pytest.fixture
def boxes(standing: Standing) -> World:
    """Return a world of two regions with two boxes each, for tests that break most of it."""
    return standing.of("boxes", PORTS + 300, "--retail", "2")
