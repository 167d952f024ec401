"""What is published far from every region reaches the readers of all of them, once."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest
from tailing import Tail
from worlds import ROOT, World, ports_in_use, require_rabbitmq

pytestmark = [pytest.mark.world, pytest.mark.timeout(300)]

PORT_BASE = 20000


@pytest.fixture(scope="module")
def proxy_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    require_rabbitmq()
    world = World(tmp_path_factory.mktemp("proxy") / "world")
    up = world.run("up", "--detach", "--proxy", "--port-base", str(PORT_BASE))
    assert up.returncode == 0, f"{up.stdout}\n{up.stderr}"
    yield world
    down = world.run("down")
    assert down.returncode == 0, f"{down.stdout}\n{down.stderr}"
    assert ports_in_use(PORT_BASE) == []


def _tails(world: World, topic: str, count: int) -> list[Tail]:
    return [Tail(world, topic, region=region, count=count) for region in ("oregon", "dublin")]


def _publish(world: World, topic: str, text: str) -> dict[str, str]:
    body = json.dumps({"headline": text})
    done = world.run("publish", topic, body, "--region", "proxy", "--json", "--timeout", "30")
    assert done.returncode == 0, done.stderr
    receipt: dict[str, str] = json.loads(done.stdout)
    return receipt


@pytest.mark.parametrize("topic", ["news.breaking", "news.world"])
def test_it_reaches_both_regions_once_and_a_receipt_comes_back(
    proxy_world: World, topic: str
) -> None:
    tails = _tails(proxy_world, topic, 2)
    texts = [f"{n} {uuid.uuid4()}" for n in range(2)]
    receipts = [_publish(proxy_world, topic, text) for text in texts]
    for tail in tails:
        assert [m["body"]["headline"] for m in tail.messages()] == texts
    assert {receipt["status"] for receipt in receipts} == {"routed"}


def test_a_stranger_publishes_there_as_anywhere(proxy_world: World) -> None:
    (broker,) = proxy_world.status()["proxy"]["brokers"]
    tails = _tails(proxy_world, "news.breaking", 1)
    body = json.dumps({"headline": str(uuid.uuid4())})
    script = str(ROOT / "examples" / "publish.py")
    done = subprocess.run(
        [sys.executable, script, broker["amqp_url"], "news.breaking", body],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    assert [tail.messages()[0]["body"] for tail in tails] == [json.loads(body)] * 2


@pytest.mark.parametrize("region", ["oregon", "dublin"])
def test_gold_reaches_both_regions_though_the_client_cluster_of_one_is_dead(
    proxy_world: World, region: str
) -> None:
    killed = proxy_world.run("chaos", "kill", f"{region}-client-1")
    assert killed.returncode == 0, killed.stderr
    try:
        tails = _tails(proxy_world, "news.breaking", 2)
        texts = [f"{n} {uuid.uuid4()}" for n in range(2)]
        for text in texts:
            _publish(proxy_world, "news.breaking", text)
        for tail in tails:
            assert [m["body"]["headline"] for m in tail.messages()] == texts
    finally:
        healed = proxy_world.run("chaos", "heal")
        assert healed.returncode == 0, healed.stderr


def test_the_status_shows_the_proxy_and_what_moves_there(proxy_world: World) -> None:
    proxy = proxy_world.status()["proxy"]
    assert [broker["running"] for broker in proxy["brokers"]] == [True]
    assert {shovel["name"] for shovel in proxy["shovels"]} == {
        "receipts.oregon.1",
        "receipts.dublin.1",
    }
    clients = {
        shovel["name"]
        for name in ("oregon", "dublin")
        for shovel in proxy_world.region(name)["shovels"]
        if shovel["runs_on"] == f"{name}/client"
    }
    assert "proxy.proxy.1" in clients
