"""A world whose store is a Cassandra cluster with a data centre in each region."""

from __future__ import annotations

import json
import os
import time
import uuid
from typing import Any
from urllib.request import urlopen

import pytest
from worlds import ROOT, World

from newsfabric.errors import SetupError
from newsfabric.world.cassandra_home import find_cassandra

pytestmark = [pytest.mark.world, pytest.mark.cassandra, pytest.mark.timeout(420)]


@pytest.fixture
def cassandra_world(far_world: World) -> World:
    """Skips on a laptop without Cassandra."""
    try:
        find_cassandra(ROOT, os.environ)
    except SetupError as exc:
        if os.environ.get("CI"):
            pytest.fail(f"CI must have Cassandra: {exc}")
        pytest.skip(str(exc))
    return far_world


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
    topic = f"news.stored-{uuid.uuid4()}"
    published = cassandra_world.run("publish", topic, json.dumps(body))
    assert published.returncode == 0, published.stderr
    # The receipt says that it is stored here; Cassandra carries it to the other region.
    assert [message["body"] for message in history(regions[0], topic)] == [body]
    deadline = time.monotonic() + 10
    while not (there := history(regions[1], topic)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [message["id"] for message in there] == [published.stdout.strip()]
    assert [message["body"] for message in there] == [body]
