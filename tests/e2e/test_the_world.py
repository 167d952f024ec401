"""Worlds that start, refuse to start, crash and end; and their parts that die."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import psutil
import pytest
from gateways import ENGINES
from tailing import Tail
from websockets.sync.client import connect
from worlds import PORTS, World, gateways_in, ports_in_use, require_rabbitmq

pytestmark = [pytest.mark.world, pytest.mark.timeout(420)]

SECOND_BASE = PORTS + 1900
needs_native = pytest.mark.skipif("native" not in ENGINES, reason="the native engine isn't built")


def _eventually(check: Callable[[], bool], what: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)


@pytest.fixture
def second(tmp_path: Path) -> Iterator[World]:
    """Yield another world, not started yet; at the end its processes are taken down."""
    require_rabbitmq()
    world = World(tmp_path / "second")
    yield world
    world.run("down")
    assert world.pids() == set()
    assert ports_in_use(SECOND_BASE, 200) == []


def test_status_lists_every_part_with_a_living_pid(world: World) -> None:
    for region in world.status()["regions"]:
        parts = region["brokers"] + region["services"] + region["gateways"]
        assert sorted(b["role"] for b in region["brokers"]) == ["client", "core", "retail"]
        assert all(psutil.pid_exists(part["pid"]) for part in parts)
        assert {part["pid"] for part in parts} <= world.pids()
        assert [gateway["engine"] for gateway in region["gateways"]] == [list(ENGINES)[-1]]
        routers = [s for s in region["services"] if "router" in s["name"]]
        assert len(routers) == 2


@needs_native
def test_a_gateway_is_two_processes(world: World) -> None:
    for region in world.status()["regions"]:
        (gateway,) = region["gateways"]
        assert gateway["dataplane_pid"] != gateway["pid"]
        assert gateway["dataplane_pid"] in world.pids()


def test_a_second_up_on_the_same_state_is_refused_in_one_line(world: World) -> None:
    up = world.run("up", "--detach", "--port-base", str(SECOND_BASE))
    assert up.returncode == 1
    assert len(up.stderr.strip().splitlines()) == 1
    assert "already" in up.stderr


def test_its_status_is_printed(world: World) -> None:
    printed, now = json.loads(world.run("status", "--json").stdout), world.status()
    assert printed.keys() == now.keys()
    for there, here in zip(printed["regions"], now["regions"], strict=True):
        assert there.keys() == here.keys()
        for fixed in ("name", "brokers", "services"):
            assert there[fixed] == here[fixed]
    assert world.run("status").returncode == 0


def test_a_taken_port_is_named_in_one_line(second: World) -> None:
    with socket.create_server(("127.0.0.1", SECOND_BASE)):
        up = second.run("up", "--detach", "--port-base", str(SECOND_BASE))
    assert up.returncode == 1
    assert len(up.stderr.strip().splitlines()) == 1
    assert str(SECOND_BASE) in up.stderr
    assert second.pids() == set()


def test_a_missing_rabbitmq_is_named_in_one_line(
    second: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEWSFABRIC_RABBITMQ_HOME", str(tmp_path / "nothing"))
    up = second.run("up", "--detach", "--port-base", str(SECOND_BASE))
    assert up.returncode == 1
    assert len(up.stderr.strip().splitlines()) == 1
    assert "rabbitmq" in up.stderr.lower()


def test_a_killed_up_leaves_nothing_running(second: World) -> None:
    up = second.start("up", "--regions", "oregon", "--port-base", str(SECOND_BASE))
    # The worst moment: brokers are starting, and nothing is ready.
    _eventually(lambda: len(second.pids()) > 3, "brokers are being started", 60)
    up.kill()
    up.communicate()
    _eventually(lambda: second.pids() == set(), "the watchdog has ended everything", 60)
    assert ports_in_use(SECOND_BASE, 200) == []
    assert [entry.name for entry in second.state.iterdir()] == ["logs"]


def test_down_finds_what_is_left_when_the_watchdog_was_killed_too(second: World) -> None:
    up = second.start("up", "--regions", "oregon", "--port-base", str(SECOND_BASE))
    _eventually(lambda: len(second.pids()) > 3, "brokers are being started", 60)
    (watchdog,) = [pid for pid in second.pids() if _name(pid) == "sh"]
    os.kill(watchdog, signal.SIGKILL)
    up.kill()
    up.communicate()
    assert second.pids() != set()
    down = second.run("down")
    assert down.returncode == 0, down.stderr
    assert second.pids() == set()
    assert ports_in_use(SECOND_BASE, 200) == []


def test_a_world_of_the_tornado_engine_runs_in_the_foreground_until_ctrl_c(
    second: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEWSFABRIC_GATEWAY_ENGINE", "tornado")
    where = ("--port-base", str(SECOND_BASE), "--timeout", "240")
    up = second.start("up", "--regions", "oregon", *where)
    assert up.stdout is not None
    lines = iter(up.stdout.readline, "")
    assert any("http://" in line for line in lines), "the page's address is never printed"
    (gateway,) = second.region("oregon")["gateways"]
    assert (gateway["engine"], gateway["dataplane_pid"]) == ("tornado", None)
    for transport in ("websocket", "xhr-streaming"):
        tail = Tail(second, "news.world", region="oregon", options=("--transport", transport))
        assert second.run("publish", "news.world", f'"{transport}"').returncode == 0
        assert [message["body"] for message in tail.messages()] == [transport]
    up.send_signal(signal.SIGINT)
    up.communicate(timeout=60)
    assert up.returncode == 0
    assert second.pids() == set()
    assert ports_in_use(SECOND_BASE, 200) == []
    assert not second.state.exists()


def test_a_killed_router_leaves_its_messages_to_the_other(world: World) -> None:
    router = next(s for s in world.region("oregon")["services"] if s["name"].endswith("router-2"))
    tail = Tail(world, "news.killed", region="oregon", count=300)
    day = world.state.parent / "killed.jsonl"
    day.write_text(
        "".join(
            json.dumps({"at": n / 300, "topic": "news.killed", "message_id": f"k{n}", "body": n})
            + "\n"
            for n in range(300)
        )
    )
    replay = world.start("replay", str(day), "--speed", "0.5", "--region", "oregon")
    tail.first()
    os.kill(router["pid"], signal.SIGKILL)
    _, output = replay.communicate(timeout=120)
    assert replay.returncode == 0, output
    assert {m["body"] for m in tail.messages()} == set(range(300))
    world.mend()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yield a region with two client nodes, three core nodes and two boxes. Tests take it apart."""
    require_rabbitmq()
    world = World(tmp_path_factory.mktemp("cluster") / "world")
    up = world.run(
        *("up", "--detach", "--regions", "oregon", "--retail", "2"),
        *("--client-nodes", "2", "--core-nodes", "3"),
        *("--port-base", str(SECOND_BASE), "--timeout", "240"),
        timeout=300,
    )
    assert up.returncode == 0, f"{up.stdout}\n{up.stderr}"
    yield world
    world.run("down")
    assert world.pids() == set()


