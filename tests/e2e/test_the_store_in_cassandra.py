"""A world whose store is a Cassandra cluster with a data centre in each region."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest
from worlds import ROOT, World, ports_in_use, require_rabbitmq

from newsfabric.errors import SetupError
from newsfabric.world.cassandra_home import find_cassandra

pytestmark = [pytest.mark.world, pytest.mark.cassandra, pytest.mark.timeout(360)]

# Away from the world of the other end-to-end tests, which is running too.
PORT_BASE = 25000


@pytest.fixture(scope="module")
def cassandra_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    require_rabbitmq()
    try:
        find_cassandra(ROOT, os.environ)
    except SetupError as exc:
        if os.environ.get("CI"):
            pytest.fail(f"CI must have Cassandra: {exc}")
        pytest.skip(str(exc))
    world = World(tmp_path_factory.mktemp("e2e-cassandra") / "world")
    words = ("--store", "cassandra", "--port-base", str(PORT_BASE), "--timeout", "240")
    up = world.run("up", "--detach", *words, timeout=280)
    assert up.returncode == 0, f"{up.stdout}\n{up.stderr}"
    yield world
    down = world.run("down")
    assert down.returncode == 0, f"{down.stdout}\n{down.stderr}"
    assert world.pids() == set()
    assert ports_in_use(PORT_BASE, 300) == []
    assert not world.state.exists()


def history(region: dict[str, Any], topic: str) -> list[dict[str, Any]]:
    with urlopen(f"{region['frontdesk_url']}/history?topic={topic}", timeout=10) as response:
        found: list[dict[str, Any]] = json.load(response)["messages"]
        return found


def test_what_oregon_routed_is_in_the_history_of_both_regions(cassandra_world: World) -> None:
    regions = cassandra_world.status()["regions"]
    stores = [store for region in regions for store in region["store"]]
    assert [store["name"] for store in stores] == ["oregon-store-1", "dublin-store-1"]
    assert all(store["running"] for store in stores)
    body = {"headline": f"A headline {uuid.uuid4()}"}
    published = cassandra_world.run("publish", "news.world", json.dumps(body))
    assert published.returncode == 0, published.stderr
    # The receipt says that it is stored here; Cassandra carries it to the other region.
    assert [message["body"] for message in history(regions[0], "news.world")] == [body]
    deadline = time.monotonic() + 10
    while not (there := history(regions[1], "news.world")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [message["id"] for message in there] == [published.stdout.strip()]
    assert [message["body"] for message in there] == [body]
