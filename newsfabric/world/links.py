"""The links between regions, as values: through which proxy a region sees a node of another. Pure.

One Toxiproxy stands for all wires between regions. Every region gets a view of the others in
which each node's addresses are those of a proxy of its own, so each pair can be cut and slowed
alone. What goes through it is what would leave a region in production: shovels, and the
management API that their keeper uses. Readers, and the store's own replication, don't; nor do
receipts on their way to a proxy cluster.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from newsfabric.settings import Fabric, Node
from newsfabric.world.broker import HOST, Broker

#: From the world's first port: Toxiproxy's API, then the proxies.
API: Final = 1
FIRST: Final = 2
MOST: Final = 98


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """What ``region`` connects to (``port``) for something of ``other``'s node (``upstream``)."""

    name: str
    link: str
    region: str
    other: str
    node: str
    management: bool
    port: int
    upstream: int


def link_name(one: str, other: str) -> str:
    """The link between two regions, both ways; the regions in the world's order."""
    return f"{one}-{other}-link"


def lay_proxies(
    regions: Sequence[str], nodes: Sequence[tuple[str, Sequence[Broker]]], *, port_base: int
) -> tuple[Proxy, ...]:
    """Proxies from each of ``regions`` to all ``nodes`` elsewhere that it connects to."""
    order = [place for place, _ in nodes]
    wires = [
        (region, other, broker, management)
        for region in regions
        for other, brokers in nodes
        if other != region
        for broker in brokers
        for management in (False, True)
    ]
    return tuple(
        Proxy(
            name=f"{region}--{broker.name}--{'management' if management else 'amqp'}",
            link=link_name(*sorted((region, other), key=order.index)),
            region=region,
            other=other,
            node=broker.name,
            management=management,
            port=port_base + FIRST + n,
            upstream=broker.management_port if management else broker.amqp_port,
        )
        for n, (region, other, broker, management) in enumerate(wires)
    )


def view(fabric: Fabric, region: str, proxies: Iterable[Proxy]) -> Fabric:
    """``fabric`` as ``region`` sees it: the others' nodes through its proxies."""
    own = {(p.node, p.management): p.port for p in proxies if p.region == region}

    def seen(node: Node) -> Node:
        amqp, management = own.get((node.name, False)), own.get((node.name, True))
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
    """Toxiproxy's ``-config``: all proxies, well."""
    entries: list[dict[str, Any]] = [
        {
            "name": proxy.name,
            "listen": f"{HOST}:{proxy.port}",
            "upstream": f"{HOST}:{proxy.upstream}",
            "enabled": True,
        }
        for proxy in proxies
    ]
    return json.dumps(entries, indent=1) + "\n"
