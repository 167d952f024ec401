"""Attacks with a stolen login of a retail box on its region's core.

The core is a real broker, with the generated definitions.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from clusters import client_cluster
from core_cluster import EPOCH, until
from dataplanes import gateway_settings
from fabrics import fabric
from guarded import TOPICS, Attempt, Guarded, opened, publishes
from house import SETTINGS, open_house
from loads import load
from metric_values import value
from tornado.netutil import DefaultLoopResolver

from gateway.native.program import Child, find_program, start
from gateway.process.settings import GatewaySettings
from newsfabric.amqp import Message
from newsfabric.amqp.link import connect
from newsfabric.errors import SetupError
from newsfabric.http.networks import Places
from newsfabric.messages.control import encode_load, load_key
from newsfabric.messages.mailbox import MARK_KEY
from newsfabric.messages.reports import Report, encode_report, report_key
from newsfabric.settings import Credentials
from newsfabric.store.memory import MemoryStore
from newsfabric.topology import box_queue
from wholesale.common.outgoing import PendingPublish, confirmed, send
from wholesale.frontdesk.api import counters
from wholesale.frontdesk.api.access import ApiKey
from wholesale.frontdesk.service import FrontdeskService, FrontdeskSettings
from wholesale.router.counters import PUBLISH_RETRIES, REFUSED

pytestmark = [pytest.mark.broker, pytest.mark.promise("F4")]

ME, OTHER = "box.edge-1", "box.edge-2"
MINE, OTHERS = box_queue("edge-1", 1), box_queue("edge-2", 1)
LOAD = load(
    box="edge-2",
    capacity=100_000,
    sockjs_url="http://evil.example/sockjs",
    websocket_url="ws://evil.example/websocket",
    sse_url="http://evil.example/events",
)


@pytest.mark.parametrize(
    "exchange", ["intake", "postoffice", "outbound", "rejected", "receipts", "", "amq.topic"]
)
def test_a_box_speaks_as_the_fabric(core: Guarded, exchange: str) -> None:
    core.refuses(ME, publishes(exchange, "news.breaking"), publishes(exchange, OTHERS))


@pytest.mark.parametrize("queue", [OTHERS, "router.1", "router.2", "mailbox", "rejected"])
def test_a_box_reads_empties_and_deletes_what_isnt_its_own(core: Guarded, queue: str) -> None:
    core.refuses(
        ME,
        lambda channel: channel.basic_get(queue),
        lambda channel: channel.basic_consume(queue, lambda *_: None),
        lambda channel: channel.queue_purge(queue),
        lambda channel: channel.queue_delete(queue),
        lambda channel: channel.queue_declare(queue, durable=True),
        lambda channel: channel.queue_bind(queue, "postoffice", "#"),
        lambda channel: channel.queue_unbind(queue, "postoffice", "#"),
    )


@pytest.mark.parametrize(
    ("exchange", "key"),
    [
        ("intake", "#"),
        ("outbound", "#"),
        ("receipts", "#"),
        ("rejected", "#"),
        ("orders", "#"),
        # Only keepers bind the box's feed.
        ("postoffice", "#"),
        ("upstream", load_key("oregon", "edge-1")),
        # Reports of other boxes, and marks of readers elsewhere.
        ("upstream", "#"),
        ("upstream", MARK_KEY),
        ("upstream", load_key("oregon", "edge-2")),
        ("upstream", load_key("oregon", "*")),
        ("upstream", report_key("oregon", "edge-1")),
        ("upstream", report_key("oregon", "*")),
    ],
)
def test_a_box_hears_what_isnt_for_it(core: Guarded, exchange: str, key: str) -> None:
    core.refuses(ME, lambda channel: channel.queue_bind(MINE, exchange, key))


def test_a_box_changes_the_topology(core: Guarded) -> None:
    attempts: list[Attempt] = [
        lambda channel: channel.exchange_declare("upstream", "topic", durable=True),
        lambda channel: channel.exchange_declare("mine", "topic"),
        lambda channel: channel.exchange_delete("upstream"),
        lambda channel: channel.exchange_bind("intake", "upstream", "#"),
        lambda channel: channel.queue_declare(""),
        lambda channel: channel.queue_declare("box.edge-10.1"),
        lambda channel: channel.queue_declare("box.edge-1"),
        lambda channel: channel.queue_declare("box.edge-1.3"),
        lambda channel: channel.queue_declare("box.edge-1.loads"),
        # Dead letters are published without a check of the user's rights.
        lambda channel: channel.queue_declare(
            box_queue("edge-1", 2), arguments={"x-dead-letter-exchange": "intake"}
        ),
        lambda channel: channel.queue_declare(
            box_queue("edge-1", 2), arguments={"x-dead-letter-exchange": ""}
        ),
    ]
    core.refuses(ME, *attempts)


async def test_what_a_queue_refuses_keeps_no_router_from_publishing(core: Guarded) -> None:
    """RabbitMQ doesn't confirm a message that a bound queue rejects. A box can't bind one."""
    nothing = {"x-overflow": "reject-publish", "x-max-length": 0}
    core.takes(
        "root",
        lambda channel: channel.queue_declare("refusing", durable=True, arguments=nothing),
        lambda channel: channel.queue_bind("refusing", "postoffice", "#"),
    )
    router = Credentials("router.oregon", "pass-word")
    link = await connect([core.node.amqp_url], name="router", credentials=router)
    try:
        publisher = await link.publisher()
        sent = [PendingPublish("postoffice", Message("news.breaking", b"{}")) for _ in range(10)]
        for pending in sent:
            await send(publisher, pending)
        before = value(REFUSED)
        async with asyncio.timeout(30):
            await confirmed(publisher, sent, PUBLISH_RETRIES, refused=REFUSED)
        assert value(REFUSED) == before + 10
    finally:
        await link.close()
        core.takes("root", lambda channel: channel.queue_delete("refusing"))


def test_a_box_asks_the_cores_management_api(core: Guarded) -> None:
    for path in ("/overview", "/users", "/queues", "/parameters", "/definitions", "/whoami"):
        assert core.api(ME, path) == 401
    assert core.api(ME, "/parameters/shovel/%2F/mine", "PUT", {"value": {}}) == 401
    assert core.api(ME, "/definitions", "POST", {}) == 401
    assert core.api(ME, f"/queues/%2F/{OTHERS}", "DELETE") == 401


def test_a_box_reports_in_anothers_name(core: Guarded) -> None:
    forged = encode_load(LOAD).body
    core.refuses(
        ME,
        publishes("upstream", load_key("oregon", "edge-2"), forged),
        publishes("upstream", load_key("dublin", "edge-1"), forged),
        publishes("upstream", "_fabric.canary.oregon"),
        publishes("upstream", "anything"),
        # Reports for operators.
        publishes("upstream", report_key("oregon", "edge-2")),
        publishes("upstream", report_key("oregon", "oregon-router-1")),
        publishes("upstream", report_key("dublin", "edge-1")),
    )
    with core.connect(ME) as connection:
        channel = opened(connection)
        with pytest.raises(Exception, match="user_id"):
            publishes("upstream", load_key("oregon", "edge-1"), forged, user_id=OTHER)(channel)


@pytest.mark.parametrize("url", ["sockjs_url", "websocket_url", "sse_url"])
async def test_a_box_sends_readers_and_frontdesks_to_anothers_host(url: str) -> None:
    settings = dataclasses.replace(SETTINGS, gateways_at=Places([".example"]))
    async with open_house(TOPICS, settings) as house:
        house.report()
        house.report(box="oregon-retail-2", **{url: "http://169.254.169.254/latest"})
        await until(lambda: value(counters.REPORT_MISPLACED) > 0)
        offered = json.loads((await house.fetch("/endpoints.json")).body)["gateways"]
        assert [one["sse_url"] for one in offered] == ["http://r1.example/events"]
        before = value(counters.REPORT_BAD)
        house.report(capacity=10_000_000)
        await until(lambda: value(counters.REPORT_BAD) == before + 1)


@pytest.mark.parametrize(
    "urls",
    [
        {"sockjs_url": "javascript:alert(1)//.example"},
        {"sse_url": "data:text/html,x"},
        {"websocket_url": "http://r1.example/websocket"},
        {"sse_url": "http://169.254.169.254/latest"},
        {"sse_url": "http://[fd00:ec2::254]/latest"},
        {"sockjs_url": "http://127.0.0.1:9000/"},
    ],
    ids=lambda urls: next(iter(urls.values())),
)
async def test_a_box_names_other_schemes_and_this_machine(urls: dict[str, str]) -> None:
    """Without a list of allowed hosts: a frontdesk that serves other machines, too."""
    keys = (ApiKey("0123456789abcdef"),)
    settings = dataclasses.replace(SETTINGS, host="0.0.0.0", api_keys=keys)
    async with open_house(TOPICS, settings) as house:
        before = value(counters.REPORT_MISPLACED)
        house.report()
        house.report(box="oregon-retail-2", **urls)
        await until(lambda: value(counters.REPORT_MISPLACED) == before + 1)
        offered = json.loads((await house.fetch("/endpoints.json")).body)["gateways"]
        assert [one["sse_url"] for one in offered] == ["http://r1.example/events"]


async def test_a_box_has_a_frontdesk_ask_this_machine_by_a_name_that_leads_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``sse_url`` may name any host: the frontdesk checks the address that the name resolves to."""
    look_up = DefaultLoopResolver.resolve

    async def leads_here(self: DefaultLoopResolver, host: str, *rest: Any) -> Any:
        return await look_up(self, "127.0.0.1" if host == "r1.example" else host, *rest)

    monkeypatch.setattr(DefaultLoopResolver, "resolve", leads_here)
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readline()).decode())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    keys = (ApiKey("0123456789abcdef"),)
    settings = dataclasses.replace(SETTINGS, host="0.0.0.0", api_keys=keys)
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, open_house(TOPICS, settings) as house:
        port = server.sockets[0].getsockname()[1]
        house.report(sse_url=f"http://r1.example:{port}/events")
        await until(lambda: house.service.boxes.count(now=time.monotonic()) == 1)
        answered = await house.fetch("/history?topic=news.breaking&after=")
        assert (answered.code, asked) == (503, [])


