"""The shovels' plan and the brokers of a running world."""

from __future__ import annotations

import base64
import json
from urllib.request import Request, urlopen

import pytest
from worlds import World

pytestmark = [pytest.mark.world, pytest.mark.timeout(420)]


def _api(url: str, method: str, path: str, value: object = None) -> None:
    body = None if value is None else json.dumps(value).encode()
    request = Request(url + path, body, {"Content-Type": "application/json"}, method=method)
    request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
    with urlopen(request, timeout=60) as response:
        assert response.status < 300


def test_a_running_world_is_as_planned(world: World) -> None:
    plan = world.run("shovels", "plan")
    assert plan.returncode == 0, plan.stderr
    assert "no changes" in plan.stdout.lower()


def test_apply_is_idempotent(world: World) -> None:
    for _ in range(2):
        applied = world.run("shovels", "apply")
        assert applied.returncode == 0, applied.stderr
        assert "no changes" in applied.stdout.lower()


def test_every_shovel_of_the_fabric_runs(world: World) -> None:
    status = world.run("shovels", "status", "--json")
    assert status.returncode == 0, status.stderr
    states = {
        shovel["name"]: shovel["state"]
        for region in world.status()["regions"]
        for shovel in region["shovels"]
    }
    assert set(states.values()) == {"running"}
    # Per region: publish from both, outbound from the other, receipts; per box: feed, upstream.
    assert len([s for r in world.status()["regions"] for s in r["shovels"]]) == 2 * 6


def test_a_shovel_that_nobody_wants_is_removed(world: World) -> None:
    core = next(b for b in world.region("oregon")["brokers"] if b["role"] == "core")
    value = {
        "src-protocol": "amqp091",
        "src-uri": "amqp://",
        # No message is published there: a shovel from a queue to itself would never end.
        "src-exchange": "amq.fanout",
        "dest-protocol": "amqp091",
        "dest-uri": "amqp://",
        "dest-exchange": "rejected",
    }
    # A name in the fabric's pattern, for a region that doesn't exist.
    _api(
        core["management_url"],
        "PUT",
        "/api/parameters/shovel/%2F/publish.atlantis.1",
        {"value": value},
    )
    applied = world.run("shovels", "apply", "--region", "oregon")
    assert applied.returncode == 0, applied.stderr
    assert "no changes" in world.run("shovels", "plan").stdout.lower()
