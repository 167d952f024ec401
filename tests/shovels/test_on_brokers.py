"""Plan, apply, status and keeper against two real RabbitMQ nodes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pika
import pytest
from brokers import NamedNodes as Nodes
from click.testing import CliRunner, Result
from fabrics import TOPICS, broker
from metric_values import value

from newsfabric.amqp import Declare, Delivery, Message, Properties
from newsfabric.amqp.link import PikaLink, connect
from newsfabric.amqp.message import SHOVELLED
from newsfabric.brokers.management import Management
from newsfabric.errors import ManagementError
from newsfabric.messages.hops import hops
from newsfabric.settings import Credentials, Fabric, dump_fabric
from newsfabric.topology import Binding, Broker, declare_core
from shovels.apply import ManagementClients, Status, carry_out, read_state, states
from shovels.cli import shovels
from shovels.keeper import RESTARTS, Keeper

pytestmark = pytest.mark.broker

GUEST = Credentials()
CLIENT = broker("oregon-client-1")
CORE = broker("oregon-core-1")
TIMEOUT = 60.0


@pytest.fixture
async def brokers(known: Fabric) -> AsyncIterator[ManagementClients]:
    async with ManagementClients(known, GUEST) as opened:
        yield opened


async def _apply(brokers: ManagementClients) -> None:
    done = await carry_out(brokers, await read_state(brokers, "oregon", TOPICS))
    assert [(each.action, each.error) for each in done if each.error] == []


async def _until(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT):
        # A broker's management has no events to wait for.
        while not await check():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


# RabbitMQ 4.0 also lists a shovel that ended by itself and was then deleted.
RUN = {"publish.oregon.1": "running", "receipts.1": "running"}.items()


async def _running(brokers: ManagementClients) -> bool:
    found = await states(brokers, [CLIENT, CORE])
    seen = [s for each in found.values() if isinstance(each, Status) for s in each.shovels]
    return {s.name: s.state for s in seen}.items() >= RUN


async def test_applying_twice_changes_nothing_the_second_time(brokers: ManagementClients) -> None:
    await _apply(brokers)
    again = await read_state(brokers, "oregon", TOPICS)
    assert again.actions == ()
    assert again.unreachable == {}
    assert {link: str(place.host) for link, place in again.plan.places.items()} == {
        "oregon/core/publish.oregon.1": "oregon-core-1",
        "oregon/client/receipts.1": "oregon-client-1",
    }


async def test_a_plan_changes_nothing(brokers: ManagementClients) -> None:
    await _apply(brokers)
    api = brokers.apis[CORE]
    await api.delete_shovel("publish.oregon.1")
    for _ in range(2):
        found = await read_state(brokers, "oregon", TOPICS)
        assert [(a.verb, a.name) for a in found.actions] == [("create", "publish.oregon.1")]
    await _apply(brokers)


async def test_a_message_keeps_everything_on_its_way_even_a_publishers_name(
    brokers: ManagementClients, nodes: Nodes
) -> None:
    await _apply(brokers)
    await _until(lambda: _running(brokers))
    sent = Message(
        "news.breaking",
        '{"headline":"Überraschung in São Tomé"}'.encode(),
        Properties(
            content_type="application/json",
            headers={"key": "story-1", "version": 3, "timestamp_in_ms": 1_700_000_000_123},
            correlation_id="c-1",
            reply_to="desk-1",
            expiration="60000",
            message_id="m-1",
            timestamp=1_700_000_000,
            type="story",
            app_id="desk",
        ),
    )
    arrived: asyncio.Queue[Delivery] = asyncio.Queue()
    core = await _link(nodes, "oregon-core-1")
    client = await _link(nodes, "oregon-client-1")
    try:
        await core.on_connect(_own_queue)
        await core.consumer("t.arrived", arrived.put_nowait)
        # A link connects in the background; now the queue exists and is bound.
        await (await core.publisher()).ready()
        publisher = await client.publisher()
        await publisher.ready()
        await publisher.publish("publish", sent)
        async with asyncio.timeout(TIMEOUT):
            delivery = await arrived.get()
    finally:
        await client.close()
        await core.close()
    carried = dict(delivery.message.properties.headers)
    assert hops(carried) == ("publish.oregon.1",)
    del carried[SHOVELLED]
    properties = dataclasses.replace(delivery.message.properties, headers=carried)
    assert dataclasses.replace(delivery.message, properties=properties) == sent


async def _add_user(api: Management, user: Credentials, tags: str = "administrator") -> None:
    await api._send("PUT", f"/users/{user.username}", {"password": user.password, "tags": tags})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    await api._send("PUT", f"/permissions/%2F/{user.username}", everything)


async def _link(nodes: Nodes, name: str) -> PikaLink:
    return await connect([nodes.node(name).amqp_url], name=f"test {name}")


async def _own_queue(declare: Declare) -> None:
    await declare_core(declare)
    await declare.queue("t.arrived", durable=False, exclusive=True)
    await declare.bind("t.arrived", "intake", "#")


@pytest.mark.parametrize(
    ("destination", "tags", "arrives"),
    [
        ("amqp://", "administrator", True),
        (None, "administrator,impersonator", True),
        # Without the tag, the shovel stops at this message again and again.
        (None, "administrator", False),
    ],
)
async def test_a_message_that_names_its_user_needs_a_direct_shovel_or_the_tag_impersonator(
    nodes: Nodes, destination: str | None, tags: str, arrives: bool
) -> None:
    node = nodes.node("oregon-core-1")
    carrier = Credentials("carrier", "secret")
    async with Management(node.management_url, GUEST) as api:
        await _add_user(api, carrier, tags)
        for queue in ("t.from", "t.to"):
            await api.put_queue(queue, {"x-expires": 60_000})
        await api.put_binding(Binding("amq.topic", "t.to", "t.from"))
        shovel = {
            "src-protocol": "amqp091",
            "src-uri": "amqp://",
            "src-queue": "t.from",
            "dest-protocol": "amqp091",
            "dest-uri": destination or carrier.in_url(node.amqp_url),
            "dest-exchange": "amq.topic",
            "ack-mode": "on-confirm",
            "reconnect-delay": 60,
        }
        message = {
            "properties": {"user_id": "guest"},
            "routing_key": "t.from",
            "payload": "{}",
            "payload_encoding": "string",
        }
        await api._send("POST", "/exchanges/%2F/amq.default/publish", message)
        await api.put_shovel("t.user", shovel)
        try:

            async def done() -> bool:
                if arrives:
                    return [m["properties"]["user_id"] for m in await api.peek("t.to")] == ["guest"]
                state = (await api.shovel_states())["t.user"]
                return state.state == "terminated" and "user_id" in state.reason

            await _until(done)
        finally:
            await api.delete_shovel("t.user")
            for queue in ("t.from", "t.to"):
                await api.delete_queue(queue)


async def test_what_is_no_longer_wanted_goes_and_what_isnt_ours_stays(
    brokers: ManagementClients,
) -> None:
    await _apply(brokers)
    core, client = brokers.apis[CORE], brokers.apis[CLIENT]
    stale = dict((await core.shovels())["publish.oregon.1"])
    await core.put_shovel("publish.atlantis.1", stale)
    await core.put_shovel("archive", stale)
    await client.put_queue("shovel.publish.oregon.9", {})
    await client.put_queue("desk", {})
    found = await read_state(brokers, "oregon", TOPICS)
    assert [(a.verb, a.kind, a.name) for a in found.actions] == [
        ("delete", "shovel", "publish.atlantis.1"),
        ("delete", "queue", "shovel.publish.oregon.9"),
    ]
    await carry_out(brokers, found)
    assert (await read_state(brokers, "oregon", TOPICS)).actions == ()
    assert "archive" in await core.shovels()
    assert "desk" in await client.queues()
    await core.delete_shovel("archive")
    await client.delete_queue("desk")


async def test_what_publishers_say_of_their_queues_hides_nothing_from_a_keeper(
    known: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 queues with arguments of 1 KiB once made a reply that was too large to be read."""
    monkeypatch.setattr("newsfabric.brokers.management.MAX_ANSWER_BYTES", 100_000)
    client = next(node for node in known.region("oregon").client if node.name == CLIENT.name)
    url = pika.URLParameters(GUEST.in_url(client.amqp_url))
    async with ManagementClients(known, GUEST) as brokers:
        with pika.BlockingConnection(url) as publisher:
            channel = publisher.channel()
            for _ in range(120):
                channel.queue_declare("", exclusive=True, arguments={"x": "y" * 900})
            with pytest.raises(ManagementError):
                await brokers.apis[CLIENT].queues()
            assert (await read_state(brokers, "oregon", TOPICS)).unreachable == {}


