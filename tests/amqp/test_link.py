"""A link over pika, with brokers that are away, die, send garbage, fall silent or are full."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pika.exceptions
import pytest
from amqp_links import PATIENCE, Inbox, Proxy, RabbitHandle, ready
from client_regions import ClientRegions

from localfabric.nodes.ports import free_ports
from localfabric.nodes.rabbitmq import LocalNode
from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.amqp import Declare, Link, Message, parameters
from newsfabric.amqp.connection import link_error
from newsfabric.amqp.link import connect
from newsfabric.backoff import Backoff
from newsfabric.errors import ConfigError, LinkBusy, LinkClosed, LinkRefused
from newsfabric.settings import Credentials, Node
from newsfabric.topics import PublisherRights


class Warnings(logging.Handler):
    """The records logged at WARNING, and an event to wait for them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []
        self._new = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        self._new.set()

    async def matching(self, text: str) -> str:
        async with asyncio.timeout(PATIENCE):
            while True:
                for message in self.messages:
                    if text in message:
                        return message
                self._new.clear()
                await self._new.wait()


@pytest.fixture
def warnings() -> Iterator[Warnings]:
    handler = Warnings()
    logging.getLogger("newsfabric.amqp").addHandler(handler)
    yield handler
    logging.getLogger("newsfabric.amqp").removeHandler(handler)


@asynccontextmanager
async def link_to(*urls: str, **options: Any) -> AsyncIterator[Link]:
    link = await connect(urls, name="test", **options)
    try:
        yield link
    finally:
        await link.close()


class Stranger(asyncio.Protocol):
    """A server that isn't a broker: it sends the same bytes to each connection."""

    def __init__(self, piece: bytes) -> None:
        self._piece = piece
        self.transports: list[asyncio.WriteTransport] = []
        self.visits: asyncio.Queue[None] = asyncio.Queue()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        writing = cast(asyncio.WriteTransport, transport)
        self.transports.append(writing)
        writing.write(self._piece)
        self.visits.put_nowait(None)


@asynccontextmanager
async def stranger(piece: bytes) -> AsyncIterator[tuple[Stranger, str]]:
    served = Stranger(piece)
    server = await asyncio.get_running_loop().create_server(lambda: served, "127.0.0.1", 0)
    try:
        yield served, f"amqp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for transport in served.transports:
            transport.abort()


