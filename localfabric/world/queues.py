"""The queues of a world that can be deleted for a test, by name. Pure.

A name has the broker and the queue: ``oregon-core-1/router.1``, ``oregon-retail-1/gateway``. Only
queues that outlive their connections are here, at their places while all brokers run. A process's
own queue is deleted with its connection, and a broker lets no other user delete it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from localfabric.world.layout import WorldLayout
from localfabric.world.parts import unknown_name
from newsfabric.settings import Node
from newsfabric.topics import TopicTable
from newsfabric.topology import (
    GATEWAY_QUEUE,
    MAILBOX_QUEUE,
    REJECTED,
    RETAIL,
    UPSTREAM_QUEUE,
    box_queue,
    box_sources,
    brokers_of,
    router_queues,
    shovel_plan,
)

#: The purpose of a queue. ``region queue``: the source of a region's shovels from another cluster.
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
    MAILBOX_QUEUE: "mailbox queue",
    GATEWAY_QUEUE: "gateway queue",
    UPSTREAM_QUEUE: "upstream queue",
    REJECTED: "rejected queue",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorldQueue:
    """A queue called ``queue`` on the broker with this management API."""

    name: str
    kind: QueueKind
    queue: str
    management: str


def queues(layout: WorldLayout, topics: TopicTable) -> dict[str, WorldQueue]:
    """Return every queue by its name here."""
    found = [*_of_regions(layout, topics), *_of_boxes(layout)]
    return {queue.name: queue for queue in found}


def find_queues(layout: WorldLayout, topics: TopicTable, names: Sequence[str]) -> list[WorldQueue]:
    """Return the queues with these ``names``, each once; ConfigError lists the known ones."""
    known = queues(layout, topics)
    for name in names:
        if name not in known:
            raise unknown_name(name, list(known), "queue")
    return [known[name] for name in dict.fromkeys(names)]


def _of_regions(layout: WorldLayout, topics: TopicTable) -> Iterator[WorldQueue]:
    fabric = layout.fabric()
    nodes = brokers_of(fabric)
    for region in fabric.regions:
        for broker, part in shovel_plan(fabric, region.name, topics).items():
            for queue in part.queues:
                yield _queue(nodes[broker], queue.name)
    for region, laid in zip(fabric.regions, layout.regions, strict=True):
        urls = {node.amqp_url: node for node in region.core}
        for box in laid.boxes:
            for n, url in enumerate(box_sources(box.name, list(urls)), 1):
                yield _queue(urls[url], box_queue(box.name, n))


def _of_boxes(layout: WorldLayout) -> Iterator[WorldQueue]:
    for box in layout.boxes():
        node = Node(box.name, box.broker.amqp_url, box.broker.management_url)
        for queue in RETAIL.queues:
            yield _queue(node, queue.name)


def _queue(node: Node, queue: str) -> WorldQueue:
    return WorldQueue(
        name=f"{node.name}/{queue}",
        kind=_kind(queue),
        queue=queue,
        management=node.management_url,
    )


def _kind(queue: str) -> QueueKind:
    if queue in _BY_NAME:
        return _BY_NAME[queue]
    if queue.startswith("box."):
        return "feed queue"
    return "receipts queue" if queue.startswith("shovel.receipts.") else "region queue"
