"""The agent between two real brokers; the gateway and the router are made up by the tests."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest
import tornado.httpserver
import tornado.netutil
import tornado.web
from brokers import NamedNodes as Nodes

from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.amqp import ConfirmingPublisher, Declare, Delivery, Message
from newsfabric.amqp.link import PikaLink, connect
from newsfabric.brokers.management import Management
from newsfabric.messages.control import (
    DrainOrder,
    LoadReport,
    Tick,
    decode_load,
    encode_drain,
    encode_tick,
)
from newsfabric.messages.reports import Report, decode_report
from newsfabric.settings import Credentials, Node
from newsfabric.topology import Binding, Broker, Cluster, box_sources, declare_core, parts
from retail.agent import Agent, AgentSettings
from shovels.boxes import Boxes

pytestmark = pytest.mark.broker

GUEST = Credentials()
SCALER = Credentials("scaler.oregon", "pass-word")
BOX = "oregon-retail-1"
QUEUE = f"box.{BOX}.1"
CORES = ("oregon-core-1", "oregon-core-2", "oregon-core-3")
# Enough for a slow machine: on an idle one a feed has moved 6 s after its node died.
TIMEOUT = 60.0


@pytest.fixture(scope="module")
def nodes(rabbitmq_home: RabbitmqHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Yield a box and core brokers, of which most tests use one. Each test leaves all running."""
    folder = tmp_path_factory.mktemp("retail")
    with Nodes(folder, rabbitmq_home, [*CORES, BOX]) as started:
        yield started


class AdminPort:
    """The admin port of a gateway with three readers, which leave one by one when it drains."""

    def __init__(self) -> None:
        self.connections = 3
        self.draining = False
        fields = {"gateway": self}
        routes = [
            ("/load", _Load, fields),
            ("/report", _Report, fields),
            ("/drain", _Drain, fields),
        ]
        application = tornado.web.Application(routes, log_function=lambda _: None)
        self._server = tornado.httpserver.HTTPServer(application)
        (socket,) = tornado.netutil.bind_sockets(0, "127.0.0.1")
        self._server.add_socket(socket)
        self.url = f"http://127.0.0.1:{socket.getsockname()[1]}"

    async def close(self) -> None:
        self._server.stop()
        await self._server.close_all_connections()

    def load(self) -> dict[str, Any]:
        if self.draining:
            self.connections = max(0, self.connections - 1)
        return {
            "connections": self.connections,
            "capacity": 100,
            "deliveries_per_second": 1.5,
            "connects_per_second": 0.5,
            "ready": True,
            "draining": self.draining,
            "sockjs_url": "http://127.0.0.1:1/sockjs",
            "websocket_url": "ws://127.0.0.1:1/websocket",
            "sse_url": "http://127.0.0.1:1/events",
        }


class _Load(tornado.web.RequestHandler):
    def initialize(self, gateway: AdminPort) -> None:
        self.gateway = gateway

    def get(self) -> None:
        self.write(self.gateway.load())


class _Report(tornado.web.RequestHandler):
    def initialize(self, gateway: AdminPort) -> None:
        self.gateway = gateway

    def get(self) -> None:
        figures = {"gateway_readers": self.gateway.connections}
        self.write({"engine": "native", "version": "1", "waiting_for": [], "figures": figures})


class _Drain(tornado.web.RequestHandler):
    def initialize(self, gateway: AdminPort) -> None:
        self.gateway = gateway

    def post(self) -> None:
        self.gateway.draining = True
        self.set_status(202)


