"""The links between regions, as values: the proxies on the way to other regions' nodes. Pure.

One Toxiproxy stands for all wires between regions. Every region gets a view of the others in which
each node's addresses are those of a proxy of its own, so each pair can be cut and slowed alone. The
proxies carry the traffic that would leave a region in production: shovels, the management API that
their keeper uses, and Cassandra's replication. They don't carry readers' connections, receipts for
a proxy cluster, or reads in another region's store while the own one is away.

Cassandra's nodes know each other by one address alone, the same for all. So it can be a proxy's if
there are two regions: a connection to it is always the other region's. With more regions the stores
are linked directly.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from localfabric.world.broker import HOST, WorldBroker
from localfabric.world.cassandra import StoreNode
from newsfabric.settings import Fabric, Node

#: From the world's first port: Toxiproxy's API, then the proxies.
API: Final = 1
FIRST: Final = 2
MOST: Final = 98
#: The address of store nodes' proxies, each at its node's port: loopback, like all of 127/8.
STORE_HOST: Final = "127.0.0.2"

#: The suffix of links' names.
LINK_SUFFIX: Final = "-link"

What = Literal["amqp", "management", "store"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """The address at which ``region`` connects to ``what`` of ``other``'s node.

    ``upstream`` is the node's own port.
    """

    name: str
    link: str
    region: str
    other: str
    node: str
    what: What
    port: int
    upstream: int
    host: str = HOST


def link_name(one: str, other: str) -> str:
    """Return the name of the link of two regions, both ways; regions in the world's order."""
    return f"{one}-{other}{LINK_SUFFIX}"


def lay_proxies(
    regions: Sequence[str], nodes: Sequence[tuple[str, Sequence[WorldBroker]]], *, port_base: int
) -> tuple[Proxy, ...]:
    """Return proxies from each of ``regions`` to all ``nodes`` elsewhere that it connects to."""
    order = [place for place, _ in nodes]
    wires = [
        (region, other, broker, what, port)
        for region in regions
        for other, brokers in nodes
        if other != region
        for broker in brokers
        for what, port in _entries(broker)
    ]
    return tuple(
        Proxy(
            name=f"{region}--{broker.name}--{what}",
            link=link_name(*sorted((region, other), key=order.index)),
            region=region,
            other=other,
            node=broker.name,
            what=what,
            port=port_base + FIRST + n,
            upstream=port,
        )
        for n, (region, other, broker, what, port) in enumerate(wires)
    )


def _entries(broker: WorldBroker) -> tuple[tuple[What, int], tuple[What, int]]:
    return ("amqp", broker.amqp_port), ("management", broker.management_port)


def store_host(regions: Sequence[str]) -> str:
    """Return the address at which other regions' nodes find a store node. It is a proxy's if
    :func:`lay_store_proxies` makes some."""
    return STORE_HOST if len(regions) == 2 else HOST


def lay_store_proxies(stores: Sequence[tuple[str, Sequence[StoreNode]]]) -> tuple[Proxy, ...]:
    """Return proxies to every node of the ``stores`` of two regions; none for more or fewer."""
    if len(stores) != 2:
        return ()
    (one, _), (other, _) = stores
    return tuple(
        Proxy(
            name=f"{region}--{node.name}--store",
            link=link_name(one, other),
            region=region,
            other=place,
            node=node.name,
            what="store",
            port=node.gossip_port,
            upstream=node.gossip_port,
            host=node.wire_host,
        )
        for region, (place, nodes) in zip((other, one), stores, strict=True)
        for node in nodes
    )


def view(fabric: Fabric, region: str, proxies: Iterable[Proxy]) -> Fabric:
    """Return ``fabric`` as ``region`` sees it: the others' nodes through its proxies."""
    own = {(p.node, p.what): p.port for p in proxies if p.region == region}

    def seen(node: Node) -> Node:
        amqp, management = own.get((node.name, "amqp")), own.get((node.name, "management"))
        if amqp is None or management is None:
            return node
        return Node(node.name, f"amqp://{HOST}:{amqp}/%2F", f"http://{HOST}:{management}")

    return Fabric(
        tuple(
            dataclasses.replace(
                each, client=tuple(map(seen, each.client)), core=tuple(map(seen, each.core))
            )
            for each in fabric.regions
        ),
        tuple(
            dataclasses.replace(each, nodes=tuple(map(seen, each.nodes))) for each in fabric.proxies
        ),
    )


def configuration(proxies: Iterable[Proxy]) -> str:
    """Return Toxiproxy's ``-config``: all proxies, without faults."""
    entries: list[dict[str, Any]] = [
        {
            "name": proxy.name,
            "listen": f"{proxy.host}:{proxy.port}",
            "upstream": f"{HOST}:{proxy.upstream}",
            "enabled": True,
        }
        for proxy in proxies
    ]
    return json.dumps(entries, indent=1) + "\n"
