"""The way of one message through a running world."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from worlds import World

pytestmark = [pytest.mark.world, pytest.mark.timeout(420)]


def _publish(world: World, topic: str, message_id: str) -> dict[str, Any]:
    body = '{"headline": "Traced"}'
    done = world.run("publish", topic, body, "--message-id", message_id, "--json")
    assert done.returncode == 0, done.stderr
    receipt: dict[str, Any] = json.loads(done.stdout)
    return receipt


def _traced(world: World, what: str, delivered: int) -> dict[str, Any]:
    """Return the trace, once ``delivered`` gateways have given the message to their readers."""
    deadline = time.monotonic() + 20
    while True:
        done = world.run("trace", what, "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        if sum(hop["step"] == "delivered" for hop in found["hops"]) == delivered:
            return found
        assert time.monotonic() < deadline, found["hops"]
        time.sleep(0.2)


def _port(world: World, region: str, number: int = 1) -> int:
    """Return the port of the region's router ``number``."""
    return int(world.region(region)["frontdesk_url"].rpartition(":")[2]) + number


def _arrivals(found: dict[str, Any], kind: str, region: str) -> list[dict[str, Any]]:
    return [
        hop
        for hop in found["hops"]
        if (hop["step"], hop["kind"], hop["region"]) == ("arrived", kind, region)
    ]


def _ways(found: dict[str, Any], kind: str, region: str) -> set[tuple[str, ...]]:
    """Return the shovels by which it came; on a busy machine ``publish`` may have sent it twice."""
    return {tuple(hop["way"]) for hop in _arrivals(found, kind, region)}


def _missed(found: dict[str, Any]) -> set[str]:
    """Return the processes that replied and lack it; other tests may have killed a router."""
    return {each["name"] for each in found["not_seen"] if each["why"] != "it doesn't answer"}


def test_a_gold_message_raced_through_both_regions_routers_to_every_gateway(world: World) -> None:
    receipt = _publish(world, "news.breaking", "traced-gold")
    found = _traced(world, receipt["id"], delivered=2)
    assert found["message_id"] == "traced-gold"
    assert found["hops"][0]["step"] == "published"
    for region in ("oregon", "dublin"):
        assert _ways(found, "router", region) == {("publish.oregon.1",)}
        other = "dublin" if region == "oregon" else "oregon"
        near, far = ("postoffice.1",), (f"outbound.{other}.1", "postoffice.1")
        assert _ways(found, "gateway", region) == {near, far}
        won = [copy["won"] for copy in _arrivals(found, "gateway", region)]
        assert won == [True, *[False] * (len(won) - 1)]
        rows = found["stored"][region]
        assert {row["origin"] for row in rows} == {"oregon", "dublin"}
    steps = {hop["step"] for hop in found["hops"] if hop["kind"] == "router"}
    assert steps == {"arrived", "stored", "routed"}
    assert _missed(found) == set()


def test_a_silver_message_went_one_way_and_is_found_by_its_message_id(world: World) -> None:
    _publish(world, "news.world", "traced-silver")
    found = _traced(world, "traced-silver", delivered=2)
    assert _arrivals(found, "router", "dublin") == []
    assert _ways(found, "gateway", "oregon") == {("postoffice.1",)}
    assert _ways(found, "gateway", "dublin") == {("outbound.oregon.1", "postoffice.1")}
    assert _missed(found) == {"dublin-router-1", "dublin-router-2"}
    shown = world.run("trace", found["identity"][:10])
    assert shown.returncode == 0, shown.stderr
    # On a narrow terminal lines are wrapped.
    words = " ".join(shown.stdout.split())
    assert "came by publish.oregon.1: first" in words
    assert "outbound.oregon.1, postoffice.1" in words
    # This router never saw the message; the store has it anyway.
    elsewhere = f"--from=http://127.0.0.1:{_port(world, 'dublin')}"
    assert world.run("trace", found["ids"][0], elsewhere).returncode == 1
    done = world.run("trace", found["ids"][0], elsewhere, "--topic", "news.world", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["stored"]["dublin"]
    assert (row["topic"], row["message_id"]) == ("news.world", "traced-silver")


def test_a_refused_message_says_why(world: World) -> None:
    world.run("publish", "nowhere.to.be.found", "{}", "--message-id", "traced-refused")
    shown = world.run("trace", "traced-refused")
    assert shown.returncode == 0, shown.stderr
    assert "topic_not_allowed" in shown.stdout


def test_an_id_that_nobody_knows_gets_a_helpful_answer(world: World) -> None:
    for unknown in ("00000000-0000-7000-8000-000000000000", "beefbeef", "no/such%id", "é"):
        shown = world.run("trace", unknown)
        assert shown.returncode == 1
        assert f"nobody knows {unknown!r}" in shown.stderr
        assert "oregon-router-1 remembers" in shown.stderr


def test_processes_can_be_asked_by_their_urls(world: World) -> None:
    receipt = _publish(world, "news.breaking", "traced-by-url")
    _traced(world, receipt["id"], delivered=2)
    urls = [f"http://127.0.0.1:{_port(world, 'oregon', n)}" for n in (1, 2)]
    done = world.run("trace", receipt["id"], "--json", *(f"--from={url}" for url in urls))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {hop["region"] for hop in found["hops"][1:]} == {"oregon"}
    assert set(found["stored"]) == {"oregon"}


def test_every_shovel_has_a_fresh_canary(world: World) -> None:
    for region in world.status()["regions"]:
        for shovel in region["shovels"]:
            assert shovel["canary_age_ms"] is not None, shovel
            assert shovel["canary_age_ms"] < 10_000, shovel
