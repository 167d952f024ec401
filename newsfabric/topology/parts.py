"""Exchanges and queues of each kind of broker: client broker, core broker, retail box."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

from newsfabric.messages.control import drain_key, load_key
from newsfabric.messages.mailbox import MARK_KEY
from newsfabric.topics import TopicTable
from newsfabric.topology.values import (
    BOX_BOUNDS,
    DIRECT,
    GATEWAY_BOUNDS,
    GATEWAY_QUEUE,
    INTAKE,
    MAILBOX_BOUNDS,
    ORDERS,
    OUTBOUND,
    POSTOFFICE,
    PUBLISH,
    RECEIPTS,
    REJECTED,
    REJECTED_BOUNDS,
    ROUTER_BOUNDS,
    UPSTREAM,
    UPSTREAM_BOUNDS,
    UPSTREAM_QUEUE,
    Binding,
    BrokerObjects,
    Exchange,
    Queue,
    ShovelLink,
)

CLIENT: Final = BrokerObjects((Exchange(PUBLISH),))

CORE_EXCHANGES: Final = tuple(
    Exchange(name) for name in (INTAKE, POSTOFFICE, OUTBOUND, UPSTREAM, ORDERS, REJECTED, RECEIPTS)
)

RETAIL: Final = BrokerObjects(
    exchanges=(Exchange(POSTOFFICE), Exchange(UPSTREAM)),
    queues=(Queue(GATEWAY_QUEUE, GATEWAY_BOUNDS), Queue(UPSTREAM_QUEUE, UPSTREAM_BOUNDS)),
    bindings=(Binding(POSTOFFICE, GATEWAY_QUEUE), Binding(UPSTREAM, UPSTREAM_QUEUE)),
)


# The queue on which a region's mailbox services compete, on each core broker.
MAILBOX_QUEUE: Final = "mailbox"

# Prefixes of queue names. On client clusters queues with the first two are the fabric's own.
SHOVEL_QUEUES: Final = "shovel."
KEEPER_QUEUES: Final = "keeper."
BOX_QUEUES: Final = "box."
OWN_QUEUES: Final = (SHOVEL_QUEUES, KEEPER_QUEUES)
# The prefix of names that a broker generates. No user can declare an exchange or choose a queue
# name with this prefix: "amq." is reserved (AMQP 0-9-1 section 2.1.2.1 and 2.1.3).
NAMED_BY_BROKER: Final = "amq.gen-"
# The feeds of a box, each with a queue on a core broker.
FEEDS: Final = (1, 2)


def router_queue(n: int) -> str:
    """Return the name of the ``n``-th (1, 2) queue of a core broker that routers compete on."""
    return f"router.{n}"


def router_queues() -> tuple[str, ...]:
    """Return the names of all queues of a core broker that routers consume."""
    return router_queue(1), router_queue(2)


def box_queue(box: str, n: int) -> str:
    """Return the name of a core broker's queue for feed ``n`` (1, 2) of ``box``."""
    return f"{BOX_QUEUES}{box}.{n}"


def box_of(queue: str) -> str | None:
    """Return the box that queue ``queue`` of a core broker feeds; None if it is another queue."""
    name = queue.removeprefix(BOX_QUEUES).rpartition(".")[0]
    return name if name and queue in (box_queue(name, feed) for feed in FEEDS) else None


def keeper_queues(region: str) -> str:
    """Return the prefix of the queues from which the keepers of ``region`` consume canaries."""
    return f"{KEEPER_QUEUES}{region}."


def core(topics: TopicTable) -> BrokerObjects:
    """Return the exchanges, queues and bindings of each core broker.

    All messages enter by ``router.1``, gold by ``router.2`` as well, where it waits only behind
    other gold.
    """
    return BrokerObjects(
        exchanges=CORE_EXCHANGES,
        queues=(
            *(Queue(name, ROUTER_BOUNDS) for name in router_queues()),
            Queue(MAILBOX_QUEUE, MAILBOX_BOUNDS),
            Queue(REJECTED, REJECTED_BOUNDS),
        ),
        bindings=(
            Binding(INTAKE, router_queue(1)),
            *(Binding(INTAKE, router_queue(2), key) for key in topics.copied_patterns),
            Binding(UPSTREAM, MAILBOX_QUEUE, MARK_KEY),
            Binding(REJECTED, REJECTED),
        ),
    )


def feed_bindings(region: str, box: str, queue: str) -> tuple[Binding, ...]:
    """Return the bindings of ``queue``, which feeds ``box``: messages, orders, its load reports.

    The keepers of ``region`` bind it, since a user that may bind may make bindings without limit.
    """
    return (
        Binding(POSTOFFICE, queue),
        Binding(ORDERS, queue, drain_key(region, box)),
        Binding(UPSTREAM, queue, load_key(region, box)),
    )


def box_feed(box: str, n: int, core_url: str) -> ShovelLink:
    """Return the shovel on ``box`` for its ``n``-th feed, from the core broker at ``core_url``."""
    return ShovelLink(
        name=f"postoffice.{n}",
        source=core_url,
        queue=Queue(box_queue(box, n), BOX_BOUNDS),
        exchange=POSTOFFICE,
    )


def box_sources(box: str, cores: Sequence[str]) -> tuple[str, ...]:
    """Return the URLs of ``cores`` that feed a new box: two if possible, spread over boxes."""
    start = zlib.crc32(box.encode()) % len(cores)
    return tuple(cores[(start + n) % len(cores)] for n in range(min(2, len(cores))))


def box_upstream(core_urls: Sequence[str]) -> ShovelLink:
    """Return the shovel on a box that carries ``upstream`` to any one of these core brokers."""
    return ShovelLink(
        name="upstream",
        source=DIRECT,
        queue=Queue(UPSTREAM_QUEUE, UPSTREAM_BOUNDS),
        exchange=UPSTREAM,
        destinations=tuple(core_urls),
    )


def owned_box_shovel(name: str) -> bool:
    """Return whether shovel ``name`` on a box's broker is for its agent to keep or remove."""
    return name == "upstream" or name.startswith("postoffice.")