class CorePlace:
    """A router's place on core brokers: it sends ticks to each, and receives load reports."""

    def __init__(self, **links: PikaLink) -> None:
        self._links = links
        self.reports: asyncio.Queue[LoadReport] = asyncio.Queue()
        self.shown: asyncio.Queue[Report] = asyncio.Queue()

    async def open(self) -> None:
        self._publishers = {}
        for name, link in self._links.items():
            await link.on_connect(self._declare)
            await link.consumer("t.loads", self._on_load)
            self._publishers[name] = await link.publisher()
            await self._publishers[name].ready()

    async def close(self) -> None:
        for name in list(self._links):
            await self.leave(name)

    async def leave(self, name: str) -> None:
        """Send no more ticks on this broker."""
        del self._publishers[name]
        await self._links.pop(name).close()

    async def tick(self, seq: int) -> None:
        tick = Tick(origin="oregon", router="oregon-router-1", epoch=1, seq=seq, sent_ms=seq)
        await self.publish(encode_tick(tick))

    async def publish(self, message: Message) -> None:
        for publisher in self._publishers.values():
            await publisher.publish("postoffice", message)

    async def until(self, state: str) -> LoadReport:
        """Return the next report with that state; send ticks meanwhile."""
        async with asyncio.timeout(TIMEOUT):
            for seq in range(10_000):
                await self.tick(seq)
                if (found := await self.reports.get()).state == state:
                    return found
        raise AssertionError

    async def _declare(self, declare: Declare) -> None:
        await declare_core(declare)
        await declare.queue("t.loads", durable=False, exclusive=True)
        await declare.bind("t.loads", "upstream", "_fabric.load.#")
        await declare.bind("t.loads", "upstream", "_fabric.report.#")

    async def shows(self, state: str) -> Report:
        """Return the next report for operators with that state; send ticks meanwhile."""
        async with asyncio.timeout(TIMEOUT):
            for seq in range(10_000):
                await self.tick(seq)
                if (found := await self.shown.get()).state == state:
                    return found
        raise AssertionError

    def _on_load(self, delivery: Delivery) -> None:
        if delivery.message.properties.type == "report":
            self.shown.put_nowait(decode_report(delivery.message))
            return
        self.reports.put_nowait(decode_load(delivery.message))


@pytest.fixture(autouse=True)
async def keeper(nodes: Nodes) -> AsyncIterator[None]:
    """Do the work of the region's keeper for boxes."""
    cores = {Broker(Cluster("oregon", "core"), name): nodes.node(name) for name in CORES}
    running = asyncio.create_task(Boxes("oregon", cores, GUEST).run())
    yield
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def core(nodes: Nodes) -> AsyncIterator[CorePlace]:
    link = await connect([nodes.node("oregon-core-1").amqp_url], name="test core")
    core = CorePlace(first=link)
    await core.open()
    yield core
    await core.close()


@pytest.fixture
async def gateway() -> AsyncIterator[AdminPort]:
    gateway = AdminPort()
    yield gateway
    await gateway.close()


def _agent(nodes: Nodes, gateway_admin: str, cores: Sequence[str] = CORES[:1]) -> Agent:
    return Agent(
        AgentSettings(
            box=BOX,
            region="oregon",
            cores=tuple(nodes.node(core).amqp_url for core in cores),
            broker=nodes.node(BOX).amqp_url,
            management=nodes.node(BOX).management_url,
            gateway_admin=gateway_admin,
            drain_timeout=10.0,
            credentials=GUEST,
        )
    )


@contextlib.asynccontextmanager
async def _scaler(node: Node) -> AsyncIterator[ConfirmingPublisher]:
    """Yield a publisher with a scaler's login on that core broker."""
    async with Management(node.management_url, GUEST) as api:
        user = {"password": SCALER.password, "tags": ""}
        await api._send("PUT", f"/users/{SCALER.username}", user)
        rights = {"configure": "", "write": "orders", "read": ""}
        await api._send("PUT", f"/permissions/%2F/{SCALER.username}", rights)
        link = await connect([node.amqp_url], name="scaler", credentials=SCALER)
        publisher = await link.publisher()
        await publisher.ready()
        yield publisher
        await link.close()
        await api.delete_user(SCALER.username)


