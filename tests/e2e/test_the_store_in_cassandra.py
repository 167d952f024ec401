"""A world whose store is a Cassandra cluster with a data centre in each region."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest
from tailing import Tail
from worlds import ROOT, World

from localfabric.world.cassandra_home import find_cassandra
from localfabric.world.toxiproxy import find_toxiproxy
from newsfabric.errors import SetupError

pytestmark = [pytest.mark.slow, pytest.mark.world, pytest.mark.cassandra, pytest.mark.timeout(420)]


@pytest.fixture
def cassandra_world(far_world: World) -> World:
    """Return the world; skip on a laptop without Cassandra."""
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
    # The receipt confirms the write in this region; Cassandra replicates it to the other one.
    assert [message["body"] for message in history(regions[0], topic)] == [body]
    deadline = time.monotonic() + 10
    while not (there := history(regions[1], topic)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [message["id"] for message in there] == [published.stdout.strip()]
    assert [message["body"] for message in there] == [body]


@pytest.fixture
def cut_world(cassandra_world: World) -> Iterator[World]:
    """Yield a world with regions cut from each other, and heal it afterwards."""
    if find_toxiproxy(ROOT, os.environ) is None:
        if os.environ.get("CI") and shutil.which("go"):
            pytest.fail("CI must have Toxiproxy: `make setup` installs it where Go is")
        pytest.skip("Toxiproxy is not installed")
    cut = cassandra_world.run("chaos", "cut", "oregon-dublin-link")
    assert cut.returncode == 0, cut.stderr
    yield cassandra_world
    cassandra_world.mend()


def test_what_neither_feed_nor_replication_brings_is_read_where_it_was_written_and_comes_once(
    cut_world: World,
) -> None:
    topic = f"news.cut-{uuid.uuid4()}"
    tail = Tail(cut_world, topic, region="dublin", count=3)
    far = cut_world.run("publish", topic, '"far"', "--region", "oregon")
    assert far.returncode == 0, far.stderr
    # The world cuts feeds and replication; a gateway can still read the other region's store.
    assert tail.first()["body"] == "far"
    near = cut_world.run("publish", topic, '"near"', "--region", "dublin")
    assert near.returncode == 0, near.stderr
    stored = [message["body"] for message in history(cut_world.region("dublin"), topic)]
    assert stored == ["near"]
    assert cut_world.run("chaos", "heal").returncode == 0
    after = cut_world.run("publish", topic, '"after"', "--region", "oregon")
    assert after.returncode == 0, after.stderr
    assert [message["body"] for message in tail.messages()] == ["far", "near", "after"]
