"""The queues of a world that can be lost, by name. Pure.

A name says where and what: ``oregon/core/router.1``, ``oregon-retail-1/gateway``. They are those
that outlive their connections, at their first homes: what one process has for itself goes with its
connection, and a broker lets nobody else delete it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

from localfabric.world.layout import WorldLayout
from localfabric.world.parts import unknown_name
from newsfabric.settings import Node
from newsfabric.topics import TopicTable
from newsfabric.topology import (
    GATEWAY_QUEUE,
    REJECTED,
    RETAIL,
    UPSTREAM_QUEUE,
    Cluster,
    box_queue,
    mailbox_queues,
    router_queues,
    shovel_plan,
)
from newsfabric.topology.parts import paths

#: What a queue is for. ``region queue``: what a region's shovels take from another cluster.
QueueKind = Literal[
    "router queue",
    "mailbox queue",
    "feed queue",
    "gateway queue",
    "upstream queue",
    "region queue",
    "receipts queue",
    "rejected queue",
]
_BY_NAME: Final[dict[str, QueueKind]] = {
    **dict.fromkeys(router_queues(), "router queue"),
    **dict.fromkeys(mailbox_queues(2), "mailbox queue"),
    GATEWAY_QUEUE: "gateway queue",
    UPSTREAM_QUEUE: "upstream queue",
    REJECTED: "rejected queue",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorldQueue:
    """A queue called ``queue`` on the brokers with these management APIs."""

    name: str
    kind: QueueKind
    queue: str
    management: tuple[str, ...]


def queues(layout: WorldLayout, topics: TopicTable) -> dict[str, WorldQueue]:
    """Every queue by its name here."""
    found = [*_of_clusters(layout, topics), *_of_boxes(layout)]
    return {queue.name: queue for queue in found}


def find_queues(layout: WorldLayout, topics: TopicTable, names: Sequence[str]) -> list[WorldQueue]:
    """The queues called ``names``, each once; ConfigError lists those there are."""
    known = queues(layout, topics)
    for name in names:
        if name not in known:
            raise unknown_name(name, list(known), "queue")
    return [known[name] for name in dict.fromkeys(names)]


def _of_clusters(layout: WorldLayout, topics: TopicTable) -> Iterator[WorldQueue]:
    fabric = layout.fabric()
    nodes: dict[Cluster, tuple[Node, ...]] = {}
    for region in fabric.regions:
        nodes[Cluster(region.name, "client")] = region.client
        nodes[Cluster(region.name, "core")] = region.core
    nodes |= {Cluster(proxy.name, "proxy"): proxy.nodes for proxy in fabric.proxies}
    for region in fabric.regions:
        for cluster, part in shovel_plan(fabric, region.name, topics).items():
            for queue in part.queues:
                yield _queue(str(cluster), queue.name, nodes[cluster])
    for laid in layout.regions:
        core = Cluster(laid.name, "core")
        for box in laid.boxes:
            for n in range(1, paths(len(laid.core)) + 1):
                yield _queue(str(core), box_queue(box.name, n), nodes[core])


def _of_boxes(layout: WorldLayout) -> Iterator[WorldQueue]:
    for box in layout.boxes():
        node = Node(box.name, box.broker.amqp_url, box.broker.management_url)
        for queue in RETAIL.queues:
            yield _queue(box.name, queue.name, [node])


def _queue(where: str, queue: str, nodes: Iterable[Node]) -> WorldQueue:
    return WorldQueue(
        name=f"{where}/{queue}",
        kind=_kind(queue),
        queue=queue,
        management=tuple(node.management_url for node in nodes),
    )


def _kind(queue: str) -> QueueKind:
    if queue in _BY_NAME:
        return _BY_NAME[queue]
    if queue.startswith("box."):
        return "feed queue"
    return "receipts queue" if queue.startswith("shovel.receipts.") else "region queue"
