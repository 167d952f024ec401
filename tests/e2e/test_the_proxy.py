"""A message published far from all regions reaches the readers of all regions, once."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid

import pytest
from tailing import Tail
from worlds import ROOT, World

pytestmark = [pytest.mark.slow, pytest.mark.world, pytest.mark.timeout(420)]


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
    far_world: World, topic: str
) -> None:
    tails = _tails(far_world, topic, 2)
    texts = [f"{n} {uuid.uuid4()}" for n in range(2)]
    receipts = [_publish(far_world, topic, text) for text in texts]
    for tail in tails:
        assert [m["body"]["headline"] for m in tail.messages()] == texts
    assert {receipt["status"] for receipt in receipts} == {"routed"}


def test_a_stranger_publishes_there_as_anywhere(far_world: World) -> None:
    (broker,) = far_world.status()["proxy"]["brokers"]
    tails = _tails(far_world, "news.breaking", 1)
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
    far_world: World, region: str
) -> None:
    killed = far_world.run("chaos", "kill", f"{region}-client-1")
    assert killed.returncode == 0, killed.stderr
    try:
        tails = _tails(far_world, "news.breaking", 2)
        texts = [f"{n} {uuid.uuid4()}" for n in range(2)]
        for text in texts:
            _publish(far_world, "news.breaking", text)
        for tail in tails:
            assert [m["body"]["headline"] for m in tail.messages()] == texts
    finally:
        far_world.mend()


def test_the_status_shows_the_proxy_and_what_moves_there(far_world: World) -> None:
    proxy = far_world.status()["proxy"]
    assert [broker["running"] for broker in proxy["brokers"]] == [True]
    assert {shovel["name"] for shovel in proxy["shovels"]} == {
        "receipts.oregon.1",
        "receipts.dublin.1",
    }
    clients = {
        shovel["name"]
        for name in ("oregon", "dublin")
        for shovel in far_world.region(name)["shovels"]
        if shovel["runs_on"] == f"{name}/client"
    }
    assert "proxy.proxy.1" in clients