@pytest.mark.promise("C3")
@pytest.mark.slow
def test_gold_without_a_receipt_that_two_client_brokers_took_survives_one(
    cluster: World, caplog: pytest.LogCaptureFixture
) -> None:
    # The kernel's first event decides whether pika logs that its broker was killed.
    caplog.set_level(logging.CRITICAL + 1, logger="pika")
    clients = [b for b in cluster.region("oregon")["brokers"] if b["role"] == "client"]
    lives, dies = clients
    numbers = range(200)
    tail = Tail(cluster, "news.breaking", region="oregon", count=len(numbers))
    with _confirming(lives) as living, _confirming(dies) as dying:
        for n in numbers:
            if n == 100:
                os.kill(dies["pid"], signal.SIGKILL)
            _publish_number(living, n)
            with contextlib.suppress(pika.exceptions.AMQPError):
                _publish_number(dying, n)
    assert {message["body"] for message in tail.messages()} == set(numbers)
    cluster.mend()


@contextlib.contextmanager
def _confirming(broker: Mapping[str, Any]) -> Iterator[Any]:
    """Yield a channel whose publish returns when the message is confirmed."""
    connection = pika.BlockingConnection(pika.URLParameters(broker["amqp_url"]))
    channel = connection.channel()
    channel.confirm_delivery()
    try:
        yield channel
    finally:
        with contextlib.suppress(pika.exceptions.AMQPError):
            connection.close()


def _publish_number(channel: Any, n: int) -> None:
    properties = pika.BasicProperties(content_type="application/json", message_id=str(n))
    channel.basic_publish("publish", "news.breaking", b"%d" % n, properties)


@pytest.mark.slow
def test_a_box_is_fed_from_two_core_nodes_and_survives_one(cluster: World) -> None:
    region = cluster.region("oregon")
    assert len([b for b in region["brokers"] if b["role"] == "core"]) == 3
    feeds = [s["name"] for s in region["shovels"] if s["name"].startswith("postoffice.")]
    assert len(feeds) == 4
    tail = Tail(cluster, "news.breaking", region="oregon", count=2)
    assert cluster.run("publish", "news.breaking", '{"headline": "before"}').returncode == 0
    victim = next(b for b in region["brokers"] if b["name"] == "oregon-core-2")
    os.kill(victim["pid"], signal.SIGKILL)
    published = cluster.run("publish", "news.breaking", '{"headline": "after"}')
    assert published.returncode == 0, published.stderr
    assert [m["body"]["headline"] for m in tail.messages()] == ["before", "after"]


@pytest.mark.slow
def test_a_box_that_is_ordered_to_stop_drains_and_leaves_nothing_on_the_core(
    cluster: World,
) -> None:
    region = cluster.region("oregon")
    endpoints = region["endpoints_url"]
    agent = next(s for s in region["services"] if s["name"] == "oregon-retail-1-agent")
    gateway = region["gateways"][0]
    os.kill(agent["pid"], signal.SIGTERM)
    _eventually(lambda: not _alive(agent["pid"]), "the agent ends")
    _eventually(lambda: not _alive(gateway["pid"]), "the gateway has drained and ends")
    _eventually(lambda: len(gateways_in(endpoints)) == 1, "the box leaves endpoints.json")
    status = cluster.run("shovels", "status", "--json").stdout
    assert "box.oregon-retail-1" not in status


@needs_native
@pytest.mark.slow
def test_down_ends_a_data_plane_whose_gateway_was_killed(cluster: World) -> None:
    gateway = cluster.region("oregon")["gateways"][1]
    with connect(gateway["websocket_url"]) as reader:
        os.kill(gateway["pid"], signal.SIGKILL)
        _eventually(lambda: not _alive(gateway["pid"]), "the control plane is dead")
        orphan = cluster.region("oregon")["gateways"][1]
        assert (orphan["pid"], orphan["running"]) == (None, False)
        assert (orphan["engine"], orphan["dataplane_pid"]) == ("native", gateway["dataplane_pid"])
        assert cluster.run("down").returncode == 0
        assert json.loads(reader.recv(timeout=20))["type"] == "disconnect"
    assert cluster.pids() == set()
    assert ports_in_use(SECOND_BASE, 200) == []
    assert not cluster.state.exists()


def _alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def _name(pid: int) -> str:
    """Return the name of a process, or "": some processes of a starting world soon end."""
    try:
        return str(psutil.Process(pid).name())
    except psutil.NoSuchProcess:
        return ""
