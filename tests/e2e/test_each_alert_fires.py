"""Real faults in a world, and the alerts that a real Prometheus fires for them.

Several faults at a time, if they don't disturb each other. A fault that takes minutes or a million
messages in production is made in a service of the world with smaller limits
(tests/support/standins.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import json
import os
import resource
import sqlite3
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from crowds import Crowd
from loads import load
from prometheus import Prometheus
from prometheus import running as prometheus_running
from standing_worlds import Standing
from standins import instead, layout_of, program_of, running
from worlds import PORTS, World

from localfabric.world import broker as brokers
from localfabric.world.layout import WorldLayout
from localfabric.world.rabbitmq_home import RabbitmqHome
from localfabric.world.targets import targets
from newsfabric import topology
from newsfabric.amqp.message import Message
from newsfabric.messages.control import Tick, encode_load, encode_tick, load_key
from newsfabric.messages.mailbox import UserMark, encode_mark
from newsfabric.store import open_store
from newsfabric.store.logs import DirectoryRow, Log
from newsfabric.topics import load_topics
from newsfabric.topology.roles import user_name
from operations.certificates.making import make_authority

pytestmark = [pytest.mark.world, pytest.mark.slow, pytest.mark.timeout(600)]

PATIENCE = 180.0
# Apart from the worlds' ports.
PORT = PORTS + 1691
GATEWAY = "dublin-retail-1-gateway"
DATAPLANE = "dublin-retail-1-dataplane"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("alerts")


@pytest.fixture(scope="module")
def watching(standing: Standing, folder: Path) -> Iterator[Prometheus]:
    """Yield one Prometheus for all faults, whose alerts don't wait. At first no alert fires."""
    world = standing.of("world", PORTS)
    world.mend()
    targets = json.loads(world.run("targets").stdout)
    with prometheus_running(folder, PORT, targets, quick=True) as prometheus:
        _all_is_quiet(prometheus)
        yield prometheus


@pytest.fixture
def prometheus(world: World, watching: Prometheus) -> Iterator[Prometheus]:
    """Yield it, and mend the world at the end; alerts of other tests may still fire."""
    try:
        yield watching
    finally:
        world.mend()


def _all_is_quiet(prometheus: Prometheus) -> None:
    targets = "count(up) == count(up == 1)"
    _until(lambda: prometheus.query(targets) and not prometheus.firing(), prometheus)


def _until(holds: Callable[[], Any], prometheus: Prometheus) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, prometheus.firing()
        time.sleep(0.5)


def _firing(prometheus: Prometheus, alert: str, **labels: str) -> bool:
    return any(labels.items() <= found.items() for found in prometheus.firing().get(alert, ()))


def _fires(prometheus: Prometheus, alert: str, **labels: str) -> None:
    """Return when ``alert`` fires with ``labels``."""
    _until(lambda: _firing(prometheus, alert, **labels), prometheus)


def _none_fires(prometheus: Prometheus, *alerts: str) -> None:
    """Return when none of ``alerts`` fires, so that a later one belongs to the next fault."""
    _until(lambda: not prometheus.firing().keys() & set(alerts), prometheus)


def _chaos(world: World, *fault: str) -> None:
    done = world.run("chaos", *fault)
    assert done.returncode == 0, done.stderr


def _port(world: World, region: str) -> int:
    (gateway,) = world.region(region)["gateways"]
    return int(gateway["websocket_url"].split(":")[2].partition("/")[0])


def _send(url: str, exchange: str, *messages: tuple[str, bytes]) -> None:
    """Publish messages by topic, without waiting for receipts."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        for topic, body in messages:
            channel.basic_publish(exchange, topic, body)


def _subscribe(topic: str) -> dict[str, str]:
    return {"action": "subscribe", "topic": topic}


def _news(count: int, *, topic: str = "news.world", size: int = 0) -> list[tuple[str, bytes]]:
    """Return messages that aren't taken for repeats; their bodies have over ``size`` bytes."""
    text = "x" * size
    return [
        (topic, json.dumps({"n": str(uuid.uuid4()), "text": text}).encode()) for _ in range(count)
    ]