async def _until(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT):
        # A broker's management has no events to wait for.
        while not await check():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_box_comes_up_reports_its_load_and_leaves_nothing_behind(
    nodes: Nodes, core: CorePlace, gateway: AdminPort
) -> None:
    stop = asyncio.Event()
    agent = _agent(nodes, gateway.url)
    running = asyncio.create_task(agent.run(stop))
    box = Management(nodes.node(BOX).management_url, GUEST)
    there = Management(nodes.node("oregon-core-1").management_url, GUEST)
    async with box, there:
        ready = await core.until("ready")
        assert (ready.box, ready.connections, ready.capacity) == (BOX, 3, 100)
        assert agent.readiness().ready
        assert set(await box.shovels()) == {"postoffice.1", "upstream"}
        assert Binding("postoffice", QUEUE) in await there.bindings()
        assert {"gateway", "shovel.upstream"} <= set(await box.queues())

        stop.set()
        leaving = await core.until("draining")
        assert leaving.box == BOX
        async with asyncio.timeout(TIMEOUT):
            await running
        assert gateway.draining
        assert gateway.connections == 0
        assert await box.shovels() == {}
        assert QUEUE not in await there.queues()


async def test_operators_are_shown_the_box_its_gateway_and_its_shovels(
    nodes: Nodes, core: CorePlace, gateway: AdminPort
) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(_agent(nodes, gateway.url).run(stop))
    shown = await core.shows("ready")
    assert (shown.name, shown.kind, shown.engine) == (BOX, "box", "native")
    assert shown.waiting_for == ()
    assert shown.figures["gateway_readers"] == 3
    assert shown.figures["retail_running_feeds"] == 1
    shovels = {(shovel.name, shovel.runs_on, shovel.source) for shovel in shown.shovels}
    assert shovels == {("postoffice.1", BOX, "oregon/core"), ("upstream", BOX, BOX)}
    assert {shovel.state for shovel in shown.shovels} == {"running"}
    await gateway.close()
    away = await core.shows("starting")
    assert away.waiting_for == ("gateway",)
    assert away.engine == ""
    stop.set()
    assert (await core.shows("draining")).name == BOX
    async with asyncio.timeout(TIMEOUT):
        await running


async def test_a_box_that_a_scaler_orders_to_drain_leaves_and_says_last_that_it_is_empty(
    nodes: Nodes, core: CorePlace, gateway: AdminPort
) -> None:
    running = asyncio.create_task(_agent(nodes, gateway.url).run(asyncio.Event()))
    await core.until("ready")
    order = DrainOrder(region="oregon", box=BOX, by="oregon-scaler-1", sent_ms=1)
    other = dataclasses.replace(order, box="oregon-retail-2")
    async with _scaler(nodes.node("oregon-core-1")) as scaler:
        await scaler.publish("orders", encode_drain(other, user_id=SCALER.username))
        # An order from a user other than the scaler.
        await core.publish(encode_drain(order))
        await core.until("ready")
        await core.until("ready")
        assert not gateway.draining
        await scaler.publish("orders", encode_drain(order, user_id=SCALER.username))
        await core.until("draining")
    async with asyncio.timeout(TIMEOUT):
        await running
    assert gateway.connections == 0
    # Its reports to the core before its shovels were removed.
    reports = []
    while not core.reports.empty():
        reports.append(core.reports.get_nowait())
    assert (reports[-1].state, reports[-1].connections, reports[-1].capacity) == (
        "draining",
        0,
        100,
    )


async def test_a_box_whose_gateway_is_away_says_so_and_leaves_all_the_same(
    nodes: Nodes, core: CorePlace, gateway: AdminPort
) -> None:
    await gateway.close()
    stop = asyncio.Event()
    running = asyncio.create_task(_agent(nodes, gateway.url).run(stop))
    found = await core.until("starting")
    assert (found.connections, found.capacity, found.sockjs_url) == (0, 0, "")
    stop.set()
    async with asyncio.timeout(TIMEOUT):
        await running
    async with Management(nodes.node("oregon-core-1").management_url, GUEST) as there:
        assert QUEUE not in await there.queues()


