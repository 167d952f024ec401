"""What each kind of broker holds by itself: client cluster, core cluster, retail box."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from newsfabric.mailbox import MARK_KEY
from newsfabric.topics import TopicTable
from newsfabric.topology.values import (
    ALL,
    BOX_BOUNDS,
    DIRECT,
    GATEWAY_BOUNDS,
    GATEWAY_QUEUE,
    INTAKE,
    MAILBOX_BOUNDS,
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
    Exchange,
    Part,
    Queue,
    ShovelLink,
)

CLIENT: Final = Part((Exchange(PUBLISH), Exchange(RECEIPTS, "direct")))

CORE_EXCHANGES: Final = tuple(
    Exchange(name) for name in (INTAKE, POSTOFFICE, OUTBOUND, UPSTREAM, REJECTED, RECEIPTS)
)

RETAIL: Final = Part(
    exchanges=(Exchange(POSTOFFICE), Exchange(UPSTREAM)),
    queues=(Queue(GATEWAY_QUEUE, GATEWAY_BOUNDS), Queue(UPSTREAM_QUEUE, UPSTREAM_BOUNDS)),
    bindings=(Binding(POSTOFFICE, GATEWAY_QUEUE), Binding(UPSTREAM, UPSTREAM_QUEUE)),
)


# What names of queues begin with. On client clusters the first three are the fabric's own.
SHOVEL_QUEUES: Final = "shovel."
FRONTDESK_QUEUES: Final = "frontdesk."
KEEPER_QUEUES: Final = "keeper."
SCALER_QUEUES: Final = "scaler."
BOX_QUEUES: Final = "box."
OWN_QUEUES: Final = (SHOVEL_QUEUES, FRONTDESK_QUEUES, KEEPER_QUEUES)


def router_queue(n: int) -> str:
    """Name of the ``n``-th (1, 2) queue that routers compete on."""
    return f"router.{n}"


def router_queues() -> tuple[str, ...]:
    """Names of all queues that routers consume."""
    return router_queue(1), router_queue(2)


def mailbox_queue(n: int) -> str:
    """Name of the ``n``-th (1, 2) queue that mailbox services compete on."""
    return f"mailbox.{n}"


def mailbox_queues(nodes: int) -> tuple[str, ...]:
    """Names of all queues that mailbox services of a cluster of ``nodes`` consume."""
    return tuple(mailbox_queue(n + 1) for n in range(paths(nodes)))


def box_queue(box: str, n: int, place: str = "") -> str:
    """Name of the core's ``n``-th (1, 2) queue for ``box``.

    ``place`` tells queues on different nodes of the cluster apart: while a node is away, the
    names of its queues are taken.
    """
    name = f"{box_queues(box)}{n}"
    return f"{name}.{place}" if place else name


def box_queues(box: str) -> str:
    """What the names of all of the core's queues for ``box`` begin with."""
    return f"{BOX_QUEUES}{box}."


def box_loads_queue(box: str, token: str) -> str:
    """Name of a queue of the core on which ``box`` hears its own load reports."""
    return f"{box_queues(box)}loads.{token}"


def keeper_queues(region: str) -> str:
    """What the names of the queues begin with on which the keepers of ``region`` hear canaries."""
    return f"{KEEPER_QUEUES}{region}."


def paths(nodes: int) -> int:
    """On how many queues, each with another home, a cluster of ``nodes`` keeps what must live."""
    return min(2, nodes)


def core(topics: TopicTable, nodes: Sequence[str], *, away: frozenset[str] = frozenset()) -> Part:
    """A core cluster's own part; ``nodes`` are its nodes' names, ``away`` those that are down.

    Everything enters by ``router.1``, gold by ``router.2`` as well, where it waits behind nothing
    but gold. While the first of several nodes is away nothing reaches ``router.1``, so
    ``router.2`` takes everything.
    """
    homes = (nodes[0], nodes[paths(len(nodes)) - 1])
    queues = [Queue(router_queue(n), ROUTER_BOUNDS, home) for n, home in enumerate(homes, 1)]
    stands_in = len(nodes) > 1 and nodes[0] in away
    keys = (ALL,) if stands_in else topics.patterns("gold")
    bindings = [Binding(INTAKE, router_queue(1))]
    bindings += [Binding(INTAKE, router_queue(2), key) for key in keys]
    # Marks go both ways: what is done twice is done once.
    marks = [
        Queue(name, MAILBOX_BOUNDS, home)
        for name, home in zip(mailbox_queues(len(nodes)), homes, strict=False)
    ]
    bindings += [Binding(UPSTREAM, queue.name, MARK_KEY) for queue in marks]
    return Part(
        exchanges=CORE_EXCHANGES,
        queues=(*queues, *marks, Queue(REJECTED, REJECTED_BOUNDS, nodes[0])),
        bindings=(*bindings, Binding(REJECTED, REJECTED)),
    )


def box_part(box: str, n: int, place: str = "") -> Part:
    """What box ``box`` declares on the core node that its ``n``-th feed comes from."""
    queue = Queue(box_queue(box, n, place), BOX_BOUNDS)
    return Part(queues=(queue,), bindings=(Binding(POSTOFFICE, queue.name),))


def box_feed(box: str, n: int, core_url: str, place: str = "") -> ShovelLink:
    """The shovel on box ``box`` that is its ``n``-th feed, from the core node at ``core_url``."""
    return ShovelLink(
        name=f"postoffice.{n}",
        sources=(core_url,),
        queue=Queue(box_queue(box, n, place), BOX_BOUNDS),
        exchange=POSTOFFICE,
    )


def box_upstream(core_urls: Sequence[str]) -> ShovelLink:
    """The shovel on a box that carries ``upstream`` to whichever core node answers."""
    return ShovelLink(
        name="upstream",
        sources=(DIRECT,),
        queue=Queue(UPSTREAM_QUEUE, UPSTREAM_BOUNDS),
        exchange=UPSTREAM,
        destinations=tuple(core_urls),
    )


def owned_box_shovel(name: str) -> bool:
    """Whether shovel ``name`` on a box's broker is for its agent to keep or remove."""
    return name == "upstream" or name.startswith("postoffice.")