def _publish_from(url: str, *messages: Message, exchange: str) -> None:
    """Publish messages of our own to an exchange of a core."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        for message in messages:
            sent = message.properties
            properties = pika.BasicProperties(content_type=sent.content_type, type=sent.type)
            channel.basic_publish(exchange, message.topic, message.body, properties)


def _mark(id_: str) -> Message:
    """Return the mark of user 42 that acknowledges a message."""
    return encode_mark(
        UserMark(topic="user.42", id=id_, kind="ack", at_ms=time.time_ns() // 1_000_000)
    )


def _send_as_a_box(world: World, url: str, box: str, *messages: Message) -> None:
    """Publish with the login of ``box``, as an attacker on the box can."""
    user = user_name("box", box)
    parameters = pika.URLParameters(url)
    password = (world.state / "users" / user).read_text().strip()
    parameters.credentials = pika.PlainCredentials(user, password)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        for message in messages:
            sent = message.properties
            properties = pika.BasicProperties(
                content_type=sent.content_type, type=sent.type, user_id=user
            )
            channel.basic_publish(topology.UPSTREAM, message.topic, message.body, properties)


@contextlib.contextmanager
def _also_scraped(folder: Path, layout: WorldLayout, *instances: str) -> Iterator[None]:
    """Scrape these instances of ``layout``, too; at the end only the earlier targets."""
    file = folder / "targets.json"
    before = file.read_text()
    more = [group for group in targets(layout) if group["labels"]["instance"] in instances]
    file.write_text(json.dumps([*json.loads(before), *more]))
    try:
        yield
    finally:
        file.write_text(before)


@contextlib.contextmanager
def _locked(world: World) -> Iterator[None]:
    """Lock the store, so that it takes no writes."""
    store = sqlite3.connect(world.state / "store.sqlite", isolation_level=None)
    with contextlib.closing(store):
        store.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            store.execute("ROLLBACK")


def test_a_box_that_cannot_read_the_store(
    world: World, prometheus: Prometheus, tmp_path: Path
) -> None:
    # A disk that isn't mounted.
    disk = tmp_path / "disk"
    store = f"sqlite:{disk}/store.sqlite"
    with instead(world, GATEWAY, DATAPLANE, ready=False, store=store):
        _fires(prometheus, "NewsfabricStoreReadsFail", region="dublin")
        _fires(prometheus, "NewsfabricProcessNotReady", instance=GATEWAY)
        disk.symlink_to(world.state)
        _none_fires(prometheus, "NewsfabricStoreReadsFail", "NewsfabricProcessNotReady")


def test_a_box_at_its_limits(world: World, prometheus: Prometheus) -> None:
    limits = {"gateway.memory.hub.HubLimits.identities": 200}
    port = _port(world, "dublin")
    box = {"region": "dublin", "box": "dublin-retail-1"}
    _none_fires(prometheus, "NewsfabricReadersLost")
    with (
        instead(world, GATEWAY, DATAPLANE, limits=limits, capacity=300, stalled_seconds=2),
        Crowd.at(port) as crowd,
    ):
        crowd.come(270)
        _fires(prometheus, "NewsfabricFleetNearlyFull", region="dublin")
        crowd.come(40)
        _fires(prometheus, "NewsfabricReadersTurnedAway", region="dublin")
        crowd.reset()
        _fires(prometheus, "NewsfabricReadersLost", **box)

        crowd.come(20, _subscribe("news.world"), receive_buffer=4096)
        _send(world.amqp_url("dublin"), "publish", *_news(300, size=50_000))
        _fires(prometheus, "NewsfabricSlowReaders", **box)
        _fires(prometheus, "NewsfabricIdentitiesEvicted", region="dublin")
        with _few_descriptors(world):
            crowd.knock(60)
            _fires(prometheus, "NewsfabricOutOfDescriptors", **box)


@contextlib.contextmanager
def _few_descriptors(world: World) -> Iterator[None]:
    """Leave ten more descriptors to the process that accepts dublin's readers."""
    (gateway,) = world.region("dublin")["gateways"]
    pid = gateway["dataplane_pid"] or gateway["pid"]
    limit = resource.RLIMIT_NOFILE
    before = resource.prlimit(pid, limit)
    open_now = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    resource.prlimit(pid, limit, (open_now + 10, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, limit, before)


def test_a_store_that_takes_nothing_for_long(world: World, prometheus: Prometheus) -> None:
    routers = {
        "wholesale.router.jobs.HOLD_SECONDS": 15,
        "wholesale.router.window.IdentityWindow.most": 300,
    }
    sent = world.run("publish", "user.42", '{"n": 1}', "--region", "oregon", "--json")
    mark = _mark(json.loads(sent.stdout)["id"])
    with instead(world, "oregon-router-1", limits=routers):
        # More identities than this router remembers.
        _send(world.amqp_url("oregon"), "publish", *_news(800))
        _fires(prometheus, "NewsfabricIdentitiesEvicted", region="oregon")
        with _locked(world):
            _send(world.amqp_url("oregon"), "publish", *_news(1_700))
            _send(world.amqp_url("oregon"), "publish", *_news(200, topic="weather.bay"))
            _send_as_a_box(
                world, world.amqp_url("oregon", "core"), "oregon-retail-1", *[mark] * 1_200
            )
            _fires(prometheus, "NewsfabricRouterBehind", instance="oregon-router-2")
            _fires(prometheus, "NewsfabricMailboxBehind", region="oregon")
            _fires(prometheus, "NewsfabricMessagesShed", region="oregon")
            _fires(prometheus, "NewsfabricMessagesExpired", region="oregon")


def test_numbers_that_no_store_has(world: World, prometheus: Prometheus) -> None:
    """A router of dublin reports three messages that don't exist. An operator makes them void."""
    alerts = "NewsfabricHolesOpen", "NewsfabricNumbersMissing", "NewsfabricLogUnlisted"
    _none_fires(prometheus, *alerts)
    began_ms = time.time_ns() // 1_000_000
    log = Log("dublin", "dublin-router-9", began_ms)
    tick = Tick(
        origin=log.region, router=log.router, epoch=log.epoch, seq=3, low=3, sent_ms=began_ms
    )
    # A tick with a time in the next year.
    later = dataclasses.replace(tick, sent_ms=began_ms + 365 * 86_400_000)
    core = world.amqp_url("dublin", "core")
    with instead(world, GATEWAY, DATAPLANE, limits={"gateway.logs.unlisted._PATIENCE": 3}):
        _publish_from(core, encode_tick(tick), encode_tick(later), exchange=topology.POSTOFFICE)
        _fires(prometheus, "NewsfabricTimesDisbelieved", region="dublin")
        _fires(prometheus, "NewsfabricHolesOpen", box="dublin-retail-1")
        _fires(prometheus, "NewsfabricNumbersMissing", region="dublin")
        _fires(prometheus, "NewsfabricLogUnlisted", region="dublin")
        asyncio.run(_list(world, log, low=3))
        where = (log.region, log.router, str(log.epoch), "1-3")
        voided = world.run("logs", "void", *where, "--yes", "--json")
        assert json.loads(voided.stdout) == {"void": [1, 2, 3], "left_alone": 0}, voided.stderr
        _none_fires(prometheus, *alerts)


async def _list(world: World, log: Log, *, low: int) -> None:
    """Put ``log`` into the directory, settled up to ``low``."""
    layout = layout_of(world)
    url = layout.store_url(layout.region(log.region))
    store = open_store(url, load_topics(layout.paths.topics))
    try:
        assert await store.list_log(log)
        assert await store.change_log(DirectoryRow(log, version=2, low=low))
    finally:
        await store.close()


def test_a_region_is_given_wrong_settings(
    world: World, prometheus: Prometheus, folder: Path
) -> None:
    """Bad publishers, a stolen login, a program with a bug, scalers that can't scale."""
    layout = layout_of(world, scale=(1, 1))
    core = world.amqp_url("oregon", "core")
    limited, failing = (program_of(layout, f"oregon-scaler-{n}") for n in (1, 2))
    bug = {"wholesale.mailbox.marking.decode_mark": "a bug"}
    mark = _mark("01a20545-9f16-7220-9478-a4334bb69074")
    with (
        _also_scraped(folder, layout, limited.name, failing.name),
        running(world, limited, driver="none", per_box=1),
        running(world, failing, driver="command", command="false"),
        instead(world, "oregon-mailbox-1", limits=bug),
        Crowd.at(_port(world, "oregon")) as crowd,
    ):
        crowd.come(5)
        # Two services share the queue, so some marks reach each.
        _send_as_a_box(world, core, "oregon-retail-1", *[mark] * 20)
        # The report of another box, under the key of this one.
        forged = encode_load(load(box="oregon-retail-2"))
        key = load_key("oregon", "oregon-retail-1")
        forged = Message(key, forged.body, forged.properties)
        _send_as_a_box(world, core, "oregon-retail-1", forged)
        _send(world.amqp_url("oregon"), "publish", *[("news.world", b"{not json")] * 100)
        _fires(prometheus, "NewsfabricMessagesRejected", region="oregon")
        _fires(prometheus, "NewsfabricForgedReports", instance="oregon-frontdesk-1")
        _fires(prometheus, "NewsfabricDeliveryFailed", instance="oregon-mailbox-1")
        _fires(prometheus, "NewsfabricScalerLimited", instance="oregon-scaler-1")
        _fires(prometheus, "NewsfabricScalerDriverFails", instance="oregon-scaler-2")


def test_an_authority_that_ends_tomorrow(
    world: World, prometheus: Prometheus, tmp_path: Path
) -> None:
    file = tmp_path / "authority.pem"
    frontdesk = "oregon-frontdesk-1"
    _renew(file, days=1)
    with instead(world, frontdesk, variables={"NEWSFABRIC_TLS_CA_FILE": str(file)}):
        _fires(prometheus, "NewsfabricCertificateExpiresSoon", instance=frontdesk, use="authority")
        _fires(prometheus, "NewsfabricCertificateExpires", instance=frontdesk, use="authority")
        _renew(file, days=9)
        _none_fires(prometheus, "NewsfabricCertificateExpiresSoon")
        assert _firing(prometheus, "NewsfabricCertificateExpires", instance=frontdesk)
        _renew(file, days=90)
        _none_fires(prometheus, "NewsfabricCertificateExpires")


def _renew(file: Path, *, days: int) -> None:
    """Replace ``file`` by a new authority that ends after so many days."""
    now, lifetime = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=days)
    new = file.with_suffix(".new")
    new.write_bytes(make_authority("test", now=now, lifetime=lifetime).certificate)
    new.replace(file)