async def test_a_keeper_mends_what_somebody_broke(brokers: ManagementClients) -> None:
    stop = asyncio.Event()
    keeper = Keeper(brokers, "oregon", TOPICS)
    keeping = asyncio.create_task(keeper.run(stop))
    try:
        await _until(lambda: _ready(keeper))
        client = brokers.apis[CLIENT]
        await client.delete_queue("shovel.publish.oregon.1")
        await client.delete_shovel("receipts.1")

        async def mended() -> bool:
            bound = Binding("publish", "shovel.publish.oregon.1") in await client.bindings()
            return bound and "receipts.1" in await client.shovels()

        await _until(mended)
        await _until(lambda: _ready(keeper))
    finally:
        stop.set()
        await keeping


async def test_a_shovel_that_says_it_runs_and_moves_nothing_is_made_anew(
    brokers: ManagementClients, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("newsfabric.brokers.watch.SILENT_AFTER", 2.0)
    monkeypatch.setattr("shovels.watch.SILENT_AFTER", 2.0)
    monkeypatch.setattr("shovels.keeper.INTERVAL", 0.5)
    name = "oregon/core/publish.oregon.1"
    stop = asyncio.Event()
    keeper = Keeper(brokers, "oregon", TOPICS)
    keeping = asyncio.create_task(keeper.run(stop))
    try:
        await _until(lambda: _ready(keeper))
        before = value(RESTARTS.labels(name))

        async def restarted() -> bool:
            return value(RESTARTS.labels(name)) > before

        thief = _Thief(nodes.node("oregon-client-1").amqp_url, "shovel.publish.oregon.1")
        with thief:
            await _until(restarted)
            assert "canaries" in keeper.readiness().waiting_for
        await _until(lambda: _ready(keeper))
    finally:
        stop.set()
        await keeping


async def test_a_shovel_that_is_stored_and_doesnt_run_comes_back_by_itself(
    brokers: ManagementClients, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shovels.watch.MISSING_AFTER", 1.0)
    monkeypatch.setattr("shovels.keeper.INTERVAL", 0.5)
    stop = asyncio.Event()
    keeper = Keeper(brokers, "oregon", TOPICS)
    keeping = asyncio.create_task(keeper.run(stop))
    try:
        await _until(lambda: _ready(keeper))
        stored = await brokers.apis[CLIENT].shovels()
        await asyncio.to_thread(nodes.ctl, "eval", _ENDS_A_SHOVEL)
        assert await brokers.apis[CLIENT].shovels() == stored
        assert await brokers.apis[CLIENT].shovel_states() == {}
        await _until(lambda: _ready(keeper))
    finally:
        stop.set()
        await keeping


# The shovel's parameter stays.
_ENDS_A_SHOVEL = """
    rabbit_shovel_dyn_worker_sup_sup:stop_child({<<"/">>, <<"receipts.1">>}).
"""


async def test_a_broker_whose_management_api_hangs_delays_nothing_on_another(
    known: Fabric, brokers: ManagementClients
) -> None:
    await _apply(brokers)
    await brokers.apis[CORE].delete_shovel("publish.oregon.1")
    (region,) = known.regions
    (client,) = region.client
    stop = asyncio.Event()
    # The kernel accepts connections, and no program replies.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hanging = f"http://127.0.0.1:{silent.getsockname()[1]}"
        nodes = (dataclasses.replace(client, management_url=hanging),)
        one_hangs = Fabric((dataclasses.replace(region, client=nodes),))
        async with ManagementClients(one_hangs, GUEST, timeout=3600.0) as asked:
            keeping = asyncio.create_task(Keeper(asked, "oregon", TOPICS).run(stop))
            try:

                async def made() -> bool:
                    return "publish.oregon.1" in await brokers.apis[CORE].shovels()

                await _until(made)
            finally:
                stop.set()
                await keeping


class _Thief:
    """A consumer that the broker prefers: no other consumer of ``queue`` gets a message."""

    def __init__(self, url: str, queue: str) -> None:
        self._url = url
        self._queue = queue
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._steal)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(TIMEOUT)

    def _steal(self) -> None:
        with pika.BlockingConnection(pika.URLParameters(self._url)) as connection:
            connection.channel().basic_consume(
                self._queue, lambda *_: None, auto_ack=True, arguments={"x-priority": 10}
            )
            while not self._over.is_set():
                connection.process_data_events(time_limit=0.1)


async def test_a_keepers_queues_go_with_it(
    brokers: ManagementClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The shovel that the test before has deleted may be stored again and not run.
    monkeypatch.setattr("shovels.watch.MISSING_AFTER", 1.0)
    monkeypatch.setattr("shovels.keeper.INTERVAL", 0.5)
    stop = asyncio.Event()
    keeper = Keeper(brokers, "oregon", TOPICS)
    keeping = asyncio.create_task(keeper.run(stop))
    try:
        await _until(lambda: _ready(keeper))
        ages = {each["name"]: each["canary_age_ms"] for each in keeper.canaries()["shovels"]}
        assert set(ages) == {"publish.oregon.1", "receipts.1"}
        assert all(age < 10_000 for age in ages.values())
        assert await _keepers_queues(brokers) == 2
    finally:
        stop.set()
        await keeping

    async def gone() -> bool:
        return await _keepers_queues(brokers) == 0

    await _until(gone)


async def _keepers_queues(brokers: ManagementClients) -> int:
    queues = [*await brokers.apis[CORE].queues()]
    queues += [*await brokers.apis[CLIENT].queues()]
    return sum(name.startswith("keeper.oregon.") for name in queues)


async def _ready(keeper: Keeper) -> bool:
    return keeper.readiness().ready


async def test_a_broker_that_doesnt_say_how_its_shovels_are_has_none_that_run_and_a_reason(
    brokers: ManagementClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: Management) -> None:
        raise ManagementError("HTTP 500", status=500)

    await _apply(brokers)
    monkeypatch.setattr(Management, "shovel_states", fail)
    found = (await read_state(brokers, "oregon", TOPICS)).actual[CORE]
    assert (found.states, found.states_error) == ({}, "HTTP 500")
    assert "publish.oregon.1" in found.shovels


async def test_two_keepers_agree(brokers: ManagementClients) -> None:
    first, second = (Keeper(brokers, "oregon", TOPICS) for _ in range(2))
    core = brokers.apis[CORE]
    await core.delete_shovel("publish.oregon.1")
    await asyncio.gather(first.round(), second.round())
    await _until(lambda: _running(brokers))
    assert await first.round()
    assert await second.round()


def _command(folder: Path, known: Fabric, *arguments: str) -> Result:
    (folder / "fabric.json").write_text(dump_fabric(known), encoding="utf-8")
    (folder / "topics.toml").write_text('[[topic]]\npattern = "#"\n', encoding="utf-8")
    return CliRunner().invoke(shovels, [*arguments, "--state", str(folder)])


def test_the_commands_show_what_they_do_and_never_a_password(known: Fabric, tmp_path: Path) -> None:
    assert _command(tmp_path, known, "apply").exit_code == 0
    planned = _command(tmp_path, known, "plan", "--detailed-exitcode")
    assert (planned.exit_code, planned.output) == (0, "No changes.\n")
    _in_loop(known, CORE, lambda api: api.delete_shovel("publish.oregon.1"))
    planned = _command(tmp_path, known, "plan", "--detailed-exitcode")
    assert planned.exit_code == 2
    assert "+ shovel publish.oregon.1" in planned.output
    assert "1 to create." in planned.output
    assert _command(tmp_path, known, "plan").exit_code == 0
    applied = _command(tmp_path, known, "apply", "--json")
    assert applied.exit_code == 0
    (action,) = json.loads(applied.output)["actions"]
    assert (action["verb"], action["name"], action["error"]) == ("create", "publish.oregon.1", None)
    assert "guest" not in planned.output + applied.output


def test_another_login_is_a_change_that_shows_no_login(
    known: Fabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _command(tmp_path, known, "apply").exit_code == 0
    for each in (CORE, CLIENT):
        _in_loop(known, each, lambda api: _add_user(api, Credentials("other", "hush")))
    monkeypatch.setenv("NEWSFABRIC_AMQP_USERNAME", "other")
    monkeypatch.setenv("NEWSFABRIC_AMQP_PASSWORD", "hush")
    planned = _command(tmp_path, known, "plan")
    assert "~ shovel publish.oregon.1" in planned.output
    assert "amqp://***@127.0.0.1" in planned.output
    assert "another login" in planned.output
    assert "hush" not in planned.output
    assert "guest" not in planned.output


def test_status_shows_each_shovel(known: Fabric, tmp_path: Path) -> None:
    assert _command(tmp_path, known, "apply").exit_code == 0

    def running() -> bool:
        shown = _command(tmp_path, known, "status", "--json")
        found = {s["name"]: s["state"] for s in json.loads(shown.output)["shovels"]}
        return found.items() >= RUN

    async def wait() -> None:
        await _until(lambda: asyncio.to_thread(running))

    asyncio.run(wait())
    assert "publish.oregon.1" in _command(tmp_path, known, "status").output


def _in_loop(known: Fabric, at: Broker, work: Callable[[Management], Awaitable[object]]) -> None:
    async def run() -> None:
        async with ManagementClients(known, GUEST) as brokers:
            await work(brokers.apis[at])

    asyncio.run(run())


async def test_a_broker_that_is_away_is_named_and_the_others_are_done(
    known: Fabric, nodes: Nodes, tmp_path: Path
) -> None:
    assert (await asyncio.to_thread(_command, tmp_path, known, "apply")).exit_code == 0
    async with Management(nodes.node("oregon-core-1").management_url, GUEST) as api:
        await api.delete_shovel("publish.oregon.1")
    await asyncio.to_thread(nodes.kill, "oregon-client-1")
    try:
        applied = await asyncio.to_thread(_command, tmp_path, known, "apply")
        assert applied.exit_code == 1
        assert "oregon-client-1 is away" in applied.output
        assert "+ shovel publish.oregon.1" in applied.output
        planned = await asyncio.to_thread(_command, tmp_path, known, "plan")
        assert planned.exit_code == 1
    finally:
        await asyncio.to_thread(nodes.start, "oregon-client-1")
    applied = await asyncio.to_thread(_command, tmp_path, known, "apply")
    assert applied.exit_code == 0, applied.output


@pytest.mark.parametrize(
    ("fabric", "complaint"),
    [
        (None, "fabric.json"),
        ("{", "fabric.json"),
        ('{"regions": []}', "no region"),
    ],
)
def test_a_fabric_that_cant_be_read_is_one_clear_line(
    tmp_path: Path, fabric: str | None, complaint: str
) -> None:
    if fabric is not None:
        (tmp_path / "fabric.json").write_text(fabric, encoding="utf-8")
    result = CliRunner().invoke(shovels, ["plan", "--state", str(tmp_path)])
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert complaint in result.output
    assert result.output.count("\n") == 1