async def test_a_box_shows_the_operators_other_processes_than_itself(core: Guarded) -> None:
    """Under the box's own key, which is all that a broker checks."""
    before = value(counters.SEEN_FORGED)
    async with _frontdesk(core) as service:
        async with asyncio.timeout(30):
            while value(counters.SEEN_FORGED) < before + 2 or not _shown(service):
                await asyncio.to_thread(_pretend, core)
                await asyncio.sleep(0.1)
        assert _shown(service) == {"edge-1"}


def _shown(service: FrontdeskService) -> set[str]:
    """Return the processes on the board, without the frontdesk itself."""
    region = service._board.picture.region(time.monotonic(), time.time_ns() // 1_000_000)
    found = {one["name"] for one in (*region["boxes"], *region["services"])}
    return found - {service.settings.name}


def _pretend(core: Guarded) -> None:
    own = report_key("oregon", "edge-1")
    me = Report(
        region="oregon",
        name="edge-1",
        kind="box",
        version="1",
        started_ms=1,
        sent_ms=time.time_ns() // 1_000_000,
        state="ready",
    )
    others = (
        dataclasses.replace(me, name="edge-2"),
        dataclasses.replace(me, name="oregon-router-1", kind="router"),
    )
    with core.connect(ME) as connection:
        channel = opened(connection)
        for report in (*others, me):
            publishes("upstream", own, encode_report(report).body, type="report", user_id=ME)(
                channel
            )


async def test_a_box_reports_under_its_own_key_about_another(core: Guarded) -> None:
    before = value(counters.REPORT_FORGED)
    async with _frontdesk(core) as service:
        # Repeatedly: the frontdesk's queue may not exist yet.
        async with asyncio.timeout(30):
            while value(counters.REPORT_FORGED) < before + 2:
                await asyncio.to_thread(_forge, core)
                await asyncio.sleep(0.1)
        assert service.boxes.count(now=0.0) == 0


@contextlib.asynccontextmanager
async def _frontdesk(core: Guarded) -> AsyncIterator[FrontdeskService]:
    login = Credentials("frontdesk.oregon", "pass-word")
    link = await connect([core.node.amqp_url], name="frontdesk", credentials=login)
    service = FrontdeskService(
        FrontdeskSettings(name="desk-1", region="oregon", login="frontdesk.oregon"),
        fabric=fabric(),
        topics=TOPICS,
        core=link,
        client=[client_cluster().connect()],
        store=MemoryStore(TOPICS, now_ms=lambda: EPOCH),
    )
    stop = asyncio.Event()
    serving = asyncio.create_task(service.serve(stop))
    await service.listening.wait()
    try:
        yield service
    finally:
        stop.set()
        await serving
        await link.close()


def _forge(core: Guarded) -> None:
    own = load_key("oregon", "edge-1")
    report = encode_load(dataclasses.replace(LOAD, box="edge-2")).body
    with core.connect(ME) as connection:
        channel = opened(connection)
        for user in (ME, None):
            publishes("upstream", own, report, type="load", user_id=user)(channel)


def test_a_box_fills_the_core_with_what_it_doesnt_read(core: Guarded) -> None:
    queue = box_queue("edge-1", 2)
    with core.connect(ME) as box, core.connect("root") as root:
        channel = opened(box)
        channel.queue_declare(queue, durable=True, arguments={"x-max-length": 10_000_000})
        with core.connect("keeper.oregon") as keeper:
            opened(keeper).queue_bind(queue, "postoffice", "news.hoard")
        fabrics = opened(root)
        large = b"x" * 65_536
        # 131 MiB; the bound of the queue is 128 MiB.
        for _ in range(2100):
            fabrics.basic_publish("postoffice", "news.hoard", large)
        assert channel.queue_declare(queue, passive=True).method.message_count == 2048
        channel.queue_delete(queue)


def test_a_box_opens_as_many_connections_as_it_likes(core: Guarded) -> None:
    limits = {user["name"]: user["limits"] for user in _users(core)}
    assert limits[ME] == {"max-connections": 50, "max-channels": 150}


def _users(core: Guarded) -> list[dict[str, dict[str, int]]]:
    listed = core.node.ctl("list_user_limits", "--global", "--formatter", "json")
    return [
        {"name": entry["user"], "limits": json.loads(entry["limits"])}
        for entry in json.loads(listed)
    ]


def test_what_a_box_is_for_it_may_do(core: Guarded) -> None:
    own = load_key("oregon", "edge-1")

    def feed(channel: object) -> None:
        with core.connect("router.oregon") as router:
            publishes("postoffice", "news.x", b"[1]")(opened(router))

    core.takes(
        ME,
        lambda channel: channel.queue_purge(MINE),
        feed,
        lambda channel: _one(channel, MINE, b"[1]"),
        publishes("upstream", own, user_id=ME),
        publishes("upstream", MARK_KEY, user_id=ME),
        lambda channel: channel.queue_declare(box_queue("edge-1", 2), durable=True),
        lambda channel: channel.queue_delete(box_queue("edge-1", 2)),
    )


def _one(channel: object, queue: str, body: bytes) -> None:
    _, _, found = next(channel.consume(queue, auto_ack=True, inactivity_timeout=60))  # type: ignore[attr-defined]
    assert found == body


def test_a_reader_of_the_data_planes_memory_finds_the_boxs_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data plane talks to strangers and needs no login: it gets none."""
    try:
        program = find_program()
    except SetupError as exc:
        if os.environ.get("CI"):
            pytest.fail(str(exc))
        pytest.skip(str(exc))
    monkeypatch.setenv("NEWSFABRIC_AMQP_PASSWORD", "s3cret-word")
    monkeypatch.setenv("SOMEBODYS_TOKEN", "s3cret-word")
    # A short path, since it names a socket.
    with tempfile.TemporaryDirectory() as folder:
        process = start(program, Path(folder) / "control", gateway_settings(), 0)
        try:
            environment_file = Path(f"/proc/{process.pid}/environ")
            while not (seen := environment_file.read_bytes()):
                assert process.poll() is None
                time.sleep(0.01)
            assert b"NEWSFABRIC_TESTS=" in seen
            assert b"s3cret-word" not in seen
        finally:
            os.kill(process.pid, signal.SIGKILL)
            os.waitpid(process.pid, 0)


async def test_its_successors_is_as_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEWSFABRIC_AMQP_PASSWORD", "s3cret-word")
    program = tmp_path / "dataplane"
    program.write_text(f"#!/bin/sh\nenv > {tmp_path}/seen\necho serving\n", "utf-8")
    program.chmod(0o700)
    child = Child(GatewaySettings(name="b", region="r"), program, tmp_path / "b" / "control")
    await child.take_over()
    await child.end()
    seen = (tmp_path / "seen").read_text("utf-8")
    assert "PATH=" in seen
    assert "s3cret-word" not in seen