def test_a_shovel_whose_messages_somebody_else_takes(world: World, prometheus: Prometheus) -> None:
    limits = {
        "newsfabric.brokers.watch.SILENT_AFTER": 2,
        "newsfabric.brokers.watch.RESTART_BASE": 0.1,
        "newsfabric.brokers.watch.RESTART_CAP": 1,
        "shovels.keeper.INTERVAL": 1,
    }
    with (
        instead(world, "oregon-shovels", limits=limits),
        pika.BlockingConnection(pika.URLParameters(world.amqp_url("oregon"))) as thief,
    ):
        thief.channel().basic_consume(
            "shovel.publish.oregon.1", lambda *_: None, arguments={"x-priority": 10}
        )

        def restarts() -> bool:
            thief.process_data_events(time_limit=0.1)
            return _firing(prometheus, "NewsfabricShovelRestarts", region="oregon")

        _until(restarts, prometheus)


def test_gold_that_was_held_up(world: World, prometheus: Prometheus) -> None:
    with Crowd.at(_port(world, "dublin")) as crowd:
        crowd.come(1, _subscribe("news.breaking"))
        # The series begins with its first messages, and a series that begins hasn't increased.
        _hold_gold_up(world)
        _until(lambda: prometheus.query(_GOLD), prometheus)
        _hold_gold_up(world)
        _fires(prometheus, "NewsfabricDelayHigh", region="dublin")