async def test_what_is_taken_from_a_box_is_made_again(
    nodes: Nodes, core: CorePlace, gateway: AdminPort
) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(_agent(nodes, gateway.url).run(stop))
    box = Management(nodes.node(BOX).management_url, GUEST)
    there = Management(nodes.node("oregon-core-1").management_url, GUEST)
    async with box, there:
        await core.until("ready")
        await box.put_shovel("archive", (await box.shovels())["upstream"])
        await box.delete_shovel("postoffice.1")
        # As if the queue had expired: the shovel makes it again, but only a keeper binds it.
        await there.delete_queue(QUEUE)

        async def made() -> bool:
            bound = Binding("postoffice", QUEUE) in await there.bindings()
            return bound and "postoffice.1" in await box.shovels()

        await _until(made)
        await core.until("ready")
        stop.set()
        async with asyncio.timeout(TIMEOUT):
            await running
        # A shovel with another name than the agent's is left alone.
        assert set(await box.shovels()) == {"archive"}
        await box.delete_shovel("archive")


async def test_queues_that_are_deleted_with_what_is_in_them_are_made_and_bound_again(
    nodes: Nodes, core: CorePlace, gateway: AdminPort
) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(_agent(nodes, gateway.url).run(stop))
    box = Management(nodes.node(BOX).management_url, GUEST)
    there = Management(nodes.node("oregon-core-1").management_url, GUEST)
    async with box, there:
        await core.until("ready")
        # The shovels go on running: each makes its queue again, without a binding.
        await there.delete_queue(QUEUE)
        await box.delete_queue("shovel.upstream")
        await box.delete_queue("gateway")

        async def bound() -> bool:
            own = {Binding("postoffice", "gateway"), Binding("upstream", "shovel.upstream")}
            fed = Binding("postoffice", QUEUE) in await there.bindings()
            return fed and own <= await box.bindings()

        await _until(bound)
        assert (await core.until("ready")).box == BOX
    stop.set()
    async with asyncio.timeout(TIMEOUT):
        await running


async def test_of_a_box_that_disappears_nothing_is_left_on_the_core(
    nodes: Nodes, core: CorePlace, gateway: AdminPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = dataclasses.replace(parts.BOX_BOUNDS, expires_ms=1_000)
    monkeypatch.setattr(parts, "BOX_BOUNDS", soon)
    running = asyncio.create_task(_agent(nodes, gateway.url).run(asyncio.Event()))
    try:
        async with Management(nodes.node("oregon-core-1").management_url, GUEST) as there:
            await core.until("ready")
            assert QUEUE in await there.queues()

            await asyncio.to_thread(nodes.kill, BOX)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

            async def gone() -> bool:
                return not [name for name in await there.queues() if BOX in name]

            await _until(gone)
    finally:
        await asyncio.to_thread(nodes.start, BOX)


@pytest.mark.timeout(240)
async def test_a_feed_whose_core_broker_died_moves_to_another(
    nodes: Nodes, gateway: AdminPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than a shovel takes to start: otherwise it would be moved again, to the dead node.
    monkeypatch.setattr("retail.feed.SILENT_AFTER", 5.0)
    urls = {nodes.node(name).amqp_url: name for name in CORES}
    first, second = (urls[url] for url in box_sources(BOX, tuple(urls)))
    (third,) = set(CORES) - {first, second}
    urls_of = {name: url for url, name in urls.items()}
    core = CorePlace(**{n: await connect([urls_of[n]], name=f"test {n}") for n in CORES})
    running = asyncio.create_task(_agent(nodes, gateway.url, CORES).run(stop := asyncio.Event()))
    try:
        await core.open()
        await core.until("ready")
        await core.leave(first)
        await asyncio.to_thread(nodes.kill, first)
        box = Management(nodes.node(BOX).management_url, GUEST)
        there = Management(nodes.node(third).management_url, GUEST)
        async with box, there:

            async def moved() -> bool:
                # Between the shovel's end and its restart the broker lists no shovel of this name.
                shovel = (await box.shovel_states()).get("postoffice.1")
                if shovel is None or shovel.state != "running":
                    return False
                return QUEUE in await there.queues()

            await _until(moved)
        await core.until("ready")
    finally:
        stop.set()
        async with asyncio.timeout(TIMEOUT):
            await asyncio.gather(running, core.until("draining"))
        await core.close()
        await asyncio.to_thread(nodes.start, first)
