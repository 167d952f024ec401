"""Fabrics and brokers as values, for tests of plans for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from newsfabric.brokers.management import QueueState
from newsfabric.settings import Credentials, Fabric, Node, ProxyCluster, Region
from newsfabric.topics import TopicTable, parse_topics
from newsfabric.topology import (
    Binding,
    Broker,
    Cluster,
    Exchange,
    Queue,
    ShovelLink,
    brokers_of,
    shovel_value,
)
from shovels.plan import Action, Actual

_T = TypeVar("_T")

CREDENTIALS = Credentials("shovel", "s3cret/@:")

TOPICS = parse_topics(
    {
        "topic": [
            {"pattern": "news.breaking", "class": "gold"},
            {"pattern": "user.*", "class": "gold"},
            {"pattern": "#"},
        ]
    }
)


def topics_of(*gold: str) -> TopicTable:
    """Return a topic table with these gold patterns and a silver one for the rest."""
    entries: list[dict[str, str]] = [{"pattern": pattern, "class": "gold"} for pattern in gold]
    return parse_topics({"topic": [*entries, {"pattern": "#"}]})


def node(name: str) -> Node:
    return Node(name, f"amqp://{name}.test/%2F", f"http://{name}.test:15672")


def fabric(
    *,
    regions: Iterable[str] = ("oregon", "dublin"),
    client: int = 1,
    core: int = 1,
    proxy: int = 0,
) -> Fabric:
    """Return a fabric with so many brokers in each cluster; a proxy cluster is named harbor."""
    names = tuple(regions)
    return Fabric(
        tuple(
            Region(
                name=name,
                frontdesk_url=f"http://{name}.test",
                client=_nodes(f"{name}-client", client),
                core=_nodes(f"{name}-core", core),
            )
            for name in names
        ),
        (ProxyCluster(name="harbor", nodes=_nodes("harbor", proxy), nearest=names[0]),)
        if proxy
        else (),
    )


def _nodes(cluster: str, count: int) -> tuple[Node, ...]:
    return tuple(node(f"{cluster}-{n}") for n in range(1, count + 1))


def broker(name: str) -> Broker:
    """Return the broker named ``oregon-core-1``, or harbor-1 of the proxy cluster ``harbor``."""
    place, _, _ = name.rpartition("-")
    region, _, role = place.rpartition("-")
    match role:
        case "client" | "core":
            return Broker(Cluster(region, role), name)
    return Broker(Cluster(place, "proxy"), name)


def fresh() -> Actual:
    """Return a new, unchanged broker."""
    return Actual(
        exchanges={"amq.topic": "topic"}, queues={}, bindings=frozenset(), shovels={}, states={}
    )


def fresh_fabric(known: Fabric) -> dict[Broker, Actual]:
    """Return all brokers of a fabric, new and unchanged."""
    return {each: fresh() for each in brokers_of(known)}


def answering(actual: Mapping[Broker, Actual], away: Collection[Broker]) -> dict[Broker, Actual]:
    """Return the brokers that aren't ``away``."""
    return {each: found for each, found in actual.items() if each not in away}


def all_run(actual: Mapping[Broker, Actual]) -> dict[Broker, Actual]:
    """Return the same brokers with all their shovels reported as running."""
    return {
        each: replace(found, states=dict.fromkeys(found.shovels, "running"))
        for each, found in actual.items()
    }


def performed(
    actual: Mapping[Broker, Actual],
    actions: Iterable[Action],
    credentials: Credentials = CREDENTIALS,
) -> dict[Broker, Actual]:
    """Return the brokers' state after ``actions``: RabbitMQ in a few lines.

    It is as strict as RabbitMQ where order matters: a binding needs both its ends, and a shovel is
    put only if its destination exists.
    """
    found = dict(actual)
    for action in actions:
        found[action.broker] = _after(found[action.broker], action, credentials)
    return found


def _after(found: Actual, action: Action, credentials: Credentials) -> Actual:
    match action.verb, action.wanted:
        case "delete", Binding() as binding:
            return replace(found, bindings=found.bindings - {binding})
        case "delete", _ if action.kind == "shovel":
            return replace(found, shovels=_without(found.shovels, action.name))
        case "delete", _:
            queues = _without(found.queues, action.name)
            return replace(found, queues=queues, bindings=_unbound(found, action.name))
        case _, Exchange() as exchange:
            return replace(found, exchanges={**found.exchanges, exchange.name: exchange.type})
        case verb, Queue() as queue:
            state = QueueState(queue.name, queue.bounds.arguments())
            bindings = _unbound(found, queue.name) if verb == "update" else found.bindings
            return replace(found, queues={**found.queues, queue.name: state}, bindings=bindings)
        case _, Binding() as binding:
            assert binding.queue in found.queues
            assert binding.exchange in found.exchanges
            return replace(found, bindings=found.bindings | {binding})
        case _, ShovelLink() as link:
            assert not link.exchange or link.exchange in found.exchanges
            value = shovel_value(link, credentials)
            return replace(found, shovels={**found.shovels, link.name: value})
    raise AssertionError(action)


def _without(found: Mapping[str, _T], name: str) -> dict[str, _T]:
    return {other: value for other, value in found.items() if other != name}


def _unbound(found: Actual, queue: str) -> frozenset[Binding]:
    return frozenset(binding for binding in found.bindings if binding.queue != queue)