_GOLD = 'newsfabric_gateway_delay_seconds_count{class="gold",region="dublin"}'


def _hold_gold_up(world: World) -> None:
    """Delay gold for dublin's gateway by more than the second that it may take."""
    _chaos(world, "stop", GATEWAY)
    _send(world.amqp_url("dublin"), "publish", *_news(10, topic="news.breaking"))
    # The duration of the fault.
    time.sleep(2.0)
    _chaos(world, "cont", GATEWAY)


def _ctl(world: World, home: RabbitmqHome, name: str, *words: str) -> None:
    """Run ``rabbitmqctl`` on a broker of the world."""
    layout = layout_of(world)
    broker = next(one for one in layout.brokers() if one.name == name)
    paths = layout.paths
    variables = brokers.environment(
        broker, home, os.environ, marker=paths.state, erlang=paths.erlang
    )
    command = [str(home.sbin / "rabbitmqctl"), "--quiet", *words]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_broker_without_room(
    world: World, prometheus: Prometheus, rabbitmq_home: RabbitmqHome
) -> None:
    name = "oregon-client-1"
    _none_fires(prometheus, "NewsfabricBrokerAlarm")
    _ctl(world, rabbitmq_home, name, "set_disk_free_limit", "900000GB")
    try:
        _fires(prometheus, "NewsfabricBrokerAlarm", node=name, alarm="disk")
    finally:
        _ctl(world, rabbitmq_home, name, "set_disk_free_limit", "50MB")
    _none_fires(prometheus, "NewsfabricBrokerAlarm")


def test_brokers_that_are_away(world: World, prometheus: Prometheus) -> None:
    _none_fires(prometheus, "NewsfabricFeedSilent", "NewsfabricShovelsMissing")
    _chaos(world, "stop", "dublin-retail-1")
    _chaos(world, "kill", "oregon-client-1")
    _fires(prometheus, "NewsfabricFeedSilent", box="dublin-retail-1")
    _fires(prometheus, "NewsfabricShovelsMissing", region="oregon")


def test_all_is_quiet_when_all_is_mended(prometheus: Prometheus) -> None:
    _all_is_quiet(prometheus)