@pytest.mark.parametrize(
    "urls",
    [
        [],
        ["http://host/"],
        ["host:5672"],
        ["amqp://host:port/"],
        ["amqps://host/?cacertfile=/nowhere/ca.pem"],
        ["amqp://host/?cacertfile=/etc/hosts"],
    ],
)
async def test_a_bad_url_is_a_config_error_without_the_password(urls: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        await connect(urls, name="test", credentials=Credentials("user", "secret"))
    assert "secret" not in str(caught.value)


@pytest.mark.broker
async def test_who_is_turned_away_everywhere_learns_it(rabbitmq: Node) -> None:
    async with link_to(rabbitmq.amqp_url, credentials=Credentials("guest", "wrong")) as link:
        async with asyncio.timeout(PATIENCE):
            error = await link.refused()
        assert "403 ACCESS_REFUSED - Login was refused" in str(error)
        assert link.trouble is not None
        assert not link.connected


@pytest.mark.broker
async def test_who_meets_a_limit_of_connections_is_let_in_when_it_is_lifted(
    rabbitmq: Node, warnings: Warnings
) -> None:
    async with ClientRegions.on(rabbitmq) as regions:
        region = await regions("oregon")
        url = await region.user(PublisherRights("late", ("news.#",)))
        await region.close_to("late")
        async with link_to(url, credentials=None) as link:
            await warnings.matching("user connection limit (0) is reached")
            assert not isinstance(link.trouble, LinkRefused)
            await region.open_to("late")
            await ready(await link.publisher())


@pytest.mark.parametrize(
    "text",
    [
        # 3.10 and 4.x
        "connection refused for user 'cms': user connection limit (0) is reached",
        "access to vhost '/' refused for user 'cms': connection limit (10) is reached",
        # 4.x
        "connection refused: node connection limit (10) is reached",
        "access to vhost '/' refused for user 'cms': connection limit cannot be queried, timeout",
    ],
)
def test_a_limit_of_connections_passes(text: str) -> None:
    closed = pika.exceptions.ConnectionClosedByBroker(530, f"NOT_ALLOWED - {text}")
    assert isinstance(link_error(closed), LinkClosed)


async def test_who_is_turned_away_for_long_tries_on_within_bounds_and_says_so_once(
    warnings: Warnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def refuse(*_: object, **__: object) -> None:
        raise LinkRefused("403 ACCESS_REFUSED")

    class Noted(Backoff):
        def failed(self, now: float, rng: random.Random | None = None) -> float:
            waits.append(Backoff.failed(self, now, rng))
            return 0.0

    monkeypatch.setattr("newsfabric.amqp.link.open_connection", refuse)
    monkeypatch.setattr(
        "newsfabric.amqp.link.broker_backoff", lambda: Noted(base=0.2, cap=2.0, reset_after=60.0)
    )
    async with link_to("amqp://127.0.0.1") as link:
        async with asyncio.timeout(PATIENCE):
            while len(waits) < 200:  # noqa: ASYNC110 - what is waited for sets no event
                await asyncio.sleep(0)
        assert isinstance(link.trouble, LinkRefused)
        assert not link.established
    # Full jitter, from almost no pause to the longest.
    assert waits[0] <= 0.2
    assert 1.0 < max(waits) <= 2.0
    assert len(set(waits)) > 100
    (logged,) = warnings.messages
    assert "ACCESS_REFUSED; trying again" in logged


@pytest.mark.broker
async def test_who_is_taken_somewhere_isnt_turned_away_and_the_log_says_who_refused(
    rabbitmq: Node, warnings: Warnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "sample", lambda urls, _count: urls)
    wrong = Credentials("guest", "wrong").in_url(rabbitmq.amqp_url)
    async with link_to(wrong, rabbitmq.amqp_url, credentials=None) as link:
        await ready(await link.publisher())
        await warnings.matching("ACCESS_REFUSED")
        assert link.trouble is None


@pytest.mark.broker
async def test_while_one_of_its_brokers_is_down_nobody_knows_yet(
    rabbitmq: Node, warnings: Warnings
) -> None:
    wrong = Credentials("guest", "wrong").in_url(rabbitmq.amqp_url)
    down = f"amqp://127.0.0.1:{free_ports(1)[0]}"
    async with link_to(wrong, down, credentials=None) as link:
        text = await warnings.matching("trying again")
        assert "ACCESS_REFUSED" in text
        assert link.trouble is not None
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(link.refused(), 0.5)


async def test_it_keeps_trying_where_nobody_listens_and_says_so_once(warnings: Warnings) -> None:
    url = f"amqp://127.0.0.1:{free_ports(1)[0]}"
    async with link_to(url) as link:
        assert not link.connected
        assert "refused" in (await warnings.matching("trying again")).lower()
        async with asyncio.timeout(PATIENCE):
            publisher = await link.publisher()
        with pytest.raises(LinkClosed):
            publisher.publish_nowait("", Message("key", b""))
    assert len(warnings.messages) == 1


@pytest.mark.sockets
async def test_a_host_name_that_can_not_be_one_is_reported_and_tried_again(
    warnings: Warnings,
) -> None:
    async with link_to(f"amqp://{'x' * 64}.example"):
        assert "trying again" in await warnings.matching("x" * 64)


@pytest.mark.parametrize(
    "piece",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"AMQP\0\1\0\0",
        b"\1\0\0\xff\xff\xff\xff",
        b"\1\0\0\0\0\0\4\0\0\0\0\xce",
        b"\1\0\0\0\0\0\1\0\0",
    ],
)
async def test_it_keeps_trying_where_no_broker_answers(piece: bytes) -> None:
    async with stranger(piece) as (served, url), link_to(url, connect_timeout=0.1) as link:
        async with asyncio.timeout(PATIENCE):
            for _ in range(3):
                await served.visits.get()
        assert not link.connected


@pytest.mark.broker
async def test_it_takes_whichever_url_answers(rabbitmq: Node) -> None:
    dead = [f"amqp://127.0.0.1:{port}" for port in free_ports(3)]
    async with link_to(*dead, rabbitmq.amqp_url) as link:
        await ready(await link.publisher())
        assert link.connected


@pytest.mark.broker
async def test_a_wrong_password_is_tried_again_and_not_logged(
    rabbitmq: Node, warnings: Warnings
) -> None:
    wrong = Credentials("guest", "s3cret")
    async with link_to(rabbitmq.amqp_url, credentials=wrong) as link:
        logged = await warnings.matching("trying again")
        assert "ACCESS_REFUSED" in logged
        assert not link.connected
    assert not any("s3cret" in message for message in warnings.messages)


@pytest.mark.broker
async def test_a_broker_may_come_later_than_its_links(rabbit: RabbitHandle, name: str) -> None:
    await rabbit.proxy.cut()
    link = await rabbit.new_link()
    await link.on_connect(lambda broker: _own_queue(broker, name))
    publisher = await link.publisher()
    inbox = await Inbox().consume(link, name)
    await rabbit.proxy.start()
    await (await ready(publisher)).publish("", Message(name, b"1"))
    assert (await inbox.next()).message.body == b"1"


async def _own_queue(broker: Declare, name: str) -> None:
    await broker.queue(name, exclusive=True, durable=False)


@pytest.mark.broker
async def test_bytes_that_make_no_sense_end_in_a_new_connection(
    rabbit: RabbitHandle, name: str, warnings: Warnings
) -> None:
    link = await rabbit.link()
    await link.on_connect(lambda broker: _own_queue(broker, name))
    publisher = await link.publisher()
    inbox = await Inbox().consume(link, name)
    rabbit.proxy.inject(b"\x03\x00\x01\x00\x00\x00\x01x\xce")
    await warnings.matching("a content body out of turn on channel 1")
    await (await ready(publisher)).publish("", Message(name, b"1"))
    assert (await inbox.next()).message.body == b"1"


@pytest.mark.broker
async def test_a_route_that_swallows_everything_is_noticed_by_the_heartbeat(
    rabbit: RabbitHandle, warnings: Warnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parameters, "HEARTBEAT", 1)
    link = await rabbit.link()
    publisher = await link.publisher()
    rabbit.proxy.silence()
    confirm = publisher.publish_nowait("", Message("key", b""))
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(LinkClosed, match="No activity"):
            await confirm
    assert not link.connected


@pytest.mark.broker
async def test_a_bug_in_a_declaration_is_reported_and_the_link_lives(
    rabbit: RabbitHandle, expect_error_log: Any
) -> None:
    expect_error_log("dropping the connection")
    link = await rabbit.link()
    calls = 0

    async def declare(_broker: Declare) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("a bug")

    await link.on_connect(declare)
    await ready(await link.publisher())
    assert calls == 2


@pytest.mark.broker
async def test_a_refused_declaration_is_tried_again_until_it_holds(
    rabbit: RabbitHandle, name: str
) -> None:
    link = await rabbit.link()
    bound = asyncio.Event()

    async def declare(broker: Declare) -> None:
        await broker.bind(name, f"{name}-x", "#")
        bound.set()

    await link.on_connect(declare)
    assert not bound.is_set()

    async def prepare(broker: Declare) -> None:
        await broker.exchange(f"{name}-x")
        await _own_queue(broker, name)

    await link.on_connect(prepare)
    async with asyncio.timeout(PATIENCE):
        await bound.wait()


@pytest.mark.broker
async def test_unacked_deliveries_of_a_link_that_is_cut_go_to_another(
    rabbitmq: Node, name: str
) -> None:
    cut, kept = await RabbitHandle.on(rabbitmq, name), await RabbitHandle.on(rabbitmq, name)
    try:
        link, other = await cut.link(), await kept.link()
        await other.on_connect(lambda broker: _shared_queue(broker, name))
        inbox = await Inbox().consume(link, name)
        await (await other.publisher()).publish("", Message(name, b"1"))
        assert (await inbox.next()).redelivered is False
        heir = await Inbox().consume(other, name)
        await cut.proxy.cut()
        again = await heir.next()
        assert (again.message.body, again.redelivered) == (b"1", True)
        await other.on_connect(lambda broker: broker.delete_queue(name))
    finally:
        await cut.close()
        await kept.close()


async def _shared_queue(broker: Declare, name: str) -> None:
    await broker.queue(name)


@pytest.fixture(scope="module")
def own_node(
    rabbitmq_home: RabbitmqHome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalNode]:
    """Yield a node that tests of this module may kill and freeze; each leaves it running."""
    with LocalNode(tmp_path_factory.mktemp("own"), rabbitmq_home) as node:
        yield node


@pytest.mark.broker
async def test_a_killed_broker_fails_what_is_in_flight_and_comes_back(
    own_node: LocalNode, name: str
) -> None:
    async with link_to(own_node.amqp_url) as link:
        await link.on_connect(lambda broker: _shared_queue(broker, name))
        publisher = await ready(await link.publisher())
        inbox = await Inbox().consume(link, name)
        await publisher.publish("", Message(name, b"before"))
        inbox.ack(await inbox.next())

        own_node.kill()
        # The event loop hasn't run yet: the link doesn't know.
        confirm = publisher.publish_nowait("", Message(name, b"in flight"))
        with pytest.raises(LinkClosed):
            await confirm
        await asyncio.to_thread(own_node.start)
        await (await ready(publisher)).publish("", Message(name, b"after"))
        assert (await inbox.next()).message.body == b"after"


@pytest.mark.broker
async def test_operators_see_who_is_connected_and_may_disconnect_them(
    own_node: LocalNode, warnings: Warnings
) -> None:
    async with link_to(own_node.amqp_url) as link:
        publisher = await ready(await link.publisher())
        listed = await asyncio.to_thread(own_node.ctl, "list_connections", "client_properties")
        assert '{"connection_name","test"}' in listed
        await asyncio.to_thread(own_node.ctl, "close_all_connections", "maintenance")
        assert "320 CONNECTION_FORCED - maintenance" in await warnings.matching("lost")
        await ready(publisher)


@pytest.mark.broker
async def test_a_broker_that_is_out_of_memory_is_not_published_to(
    own_node: LocalNode, name: str, warnings: Warnings
) -> None:
    async with link_to(own_node.amqp_url) as link:
        await link.on_connect(lambda broker: _shared_queue(broker, name))
        publisher = await ready(await link.publisher())
        await asyncio.to_thread(own_node.ctl, "set_vm_memory_high_watermark", "absolute", "1")
        try:
            # A full broker notifies publishers, and doesn't confirm.
            confirm = publisher.publish_nowait("", Message(name, b"1"))
            await warnings.matching("takes no publications")
            with pytest.raises(LinkBusy):
                publisher.publish_nowait("", Message(name, b"2"))
            waiting = asyncio.create_task(publisher.publish("", Message(name, b"2")))
        finally:
            await asyncio.to_thread(
                own_node.ctl, "set_vm_memory_high_watermark", "absolute", "512MB"
            )
        async with asyncio.timeout(PATIENCE):
            await confirm
            await waiting
            await publisher.ready()
        inbox = await Inbox().consume(link, name)
        assert await inbox.bodies(2) == [b"1", b"2"]


async def test_closing_a_link_that_never_was_up_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("newsfabric.amqp.link.CLOSE_TIMEOUT", 60.0)
    async with stranger(b"") as (served, url):
        link = await connect([url], name="test", connect_timeout=60.0)
        await served.visits.get()
        async with asyncio.timeout(PATIENCE):
            await link.close()
            await link.close()


@pytest.mark.broker
async def test_a_proxy_that_vanishes_mid_close_does_not_hold_it_up(rabbit: RabbitHandle) -> None:
    link = await rabbit.link()
    rabbit.proxy.silence()
    async with asyncio.timeout(PATIENCE):
        await link.close()


@pytest.fixture
async def silent() -> AsyncIterator[Proxy]:
    proxy = Proxy("127.0.0.1", free_ports(1)[0])
    await proxy.start()
    yield proxy
    await proxy.cut()


async def test_a_link_is_dropped_where_the_far_side_hangs_up_at_once(
    silent: Proxy, warnings: Warnings
) -> None:
    async with link_to(silent.url) as link:
        await warnings.matching("trying again")
        assert not link.connected
        assert silent.accepted >= 1
