"""Fabrics and brokers as values, for tests of what is planned on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from newsfabric.management import QueueState
from newsfabric.settings import Credentials, Fabric, Node, Region
from newsfabric.topics import TopicTable, parse_topics
from newsfabric.topology import Binding, Cluster, Exchange, Queue, ShovelLink, shovel_value
from shovels.plan import Action, Actual

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
    """A topic table with these gold patterns and a silver one for the rest."""
    entries: list[dict[str, str]] = [{"pattern": pattern, "class": "gold"} for pattern in gold]
    return parse_topics({"topic": [*entries, {"pattern": "#"}]})


def node(name: str) -> Node:
    return Node(name, f"amqp://{name}.test/%2F", f"http://{name}.test:15672")


def fabric(
    *, regions: Iterable[str] = ("oregon", "dublin"), client: int = 1, core: int = 1
) -> Fabric:
    """``regions`` with so many nodes in each cluster."""
    return Fabric(
        tuple(
            Region(
                name=name,
                frontdesk_url=f"http://{name}.test",
                client=tuple(node(f"{name}-client-{n}") for n in range(1, client + 1)),
                core=tuple(node(f"{name}-core-{n}") for n in range(1, core + 1)),
            )
            for name in regions
        )
    )


def clusters(known: Fabric) -> dict[Cluster, list[str]]:
    """The clusters of a fabric and their nodes' names."""
    found = {}
    for region in known.regions:
        found[Cluster(region.name, "client")] = [each.name for each in region.client]
        found[Cluster(region.name, "core")] = [each.name for each in region.core]
    return found


def fresh(names: Iterable[str], *, down: frozenset[str] = frozenset()) -> Actual:
    """A cluster that nobody has touched."""
    return Actual(
        exchanges={"amq.topic": "topic"},
        queues={},
        bindings=frozenset(),
        shovels={},
        nodes={f"{name}@host": name not in down for name in names},
    )


def fresh_fabric(known: Fabric) -> dict[Cluster, Actual]:
    """All clusters of a fabric, untouched."""
    return {cluster: fresh(names) for cluster, names in clusters(known).items()}


def with_down(actual: Mapping[Cluster, Actual], down: Iterable[str]) -> dict[Cluster, Actual]:
    """The same clusters with these nodes down and all others up."""
    gone = set(down)
    return {
        cluster: Actual(
            exchanges=found.exchanges,
            queues=found.queues,
            bindings=found.bindings,
            shovels=found.shovels,
            nodes={name: name.partition("@")[0] not in gone for name in found.nodes},
        )
        for cluster, found in actual.items()
    }


def performed(
    actual: Mapping[Cluster, Actual],
    actions: Iterable[Action],
    credentials: Credentials = CREDENTIALS,
) -> dict[Cluster, Actual]:
    """What the clusters are after ``actions``: a broker in a few lines.

    It is as strict as the real one where order matters: a binding needs both its ends, and
    a shovel is only put when its source queue and its destination are there.
    """
    exchanges = {cluster: dict(found.exchanges) for cluster, found in actual.items()}
    queues = {cluster: dict(found.queues) for cluster, found in actual.items()}
    bindings = {cluster: set(found.bindings) for cluster, found in actual.items()}
    shovels: dict[Cluster, dict[str, Any]] = {c: dict(f.shovels) for c, f in actual.items()}
    for action in actions:
        at = action.cluster
        match action.verb, action.wanted:
            case "delete", Binding() as binding:
                bindings[at].remove(binding)
            case "delete", _ if action.kind == "shovel":
                del shovels[at][action.name]
            case "delete", _:
                del queues[at][action.name]
                bindings[at] = {b for b in bindings[at] if b.queue != action.name}
            case _, Exchange() as exchange:
                exchanges[at][exchange.name] = exchange.type
            case verb, Queue() as queue:
                if verb == "update":
                    bindings[at] = {b for b in bindings[at] if b.queue != queue.name}
                home = f"{queue.home}@host"
                assert actual[at].nodes[home], f"{home} is down"
                queues[at][queue.name] = QueueState(queue.name, queue.bounds.arguments(), home)
            case _, Binding() as binding:
                assert binding.queue in queues[at]
                assert binding.exchange in exchanges[at]
                bindings[at].add(binding)
            case _, ShovelLink() as link:
                assert any(link.queue.name in there for there in queues.values())
                assert link.exchange in exchanges[at]
                shovels[at][link.name] = shovel_value(link, credentials)
    return {
        cluster: Actual(
            exchanges=exchanges[cluster],
            queues=queues[cluster],
            bindings=frozenset(bindings[cluster]),
            shovels=shovels[cluster],
            nodes=found.nodes,
        )
        for cluster, found in actual.items()
    }
