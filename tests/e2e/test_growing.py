"""Boxes that are added to a running world, drained, and ended."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from urllib.request import urlopen

import psutil
import pytest
from websockets.sync.client import connect
from worlds import World, gateways_in, ports_in_use

pytestmark = [pytest.mark.slow, pytest.mark.world, pytest.mark.timeout(420)]

REGION = "dublin"


def _eventually(check: Callable[[], bool], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def _boxes(world: World) -> list[str]:
    return [gateway["box"] for gateway in world.region(REGION)["gateways"]]


def _offered(world: World) -> list[str]:
    return [g["websocket_url"] for g in gateways_in(world.region(REGION)["endpoints_url"])]


def _ports(url: str) -> list[int]:
    """Return all ports of the box whose readers' port is in ``url``."""
    port = int(url.split(":")[2].partition("/")[0])
    return list(range(port - 3, port + 3))


def _on_the_core(world: World, what: str) -> list[str]:
    broker = next(b for b in world.region(REGION)["brokers"] if b["role"] == "core")
    url = broker["management_url"].replace("http://", "http://guest:guest@")
    return _names(f"{url}/api/{what}")


def _names(url: str) -> list[str]:
    import base64
    from urllib.request import Request

    scheme, _, rest = url.partition("://")
    login, _, place = rest.rpartition("@")
    request = Request(f"{scheme}://{place}")
    request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
    with urlopen(request, timeout=5) as answer:
        return [entry["name"] for entry in json.load(answer)]


def test_a_box_that_is_added_later_is_as_good_as_the_first_and_leaves_nothing(
    world: World,
) -> None:
    before = _boxes(world)
    _eventually(lambda: len(_offered(world)) == 1, "the first box is offered")
    (first,) = _offered(world)
    # Two commands at once ask for the same number, and one box is added.
    scaling = [world.start("scale", REGION, "2") for _ in range(2)]
    output = [process.communicate(timeout=240) for process in scaling]
    assert [process.returncode for process in scaling] == [0, 0], output
    (added,) = set(_boxes(world)) - set(before)
    _eventually(lambda: len(_offered(world)) == 2, "both boxes are offered")
    (url,) = set(_offered(world)) - {first}
    assert f"box.{added}" in _on_the_core(world, "users")

    with connect(url) as reader:
        reader.send(json.dumps({"action": "subscribe", "topic": "news.growing"}))
        assert json.loads(reader.recv(timeout=30))["type"] == "subscribed"
        sent = world.run("publish", "news.growing", '{"n": 1}', "--region", "oregon")
        assert sent.returncode == 0, sent.stderr
        push = json.loads(reader.recv(timeout=30))
        assert (push["type"], push["body"]) == ("message", {"n": 1})

        # The box is broken and healed like any other.
        killed = world.run("chaos", "kill", f"{added}-agent", "--json")
        assert [done["done"] for done in json.loads(killed.stdout)] == ["killed"]
        world.mend()

        drained = world.start("drain", added, "--json")
        push = json.loads(reader.recv(timeout=60))
        assert (push["type"], push["code"]) == ("disconnect", 1012)
    out, err = drained.communicate(timeout=200)
    assert json.loads(out) == {"ended": [added]}, err

    assert _boxes(world) == before
    _eventually(lambda: _offered(world) == [first], "only the first box is offered")
    assert f"box.{added}" not in _on_the_core(world, "users")
    assert not [name for name in _on_the_core(world, "queues") if added in name]
    assert not (world.state / "brokers" / added).exists()
    assert not (world.state / "users" / f"box.{added}").exists()
    assert [port for port in _ports(url) if port in ports_in_use(port, 1)] == []
    words = [" ".join(psutil.Process(pid).cmdline()) for pid in world.pids()]
    assert not [line for line in words if added in line]


def test_the_next_box_has_another_name(world: World) -> None:
    notes = json.loads((world.state / "world.json").read_text())
    done = world.run("scale", REGION, "2", timeout=240)
    assert done.returncode == 0, done.stderr
    (added,) = set(_boxes(world)) - {f"{REGION}-retail-1"}
    assert added == f"{REGION}-retail-{notes['newest'].get(REGION, 1) % 9 + 1}"
    done = world.run("scale", REGION, "1", timeout=240)
    assert f"{added}: drained and ended" in done.stdout, done.stderr
    assert _boxes(world) == [f"{REGION}-retail-1"]


def test_a_box_that_is_not_there_cannot_be_drained(world: World) -> None:
    done = world.run("drain", "dublin-retail-7")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no box 'dublin-retail-7' in this world" in done.stderr
