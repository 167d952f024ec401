"""The topology as values, and in the forms that RabbitMQ takes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from pathlib import Path

import pytest
from fabrics import CREDENTIALS, TOPICS, broker, fabric
from hypothesis import given
from hypothesis import strategies as st

from gateway.memory.hub import HubLimits
from gateway.memory.identities import SeenIdentities
from localfabric.nodes.rabbitmq import LocalNode
from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.brokers.management import Management
from newsfabric.errors import ConfigError, ManagementError
from newsfabric.settings import Credentials, TlsFiles
from newsfabric.topics import parse_topics
from newsfabric.topology import (
    ALL,
    DIRECT,
    Binding,
    BrokerObjects,
    Cluster,
    KeptShovel,
    box_feed,
    box_upstream,
    brokers_of,
    client_definitions,
    core_definitions,
    declare_retail,
    mask,
    owned_queue,
    owned_shovel,
    region_links,
    retail_definitions,
    shovel_plan,
    shovel_value,
    taken_from,
    takes_copies_alone,
)
from newsfabric.topology.rights import hash_password
from newsfabric.topology.roles import operator
from newsfabric.topology.values import (
    ROUTER_BOUNDS,
)
from wholesale.router.window import KEEP_MS, MOST

OREGON_CORE = broker("oregon-core-1")
OREGON_CLIENT = broker("oregon-client-1")
DUBLIN_CORE = broker("dublin-core-1")
DUBLIN_CLIENT = broker("dublin-client-1")
HARBOR = broker("harbor-1")


def _shovels(part: BrokerObjects) -> dict[str, tuple[str, str, str]]:
    return {s.name: (s.queue.name, s.exchange, s.source) for s in part.shovels}


def _keys(part: BrokerObjects, queue: str) -> set[tuple[str, str]]:
    return {(b.exchange, b.key) for b in part.bindings if b.queue == queue}


def test_a_region_of_single_nodes_has_one_shovel_for_each_way() -> None:
    plan = shovel_plan(fabric(), "oregon", TOPICS)
    assert _shovels(plan[OREGON_CORE]) == {
        "publish.oregon.1": (
            "shovel.publish.oregon.1",
            "intake",
            "amqp://oregon-client-1.test/%2F",
        ),
        "publish.dublin.1": (
            "shovel.publish.oregon.1",
            "intake",
            "amqp://dublin-client-1.test/%2F",
        ),
        "outbound.dublin.1": (
            "shovel.outbound.oregon.1",
            "postoffice",
            "amqp://dublin-core-1.test/%2F",
        ),
    }
    assert _shovels(plan[OREGON_CLIENT]) == {
        "receipts.1": ("shovel.receipts.1", "", "amqp://oregon-core-1.test/%2F")
    }


def test_everything_comes_from_the_own_region_and_gold_from_the_others() -> None:
    plan = shovel_plan(fabric(), "oregon", TOPICS)
    assert _keys(plan[OREGON_CLIENT], "shovel.publish.oregon.1") == {("publish", ALL)}
    assert _keys(plan[DUBLIN_CLIENT], "shovel.publish.oregon.1") == {
        ("publish", "news.breaking"),
        ("publish", "user.*"),
        ("publish", "_fabric.canary.oregon"),
    }
    assert _keys(plan[DUBLIN_CORE], "shovel.outbound.oregon.1") == {("outbound", ALL)}
    assert _keys(plan[OREGON_CORE], "shovel.receipts.1") == {("receipts", ALL)}


def test_each_client_broker_has_its_own_shovel_and_gold_takes_two_ways() -> None:
    plan = shovel_plan(fabric(client=2, core=3), "oregon", TOPICS)
    ways = {
        (shovel, source, str(broker))
        for broker, part in plan.items()
        for shovel, (_, exchange, source) in _shovels(part).items()
        if exchange == "intake"
    }
    first, second = (f"amqp://oregon-client-{n}.test/%2F" for n in (1, 2))
    assert {way for way in ways if "oregon" in way[0]} == {
        ("publish.oregon.1", first, "oregon-core-1"),
        ("publish.oregon.1.2", first, "oregon-core-2"),
        ("publish.oregon.2", second, "oregon-core-2"),
        ("publish.oregon.2.2", second, "oregon-core-3"),
    }
    assert {(way[0], way[2]) for way in ways if "dublin" in way[0]} == {
        ("publish.dublin.1", "oregon-core-1"),
        ("publish.dublin.2", "oregon-core-2"),
    }
    gold = {("publish", "news.breaking"), ("publish", "user.*")}
    canary = {("publish", "_fabric.canary.oregon")}
    for source in map(broker, ("oregon-client-1", "oregon-client-2")):
        assert _keys(plan[source], "shovel.publish.oregon.1") == {("publish", ALL)}
        assert _keys(plan[source], "shovel.publish.oregon.2") == gold | canary


def test_with_one_core_broker_gold_has_no_second_way() -> None:
    plan = shovel_plan(fabric(client=2), "oregon", TOPICS)
    assert {q.name for q in plan[OREGON_CLIENT].queues} == {"shovel.publish.oregon.1"}
    assert {name for name in _shovels(plan[OREGON_CORE]) if "oregon" in name} == {
        "publish.oregon.1",
        "publish.oregon.2",
    }


def test_each_core_broker_pulls_all_that_another_region_routes() -> None:
    plan = shovel_plan(fabric(core=3), "oregon", TOPICS)
    for n in (1, 2, 3):
        assert _shovels(plan[broker(f"oregon-core-{n}")])[f"outbound.dublin.{n}"] == (
            f"shovel.outbound.oregon.{n}",
            "postoffice",
            f"amqp://dublin-core-{n}.test/%2F",
        )
        queue = f"shovel.outbound.oregon.{n}"
        assert _keys(plan[broker(f"dublin-core-{n}")], queue) == {("outbound", ALL)}


def test_a_client_broker_gets_receipts_from_two_core_brokers() -> None:
    plan = shovel_plan(fabric(client=2, core=3), "oregon", TOPICS)
    found = {
        str(broker): {name: source for name, (_, _, source) in _shovels(part).items()}
        for broker, part in plan.items()
        if broker.cluster.role == "client"
    }
    assert found["oregon-client-1"] == {
        "receipts.1": "amqp://oregon-core-1.test/%2F",
        "receipts.1.2": "amqp://oregon-core-2.test/%2F",
    }
    assert found["oregon-client-2"] == {
        "receipts.2": "amqp://oregon-core-2.test/%2F",
        "receipts.2.2": "amqp://oregon-core-3.test/%2F",
    }
    for n, queues in {1: {"1"}, 2: {"1", "2"}, 3: {"2"}}.items():
        names = {queue.name for queue in plan[broker(f"oregon-core-{n}")].queues}
        receipts = {name for name in names if name.startswith("shovel.receipts.")}
        assert receipts == {f"shovel.receipts.{queue}" for queue in queues}


def test_every_core_broker_holds_the_same_queues_and_gold_has_one_of_its_own() -> None:
    plan = shovel_plan(fabric(core=2), "oregon", TOPICS)
    own = ("router.1", "router.2", "mailbox", "rejected")
    for n in (1, 2):
        part = plan[broker(f"oregon-core-{n}")]
        names = [queue.name for queue in part.queues]
        assert tuple(name for name in names if not name.startswith("shovel.")) == own
        assert _keys(part, "router.1") == {("intake", ALL)}
        assert _keys(part, "router.2") == {("intake", "news.breaking"), ("intake", "user.*")}
        assert _keys(part, "mailbox") == {("upstream", "_fabric.mark")}


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_two_paths_share_a_broker_only_where_one_alone_is_left(
    client: int, core: int, data: st.DataObject
) -> None:
    links = region_links(fabric(client=client, core=core, proxy=client), "oregon", TOPICS)
    by_id = {link.id: link for link in links}
    pairs = [(link, by_id[f"{link.id}.2"]) for link in links if f"{link.id}.2" in by_id]
    assert bool(pairs) == (core > 1)
    brokers = [node.name for node in fabric(core=core).region("oregon").core]
    left = data.draw(st.sets(st.sampled_from(brokers), min_size=1))

    def first_left(link: KeptShovel) -> str:
        nodes = link.hosts if len(link.hosts) > 1 else link.sources
        return next(node.name for node in nodes if node.name in left)

    for first, second in pairs:
        assert (first_left(first) == first_left(second)) == (len(left) == 1)


def test_of_the_shovels_into_a_core_the_second_paths_and_other_regions_take_gold_alone() -> None:
    known = fabric(client=2, core=2)
    links = region_links(known, "oregon", TOPICS)
    intake = [link for link in links if link.destination == "intake"]
    for link in intake:
        assert takes_copies_alone(link.name, "oregon") == (ALL not in link.keys), link.name
    assert {link.name for link in intake if not takes_copies_alone(link.name, "oregon")} == {
        "publish.oregon.1",
        "publish.oregon.2",
    }
    assert not takes_copies_alone("outbound.dublin.1", "oregon")


def test_what_is_at_two_places_of_one_broker_is_the_first_of_them() -> None:
    known = fabric(core=2)
    link = {link.name: link for link in region_links(known, "oregon", TOPICS)}["receipts.1"]
    old, new = link.places()
    plan = shovel_plan(known, "oregon", TOPICS, places={link.id: (new, old)})
    assert _shovels(plan[OREGON_CLIENT])["receipts.1"][2] == "amqp://oregon-core-2.test/%2F"
    assert [s.name for s in plan[OREGON_CLIENT].shovels].count("receipts.1") == 1
    for place in (old, new):
        assert _keys(plan[place.source], "shovel.receipts.1") == {("receipts", ALL)}


def test_from_a_proxy_gold_goes_to_every_region_and_the_rest_to_the_nearest() -> None:
    near = shovel_plan(fabric(proxy=1), "oregon", TOPICS)
    far = shovel_plan(fabric(proxy=1), "dublin", TOPICS)
    assert _keys(near[HARBOR], "shovel.publish.oregon.1") == {("publish", ALL)}
    assert _keys(far[HARBOR], "shovel.publish.dublin.1") == {
        ("publish", "news.breaking"),
        ("publish", "user.*"),
        ("publish", "_fabric.canary.dublin"),
    }
    assert _shovels(far[DUBLIN_CLIENT])["proxy.harbor.1"] == (
        "shovel.publish.dublin.1",
        "publish",
        "amqp://harbor-1.test/%2F",
    )


def test_receipts_of_every_region_come_back_to_a_proxy() -> None:
    plan = shovel_plan(fabric(proxy=1), "dublin", TOPICS)
    assert _shovels(plan[HARBOR]) == {
        "receipts.dublin.1": (
            "shovel.receipts.harbor.1",
            "",
            "amqp://dublin-core-1.test/%2F",
        )
    }
    assert _keys(plan[DUBLIN_CORE], "shovel.receipts.harbor.1") == {("receipts", ALL)}


def test_each_broker_of_a_proxy_has_a_shovel_to_a_client_broker() -> None:
    plan = shovel_plan(fabric(client=2, proxy=3), "oregon", TOPICS)
    found = {
        name: (str(broker), source)
        for broker, part in plan.items()
        for name, (_, _, source) in _shovels(part).items()
        if name.startswith("proxy.")
    }
    assert found == {
        "proxy.harbor.1": ("oregon-client-1", "amqp://harbor-1.test/%2F"),
        "proxy.harbor.2": ("oregon-client-2", "amqp://harbor-2.test/%2F"),
        "proxy.harbor.3": ("oregon-client-1", "amqp://harbor-3.test/%2F"),
    }


def test_regions_dont_touch_each_others_shovels_and_queues_at_a_proxy() -> None:
    assert owned_shovel("dublin", HARBOR.cluster, "receipts.dublin.1")
    assert not owned_shovel("dublin", HARBOR.cluster, "receipts.oregon.1")
    assert owned_queue("dublin", HARBOR.cluster, "shovel.publish.dublin.1")
    assert not owned_queue("dublin", HARBOR.cluster, "shovel.publish.oregon.1")
    assert owned_shovel("dublin", DUBLIN_CLIENT.cluster, "proxy.harbor.1")
    assert not owned_shovel("dublin", OREGON_CLIENT.cluster, "proxy.harbor.1")


@pytest.mark.promise("S4", "D1")
def test_under_overload_identities_last_for_as_long_as_queues_hold_copies_back() -> None:
    # The highest rates a second that a region and one router route (docs/performance.md).
    gateway_s = _remembered_s(HubLimits().identities, 5_000)
    router_s = MOST / 4_500
    held_s = (ROUTER_BOUNDS.message_ttl_ms or 0) / 1000
    assert gateway_s >= 2 * held_s
    assert router_s >= held_s


def test_up_to_the_rate_in_guarantees_identities_last_for_their_time() -> None:
    assert _remembered_s(HubLimits().identities, 1_600) >= HubLimits().identity_seconds
    assert MOST / 1_100 >= KEEP_MS / 1000


def _remembered_s(identities: int, rate: int) -> int:
    """Return the shortest time in s that the window remembers an identity, at ``rate`` a second."""
    one_in = rate // 100
    seen = SeenIdentities(seconds=HubLimits().identity_seconds, limit=identities // 100)
    arrived: list[float] = []
    shortest = float("inf")
    while len(arrived) < 2 * identities // 100:
        now = len(arrived) / one_in
        before = len(seen)
        seen.add(len(arrived), now)
        arrived.append(now)
        if len(seen) <= before:
            shortest = min(shortest, now - arrived[len(arrived) - len(seen) - 1])
    return int(shortest)


def test_what_another_region_plans_on_a_broker_is_disjoint_from_the_regions_own() -> None:
    known = fabric(client=2, core=2)
    plans = [shovel_plan(known, region.name, TOPICS) for region in known.regions]
    for each in plans[0].keys() & plans[1].keys():
        queues = [{queue.name for queue in plan[each].queues} for plan in plans]
        assert queues[0].isdisjoint(queues[1])


@pytest.mark.promise("F2")
def test_no_publisher_may_be_called_as_the_queues_begin_that_others_messages_wait_in() -> None:
    known = fabric(client=2, core=2)
    links = [link for region in known.regions for link in region_links(known, region.name, TOPICS)]
    queues = [link.queue.name for link in links if link.source.role != "core"]
    assert queues
    for app_id in {name.split(".", 1)[0] for name in queues}:
        with pytest.raises(ConfigError, match="isn't free"):
            parse_topics(
                {"topic": [{"pattern": "#"}], "publisher": [{"app_id": app_id, "topics": ["#"]}]}
            )


def test_every_planned_shovel_and_source_queue_is_its_regions_by_name_and_nobody_elses() -> None:
    known = fabric(regions=("oregon", "dublin", "oregon-2"), client=2, core=3)
    for region in known.regions:
        for link in region_links(known, region.name, TOPICS):
            for other in known.regions:
                own = other == region
                assert owned_shovel(other.name, link.runs_on, link.name) is own
                assert owned_queue(other.name, link.source, link.queue.name) is own


def test_nobody_owns_what_isnt_a_shovels() -> None:
    for name in ("router.1", "rejected", "box.oregon-retail-1.1", "amq.gen-x", "shovelling"):
        assert not owned_queue("oregon", OREGON_CORE.cluster, name)
    assert not owned_shovel("oregon", OREGON_CORE.cluster, "federate-wires")
    assert not owned_shovel("oregon", OREGON_CORE.cluster, "receipts.1")


@pytest.mark.promise("O4")
def test_every_queue_is_bounded_and_loses_its_oldest() -> None:
    parts = shovel_plan(fabric(core=2), "oregon", TOPICS).values()
    fed = box_feed("box", 1, "amqp://core-1/%2F").queue
    for queue in (fed, *(queue for part in parts for queue in part.queues)):
        arguments = queue.bounds.arguments()
        assert 0 < arguments["x-max-length"] <= 100_000
        assert 0 < arguments["x-max-length-bytes"] <= 256 << 20
        assert arguments["x-overflow"] == "drop-head"


def test_a_source_queue_on_anothers_broker_expires_and_forgets() -> None:
    for link in region_links(fabric(), "oregon", TOPICS):
        arguments = link.queue.bounds.arguments()
        assert 0 < arguments["x-message-ttl"] < arguments["x-expires"]


@pytest.mark.parametrize("cluster", [OREGON_CLIENT.cluster, HARBOR.cluster], ids=str)
def test_a_broker_that_begins_without_data_has_at_once_all_that_shovels_take_from(
    cluster: Cluster,
) -> None:
    known = fabric(client=2, core=2, proxy=2)
    plans = [shovel_plan(known, region.name, TOPICS) for region in known.regions]
    taken = taken_from(known, cluster, TOPICS)
    for at in (at for at in brokers_of(known) if at.cluster == cluster):
        wanted = sum((plan[at] for plan in plans if at in plan), BrokerObjects())
        assert set(taken.queues) == set(wanted.queues)
        assert set(taken.bindings) == set(wanted.bindings)
    document = client_definitions(taken)
    assert {"source": "publish", "routing_key": "#"}.items() <= next(
        each.items()
        for each in document["bindings"]
        if each["destination"] == "shovel.publish.oregon.1"
    )


def test_a_canary_of_the_region_goes_through_each_of_its_shovels() -> None:
    for link in region_links(fabric(client=2, core=2), "oregon", TOPICS):
        assert {ALL, "_fabric.canary.oregon"} & set(link.keys), link.id


def test_a_shovel_keeps_routing_keys_and_confirms_before_it_acknowledges() -> None:
    link = box_feed("oregon-retail-1", 2, "amqp://core-2/%2F")
    value = shovel_value(link, CREDENTIALS)
    assert value["src-uri"] == "amqp://shovel:s3cret%2F%40%3A@core-2/%2F?heartbeat=3"
    assert value["src-queue"] == "box.oregon-retail-1.2"
    assert value["src-queue-args"]["x-expires"] == 120_000
    assert value["dest-uri"] == DIRECT
    assert value["dest-exchange"] == "postoffice"
    assert "dest-exchange-key" not in value
    assert value["ack-mode"] == "on-confirm"
    assert value["dest-add-forward-headers"] is True


def test_receipts_wait_for_no_publishers_queue() -> None:
    plan = shovel_plan(fabric(), "oregon", TOPICS)
    made = {shovel.name: shovel for part in plan.values() for shovel in part.shovels}
    modes = {name: shovel_value(each, CREDENTIALS)["ack-mode"] for name, each in made.items()}
    assert modes == {
        "publish.oregon.1": "on-confirm",
        "publish.dublin.1": "on-confirm",
        "outbound.dublin.1": "on-confirm",
        "receipts.1": "on-publish",
    }


def test_the_way_upstream_may_take_any_core_node() -> None:
    value = shovel_value(box_upstream(["amqp://a/%2F", "amqp://b/%2F"]), Credentials())
    assert value["src-uri"] == DIRECT
    assert value["dest-uri"] == [
        "amqp://guest:guest@a/%2F?heartbeat=3",
        "amqp://guest:guest@b/%2F?heartbeat=3",
    ]
    # The publishing user: the broker there checks it.
    assert value["dest-publish-properties"] == {"user_id": "guest"}


def test_a_shovel_over_tls_verifies_whom_it_talks_to() -> None:
    url = "amqps://core-1.example:5671/%2F"
    trusting = TlsFiles(authorities=Path("/etc/newsfabric/tls/ca.pem"))
    value = shovel_value(box_upstream([url]), Credentials("box.b", "p/w", trusting))
    assert value["dest-uri"] == (
        "amqps://box.b:p%2Fw@core-1.example:5671/%2F"
        "?heartbeat=3&cacertfile=/etc/newsfabric/tls/ca.pem&verify=verify_peer"
    )
    own = shovel_value(
        box_upstream([f"{url}?cacertfile=/own.pem&heartbeat=5&verify=verify_none"]),
        Credentials("box.b", "pw", trusting),
    )
    assert own["dest-uri"] == (
        "amqps://box.b:pw@core-1.example:5671/%2F"
        "?heartbeat=5&cacertfile=/own.pem&verify=verify_peer"
    )


def test_a_shovel_with_a_certificate_has_no_password() -> None:
    shown = TlsFiles(
        authorities=Path("/tls/ca.pem"), certificate=Path("/tls/b.pem"), key=Path("/tls/b-key.pem")
    )
    urls = ["amqps://a/%2F", "amqp://b/%2F"]
    value = shovel_value(box_upstream(urls), Credentials("box.b", "pw", shown))
    assert value["dest-uri"] == [
        "amqps://a/%2F?heartbeat=3&cacertfile=/tls/ca.pem&verify=verify_peer"
        "&certfile=/tls/b.pem&keyfile=/tls/b-key.pem&auth_mechanism=external",
        # Without TLS no certificate can be sent.
        "amqp://box.b:pw@b/%2F?heartbeat=3",
    ]
    assert value["dest-publish-properties"] == {"user_id": "box.b"}


def test_on_the_way_down_a_message_keeps_the_user_whom_a_broker_has_checked() -> None:
    feed = shovel_value(box_feed("b", 1, "amqp://a/%2F"), Credentials())
    assert "dest-publish-properties" not in feed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("amqp://guest:guest@127.0.0.1:5672/%2F", "amqp://***@127.0.0.1:5672/%2F"),
        ("amqps://u:p%40@host", "amqps://***@host"),
        (
            "can't reach amqp://u:p@a/x or 'amqp://u:q@b'",
            "can't reach amqp://***@a/x or 'amqp://***@b'",
        ),
        ("amqp://u:p/w@host", "amqp://***@host"),
        ("amqp://", "amqp://"),
        ("mail a@b", "mail a@b"),
    ],
)
def test_logins_in_uris_are_masked(text: str, shown: str) -> None:
    assert mask(text) == shown


def test_definitions_make_users_and_hold_hashes_of_their_passwords() -> None:
    document = client_definitions(BrokerObjects(), [operator("guest")], {"guest": "s3cret"})
    (user,) = document["users"]
    assert user["tags"] == ["administrator", "impersonator"]
    assert "s3cret" not in json.dumps(document)
    salt = base64.b64decode(user["password_hash"])[:4]
    assert hash_password("s3cret", salt) == user["password_hash"]
    assert document["permissions"][0]["user"] == "guest"


def test_a_password_hash_is_salted_sha256() -> None:
    salt = b"\x90\x8d\xc6\x0a"
    expected = base64.b64encode(salt + hashlib.sha256(salt + b"test12").digest()).decode()
    # The example of RabbitMQ's guide to passwords.
    assert expected == "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
    assert hash_password("test12", salt) == expected


def test_without_users_definitions_name_none() -> None:
    assert client_definitions(BrokerObjects())["users"] == []


def test_a_core_broker_gets_its_queues_from_its_definitions() -> None:
    document = core_definitions(TOPICS)
    assert {queue["name"] for queue in document["queues"]} == {
        "router.1",
        "router.2",
        "mailbox",
        "rejected",
    }
    assert {exchange["name"] for exchange in document["exchanges"]} == {
        "intake",
        "postoffice",
        "outbound",
        "upstream",
        "orders",
        "rejected",
        "receipts",
    }


@pytest.mark.broker
async def test_a_node_that_booted_with_its_definitions_holds_them_and_knows_the_user(
    rabbitmq_home: RabbitmqHome, tmp_path: Path
) -> None:
    user = Credentials("fabric", "s3cret/@:")
    document = core_definitions(TOPICS, [operator(user.username)], {user.username: user.password})
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    node = LocalNode(tmp_path, rabbitmq_home, definitions=path)
    try:
        await asyncio.to_thread(node.start)
        async with Management(node.management_url, user) as api:
            declared = {
                queue.name: dict(queue.arguments) for queue in (await api.queues()).values()
            }
            assert declared == {q["name"]: q["arguments"] for q in document["queues"]}
            assert await api.bindings() == {
                Binding("intake", "router.1"),
                Binding("intake", "router.2", "news.breaking"),
                Binding("intake", "router.2", "user.*"),
                Binding("upstream", "mailbox", "_fabric.mark"),
                Binding("rejected", "rejected"),
            }
            assert {e["name"] for e in document["exchanges"]} <= set(await api.exchanges())
        async with Management(node.management_url, Credentials()) as stranger:
            with pytest.raises(ManagementError):
                await stranger.overview()
    finally:
        await asyncio.to_thread(node.kill)


class _Recorded:
    """A Declare that records declarations in the shape of definitions."""

    def __init__(self) -> None:
        self.exchanges: dict[str, str] = {}
        self.queues: dict[str, object] = {}
        self.bindings: set[Binding] = set()

    async def exchange(self, name: str, *, type: str = "topic", durable: bool = True) -> None:
        assert durable
        self.exchanges[name] = type

    async def queue(
        self,
        name: str,
        *,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, object] | None = None,
    ) -> str:
        assert durable
        assert not exclusive
        assert not auto_delete
        self.queues[name] = arguments
        return name

    async def bind(self, queue: str, exchange: str, key: str) -> None:
        assert queue in self.queues
        assert exchange in self.exchanges
        self.bindings.add(Binding(exchange, queue, key))

    async def delete_queue(self, name: str) -> None:
        raise AssertionError(name)


async def test_a_box_declares_what_its_definitions_say() -> None:
    declared = _Recorded()
    await declare_retail(declared)
    document = retail_definitions()
    assert declared.exchanges == {e["name"]: e["type"] for e in document["exchanges"]}
    assert declared.queues == {q["name"]: q["arguments"] for q in document["queues"]}
    assert declared.bindings == {
        Binding(b["source"], b["destination"], b["routing_key"]) for b in document["bindings"]
    }
