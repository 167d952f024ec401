"""The management API's client: against a real broker, and against one that answers nonsense."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pika
import pytest
import tornado.httpserver
import tornado.netutil
import tornado.web

from newsfabric.errors import ManagementError
from newsfabric.management import MAX_ANSWER_BYTES, Management
from newsfabric.settings import Credentials, Node
from newsfabric.topology import Binding, Exchange

GUEST = Credentials()


@pytest.fixture
async def api(rabbitmq: Node) -> AsyncIterator[Management]:
    async with Management(rabbitmq.management_url, GUEST) as opened:
        yield opened


@pytest.mark.broker
async def test_a_node_says_who_it_is_and_that_it_runs(api: Management, rabbitmq: Node) -> None:
    assert await api.alive()
    assert await api.nodes() == {f"{rabbitmq.name}@localhost": True}
    assert await api.connections() >= 0


@pytest.mark.broker
async def test_names_with_every_awkward_character_come_back_as_they_were(
    api: Management, rabbitmq: Node
) -> None:
    exchange, queue = Exchange("t/ex #%2F é", "direct"), "t.q/ue %ü?&"
    await api.put_exchange(exchange)
    await api.put_queue(queue, {"x-max-length": 7})
    try:
        assert (await api.exchanges())[exchange.name] == "direct"
        found = (await api.queues())[queue].arguments
        # RabbitMQ 4 adds the type that it chose.
        assert {"x-queue-type": "classic", **found} == {
            "x-queue-type": "classic",
            "x-max-length": 7,
        }
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
async def test_a_queue_is_homed_on_the_node_that_was_asked_for(
    api: Management, rabbitmq: Node
) -> None:
    home = f"{rabbitmq.name}@localhost"
    await api.put_queue("t.homed", {}, node=home)
    try:
        assert (await api.queues())["t.homed"].home == home
    finally:
        await api.delete_queue("t.homed")


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
        assert not await api.alive()


class _Answers(tornado.web.RequestHandler):
    def initialize(self, answers: dict[str, bytes]) -> None:
        self._answers = answers

    async def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(self._answers["body"])


@pytest.fixture
async def nonsense() -> AsyncIterator[tuple[Management, dict[str, bytes]]]:
    answers: dict[str, bytes] = {}
    server = tornado.httpserver.HTTPServer(
        tornado.web.Application(
            [("/.*", _Answers, {"answers": answers})], log_function=lambda _: None
        )
    )
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
    server.add_sockets(sockets)
    url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
    async with Management(url, GUEST, timeout=1.0) as api:
        yield api, answers
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
    nonsense: tuple[Management, dict[str, bytes]], body: bytes
) -> None:
    api, answers = nonsense
    answers["body"] = body
    for ask in (api.queues, api.bindings, api.shovels, api.shovel_states, api.nodes, api.exchanges):
        with pytest.raises(ManagementError):
            await ask()


async def test_a_broker_that_isnt_there_is_status_0() -> None:
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
    port = sockets[0].getsockname()[1]
    sockets[0].close()
    async with Management(f"http://127.0.0.1:{port}", GUEST, timeout=1.0) as api:
        with pytest.raises(ManagementError) as refused:
            await api.overview()
        assert refused.value.status == 0
        assert not await api.alive()
