"""The management API's client: against a real broker, and against one that answers nonsense."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable

import pika
import pytest
import tornado.httpserver
import tornado.netutil
import tornado.web

from localfabric.nodes.rabbitmq import LocalNode
from newsfabric.brokers.management import MAX_ANSWER_BYTES, Management
from newsfabric.errors import ManagementError
from newsfabric.settings import Credentials, Node
from newsfabric.topology import Binding, Exchange

GUEST = Credentials()


@pytest.fixture
async def api(rabbitmq: Node) -> AsyncIterator[Management]:
    async with Management(rabbitmq.management_url, GUEST) as opened:
        yield opened


@pytest.mark.broker
async def test_a_node_says_that_it_runs_and_takes_messages(api: Management) -> None:
    assert (await api.overview())["rabbitmq_version"]
    assert await api.alarm() == ""


@pytest.mark.broker
async def test_a_broker_says_how_many_queues_it_has(api: Management) -> None:
    assert await api.queue_total() >= 0


@pytest.mark.broker
async def test_names_with_every_awkward_character_come_back_as_they_were(
    api: Management, rabbitmq: Node
) -> None:
    exchange, queue = Exchange("t/ex #%2F é", "direct"), "t.q/ue %ü?&"
    await api.put_exchange(exchange)
    # From 4.0 on a broker lists the type of each queue among its arguments.
    arguments = {"x-max-length": 7, "x-queue-type": "classic"}
    await api.put_queue(queue, arguments)
    try:
        assert (await api.exchanges())[exchange.name] == "direct"
        assert (await api.queues())[queue].arguments == arguments
        for key in ("#", "a.*", "", "a b+c/d~é%23"):
            binding = Binding(exchange.name, queue, key)
            await api.put_binding(binding)
            assert binding in await api.bindings()
            await api.delete_binding(binding)
            assert binding not in await api.bindings()
    finally:
        await api.delete_queue(queue)
        with pika.BlockingConnection(pika.URLParameters(rabbitmq.amqp_url)) as connection:
            connection.channel().exchange_delete(exchange.name)
    assert queue not in await api.queues()


@pytest.mark.broker
async def test_queues_of_one_kind_are_listed_page_by_page_whatever_else_there_is(
    api: Management, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("newsfabric.brokers.management._PAGE_QUEUES", 2)
    mine, others = [f"t.kind.{n}" for n in range(5)], ["t.kind-5", "xt.kind.6"]
    for name in (*mine, *others):
        await api.put_queue(name, {"x-max-length": 7, "x-queue-type": "classic"})
    try:
        found = await api.queues_beginning("t.kind.")
        assert sorted(found) == mine
        assert found[mine[4]] == (await api.queues())[mine[4]]
        assert await api.queues_beginning("t.nothing.") == {}
    finally:
        for name in (*mine, *others):
            await api.delete_queue(name)


@pytest.mark.broker
async def test_deleting_what_isnt_there_is_no_error(api: Management) -> None:
    await api.delete_queue("t.nothing")
    await api.delete_shovel("t.nothing")
    await api.delete_binding(Binding("amq.topic", "t.nothing"))


@pytest.mark.broker
async def test_a_no_carries_its_status_and_the_brokers_reason(api: Management) -> None:
    await api.put_queue("t.other", {"x-max-length": 7})
    try:
        with pytest.raises(ManagementError, match="inequivalent arg") as refused:
            await api.put_queue("t.other", {"x-max-length": 8})
        assert refused.value.status == 400
    finally:
        await api.delete_queue("t.other")
    with pytest.raises(ManagementError) as missing:
        await api.put_binding(Binding("amq.topic", "t.nothing"))
    assert missing.value.status == 404


@pytest.mark.broker
async def test_a_look_into_a_queue_leaves_the_messages_there(api: Management) -> None:
    await api.put_queue("t.peek", {})
    try:
        for payload, encoding in (("hello", "string"), ("/w==", "base64")):
            message = {"routing_key": "t.peek", "properties": {"type": "x"}}
            body = {"payload": payload, "payload_encoding": encoding} | message
            await api._send("POST", "/exchanges/%2F/amq.default/publish", body)
        for _ in range(2):
            seen = await api.peek("t.peek")
            assert [(m["payload"], m["payload_encoding"]) for m in seen] == [
                ("hello", "string"),
                ("/w==", "base64"),
            ]
        assert await api.peek("t.peek", 1) == seen[:1]
    finally:
        await api.delete_queue("t.peek")


@pytest.mark.broker
async def test_a_shovel_comes_back_as_it_was_put_and_says_its_state(api: Management) -> None:
    value = {
        "src-protocol": "amqp091",
        "src-uri": "amqp://",
        "src-queue": "t.source",
        "src-queue-args": {"x-expires": 60_000},
        "dest-protocol": "amqp091",
        "dest-uri": ["amqp://", "amqp://guest:guest@localhost:1/%2F"],
        "dest-exchange": "amq.topic",
    }
    await api.put_shovel("t.shovel", value)
    try:
        assert (await api.shovels())["t.shovel"] == value
        async with asyncio.timeout(60):
            while "t.shovel" not in await api.shovel_states():  # noqa: ASYNC110 - no events to wait for
                await asyncio.sleep(0.05)
    finally:
        await api.delete_shovel("t.shovel")
        await api.delete_queue("t.source")
    assert "t.shovel" not in await api.shovels()


@pytest.mark.broker
async def test_a_wrong_password_is_401_and_isnt_repeated(rabbitmq: Node) -> None:
    async with Management(rabbitmq.management_url, Credentials("guest", "hush-hush")) as api:
        with pytest.raises(ManagementError) as refused:
            await api.queues()
        assert refused.value.status == 401
        assert "hush-hush" not in str(refused.value)


@dataclasses.dataclass
class CannedAnswer:
    body: bytes = b""
    status: int = 200


class _Answers(tornado.web.RequestHandler):
    def initialize(self, answer: CannedAnswer) -> None:
        self._answer = answer

    async def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.set_status(self._answer.status)
        self.finish(self._answer.body)


@pytest.fixture
async def nonsense() -> AsyncIterator[tuple[Management, CannedAnswer]]:
    answer = CannedAnswer()
    server = tornado.httpserver.HTTPServer(
        tornado.web.Application(
            [("/.*", _Answers, {"answer": answer})], log_function=lambda _: None
        )
    )
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
    server.add_sockets(sockets)
    url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
    async with Management(url, GUEST, timeout=1.0) as api:
        yield api, answer
    server.stop()
    await server.close_all_connections()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"\xff\xfe",
        b"{}",
        b"17",
        b'["a"]',
        b'[{"nome": "q"}]',
        b'[{"name": 7}]',
        b"[" * 50_000 + b"]" * 50_000,
        b" " * (MAX_ANSWER_BYTES + 1),
    ],
    ids=range(10),
)
async def test_an_answer_that_makes_no_sense_is_a_management_error(
    nonsense: tuple[Management, CannedAnswer], body: bytes
) -> None:
    api, answer = nonsense
    answer.body = body
    for ask in (api.queues, api.bindings, api.shovels, api.shovel_states, api.exchanges):
        with pytest.raises(ManagementError):
            await ask()


@pytest.mark.parametrize(
    ("status", "resources", "alarm"),
    [
        (200, [], ""),
        (503, ["disk space"], "disk"),
        (503, ["disk space", "memory"], "memory"),
        (503, ["file_descriptor_limit"], ""),
    ],
)
async def test_a_broker_says_why_it_takes_no_messages(
    nonsense: tuple[Management, CannedAnswer], status: int, resources: list[str], alarm: str
) -> None:
    api, answer = nonsense
    alarms = [{"node": "a@b", "resource": resource} for resource in resources]
    fields = {"status": "failed", "reason": "why", "alarms": alarms} if alarms else {"status": "ok"}
    answer.status, answer.body = status, json.dumps(fields).encode()
    assert await api.alarm() == alarm


@pytest.mark.parametrize(
    "document",
    [{}, {"object_totals": {}}, {"object_totals": []}, {"object_totals": {"queues": "7"}}],
)
async def test_a_broker_that_doesnt_say_how_many_queues_it_has_has_not_none(
    nonsense: tuple[Management, CannedAnswer], document: dict[str, object]
) -> None:
    api, answer = nonsense
    answer.body = json.dumps({"object_totals": {"queues": 7}}).encode()
    assert await api.queue_total() == 7
    answer.body = json.dumps(document).encode()
    with pytest.raises(ManagementError):
        await api.queue_total()


@pytest.mark.parametrize("state", ["running", "flow", "blocked"])
async def test_a_shovel_whose_destination_has_it_wait_runs(
    nonsense: tuple[Management, CannedAnswer], state: str
) -> None:
    api, answer = nonsense
    answer.body = json.dumps([{"name": "t.shovel", "state": state}]).encode()
    assert (await api.shovel_states())["t.shovel"].state == "running"


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, b'{"reason": "oops"}'), (503, b"<html>"), (503, b'{"alarms": "memory"}'), (200, b"[]")],
)
async def test_what_is_neither_well_nor_an_alarm_is_a_management_error(
    nonsense: tuple[Management, CannedAnswer], status: int, body: bytes
) -> None:
    api, answer = nonsense
    answer.status, answer.body = status, body
    with pytest.raises(ManagementError):
        await api.alarm()


@pytest.mark.broker
async def test_a_broker_that_has_no_room_says_so_until_it_has(
    rabbitmq_factory: Callable[[], LocalNode],
) -> None:
    node = rabbitmq_factory()
    node.start()
    await asyncio.to_thread(node.ctl, "set_disk_free_limit", "9000GB")
    async with Management(node.broker.management_url, GUEST) as api:
        await until(api, "disk")
        await asyncio.to_thread(node.ctl, "set_disk_free_limit", "1MB")
        await until(api, "")


async def until(api: Management, alarm: str) -> None:
    async with asyncio.timeout(60):
        while await api.alarm() != alarm:  # noqa: ASYNC110 - no events to wait for
            await asyncio.sleep(0.05)


async def test_a_broker_that_isnt_there_is_status_0() -> None:
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
    port = sockets[0].getsockname()[1]
    sockets[0].close()
    async with Management(f"http://127.0.0.1:{port}", GUEST, timeout=1.0) as api:
        with pytest.raises(ManagementError) as refused:
            await api.overview()
        assert refused.value.status == 0
