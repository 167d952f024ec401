"""A real two-region world, started once for all end-to-end tests by the command users type."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from worlds import World, ports_in_use, require_rabbitmq

# Below the kernel's ephemeral range, away from the default world and the bench.
PORT_BASE = 24000


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two regions with one box each; taken down at the end with nothing left behind."""
    require_rabbitmq()
    world = World(tmp_path_factory.mktemp("e2e") / "world")
    up = world.run("up", "--detach", "--port-base", str(PORT_BASE))
    assert up.returncode == 0, f"{up.stdout}\n{up.stderr}"
    yield world
    down = world.run("down")
    assert down.returncode == 0, f"{down.stdout}\n{down.stderr}"
    assert world.pids() == set()
    assert ports_in_use(PORT_BASE) == []
    assert not world.state.exists()
