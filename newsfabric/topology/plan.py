"""The shovels and source queues that a region wants on its own and on the other regions' brokers.

Each shovel runs where its messages go, and the region it runs for owns its source queue too. This
module decides only which objects are wanted, and which brokers are preferred. While a broker is
away, the keeper (shovels.places) decides where a shovel runs and takes from, and passes that in as
``places``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from newsfabric.messages.control import canary_key
from newsfabric.settings import Fabric, Node, ProxyCluster, Region
from newsfabric.topics import TopicTable
from newsfabric.topology.parts import CLIENT, core
from newsfabric.topology.values import (
    ALL,
    INTAKE,
    OUTBOUND,
    POSTOFFICE,
    PROXY_BOUNDS,
    PUBLISH,
    RECEIPT_BOUNDS,
    RECEIPTS,
    REGION_BOUNDS,
    TO_QUEUES,
    Binding,
    Broker,
    BrokerObjects,
    Cluster,
    Queue,
    ShovelLink,
)

# The suffix of the name of a link's second path.
_SECOND: Final = ".2"


@dataclasses.dataclass(frozen=True, slots=True)
class ShovelPlace:
    """The broker from which a shovel takes, and the broker on which it runs."""

    source: Broker
    host: Broker


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KeptShovel:
    """A shovel that a region keeps, wherever it runs now.

    ``sources`` are the nodes that it may take from, ``hosts`` the nodes that it may run on: the
    preferred one first, then the others in the order in which they replace it. One of the two has a
    single node.
    """

    name: str
    runs_on: Cluster
    source: Cluster
    exchange: str
    keys: tuple[str, ...]
    destination: str
    confirmed: bool = True
    queue: Queue
    sources: tuple[Node, ...]
    hosts: tuple[Node, ...]

    @property
    def id(self) -> str:
        """The shovel's name in lists of all shovels of a fabric."""
        return f"{self.runs_on}/{self.name}"

    @property
    def preferred(self) -> ShovelPlace:
        """The place of the shovel while all brokers run."""
        return self.places()[0]

    def places(self) -> tuple[ShovelPlace, ...]:
        """Return the possible places, the preferred one first."""
        return tuple(
            ShovelPlace(Broker(self.source, source.name), Broker(self.runs_on, host.name))
            for source in self.sources
            for host in self.hosts
        )

    def source_part(self) -> BrokerObjects:
        """Return the queue and bindings that the link needs on the broker that it takes from."""
        bindings = tuple(Binding(self.exchange, self.queue.name, key) for key in self.keys)
        return BrokerObjects(queues=(self.queue,), bindings=bindings)

    def shovel(self, place: ShovelPlace) -> ShovelLink:
        """Return the shovel that takes from the source of ``place``."""
        (url,) = (node.amqp_url for node in self.sources if node.name == place.source.name)
        return ShovelLink(
            name=self.name,
            source=url,
            queue=self.queue,
            exchange=self.destination,
            confirmed=self.confirmed,
        )


def brokers_of(fabric: Fabric) -> dict[Broker, Node]:
    """Return every broker of ``fabric`` but those of boxes."""
    found: dict[Broker, Node] = {}
    for region in fabric.regions:
        found |= _brokers(Cluster(region.name, "client"), region.client)
        found |= _brokers(Cluster(region.name, "core"), region.core)
    for proxy in fabric.proxies:
        found |= _brokers(Cluster(proxy.name, "proxy"), proxy.nodes)
    return found


def region_links(fabric: Fabric, region: str, topics: TopicTable) -> tuple[KeptShovel, ...]:
    """Return every link that the keepers of ``region`` keep, also those at proxy clusters."""
    own = fabric.region(region)
    links = [*_receipts(own)]
    for other in fabric.regions:
        links += _publish(own, other, topics)
    for other in fabric.others(region):
        links += _outbound(own, other)
    for proxy in fabric.proxies:
        links += _from_proxy(proxy, own, topics)
        links += _receipts_of_proxy(proxy, own)
    return tuple(links)


def shovel_plan(
    fabric: Fabric,
    region: str,
    topics: TopicTable,
    *,
    places: Mapping[str, Sequence[ShovelPlace]] | None = None,
) -> dict[Broker, BrokerObjects]:
    """Return ``region``'s objects on each broker: its own, its shovels and their source queues.

    ``places`` has, by :attr:`KeptShovel.id`, the places of a link that isn't at its preferred
    place: several while it moves, the newest first. A broker has one shovel of a name, so of two
    places with the same host the first is used.
    """
    plan: dict[Broker, BrokerObjects] = {}
    for broker in brokers_of(fabric):
        if broker.cluster.region == region or broker.cluster.role == "proxy":
            plan[broker] = core(topics) if broker.cluster.role == "core" else CLIENT
    for link in region_links(fabric, region, topics):
        shovels: dict[Broker, ShovelLink] = {}
        for place in (places or {}).get(link.id, (link.preferred,)):
            plan[place.source] = plan.get(place.source, BrokerObjects()) + link.source_part()
            shovels.setdefault(place.host, link.shovel(place))
        for host, shovel in shovels.items():
            plan[host] += BrokerObjects(shovels=(shovel,))
    return plan


def taken_from(fabric: Fabric, cluster: Cluster, topics: TopicTable) -> BrokerObjects:
    """Return the queues that shovels take from on each broker of ``cluster``, client or proxy.

    Their keepers would make these queues, too, but later: publishers may reach an empty broker
    first, and it would return their messages, for which there is no queue.
    """
    links = (
        link for region in fabric.regions for link in region_links(fabric, region.name, topics)
    )
    return sum((link.source_part() for link in links if link.source == cluster), BrokerObjects())


def takes_copies_alone(shovel: str, region: str) -> bool:
    """Return whether ``shovel`` into the core of ``region`` carries copied classes alone.

    One shovel from each client broker of the region takes all messages.
    """
    takes_all = re.fullmatch(rf"publish\.{re.escape(region)}\.[0-9]+", shovel)
    return shovel.startswith("publish.") and takes_all is None


def runs_shovels(region: str, cluster: Cluster) -> bool:
    """Return whether shovels that ``region`` keeps run on brokers of ``cluster``."""
    return cluster.region == region or cluster.role == "proxy"


def owned_shovel(region: str, cluster: Cluster, name: str) -> bool:
    """Return whether ``region`` keeps or removes shovel ``name`` on a broker of ``cluster``."""
    match cluster.role:
        case "client":
            return cluster.region == region and name.startswith(("receipts.", "proxy."))
        case "core":
            return cluster.region == region and name.startswith(("publish.", "outbound."))
        case "proxy":
            return name.startswith(f"receipts.{region}.")


def owned_queue(region: str, cluster: Cluster, name: str) -> bool:
    """Return whether ``region`` keeps or removes source queue ``name`` on ``cluster``'s brokers."""
    if cluster.role in ("client", "proxy"):
        return name.startswith(f"shovel.publish.{region}.")
    receipts = cluster.region == region and name.startswith("shovel.receipts.")
    return receipts or name.startswith(f"shovel.outbound.{region}.")


def _publish(own: Region, other: Region, topics: TopicTable) -> Iterator[KeptShovel]:
    """Yield a link from each client broker of ``other``: for all messages if that is the own
    region, else for gold. For gold of the own region a second link, into another core broker.

    Canaries pass through each link.
    """
    for n, node in enumerate(other.client, 1):
        paths = _paths(own.core, n) if other == own else _paths(own.core, n)[:1]
        for path, hosts in enumerate(paths, 1):
            everything = other == own and path == 1
            yield KeptShovel(
                name=f"publish.{other.name}.{n}{_SECOND if path == 2 else ''}",
                runs_on=Cluster(own.name, "core"),
                source=Cluster(other.name, "client"),
                exchange=PUBLISH,
                keys=(ALL,) if everything else _copied(topics, own.name),
                destination=INTAKE,
                queue=Queue(f"shovel.publish.{own.name}.{path}", REGION_BOUNDS),
                sources=(node,),
                hosts=hosts,
            )


def _outbound(own: Region, other: Region) -> Iterator[KeptShovel]:
    """Yield a link for each own core broker, which carries all that ``other`` routes."""
    for n, host in enumerate(own.core, 1):
        yield KeptShovel(
            name=f"outbound.{other.name}.{n}",
            runs_on=Cluster(own.name, "core"),
            source=Cluster(other.name, "core"),
            exchange=OUTBOUND,
            keys=(ALL,),
            destination=POSTOFFICE,
            queue=Queue(f"shovel.outbound.{own.name}.{n}", REGION_BOUNDS),
            sources=_paths(other.core, n)[0],
            hosts=(host,),
        )


def _receipts(own: Region) -> Iterator[KeptShovel]:
    """Yield two links for each client broker, which carry all receipts from two core brokers."""
    for n, host in enumerate(own.client, 1):
        cluster = Cluster(own.name, "client")
        yield from _receipts_for(f"receipts.{n}", f"shovel.receipts.{n}", cluster, host, own, n)


def _receipts_of_proxy(proxy: ProxyCluster, own: Region) -> Iterator[KeptShovel]:
    """Yield the links of receipts from ``own`` region's routers to publishers at ``proxy``."""
    for n, host in enumerate(proxy.nodes, 1):
        name, queue = f"receipts.{own.name}.{n}", f"shovel.receipts.{proxy.name}.{n}"
        yield from _receipts_for(name, queue, Cluster(proxy.name, "proxy"), host, own, n)


def _receipts_for(
    name: str, queue: str, runs_on: Cluster, host: Node, own: Region, n: int
) -> Iterator[KeptShovel]:
    for path, sources in enumerate(_paths(own.core, n), 1):
        yield KeptShovel(
            name=f"{name}{_SECOND if path == 2 else ''}",
            runs_on=runs_on,
            source=Cluster(own.name, "core"),
            exchange=RECEIPTS,
            keys=(ALL,),
            destination=TO_QUEUES,
            # Queues for receipts are publishers', and one queue may refuse all: a receipt that is
            # requeued and taken again delays the others. A broker that dies loses these queues, so
            # its confirm would guarantee nothing.
            confirmed=False,
            queue=Queue(queue, RECEIPT_BOUNDS),
            sources=sources,
            hosts=(host,),
        )


def _from_proxy(proxy: ProxyCluster, own: Region, topics: TopicTable) -> Iterator[KeptShovel]:
    """Yield links for publications at ``proxy``: gold to every region, the rest to the nearest."""
    for n, node in enumerate(proxy.nodes, 1):
        yield KeptShovel(
            name=f"proxy.{proxy.name}.{n}",
            runs_on=Cluster(own.name, "client"),
            source=Cluster(proxy.name, "proxy"),
            exchange=PUBLISH,
            keys=(ALL,) if own.name == proxy.nearest else _copied(topics, own.name),
            destination=PUBLISH,
            queue=Queue(f"shovel.publish.{own.name}.1", PROXY_BOUNDS),
            sources=(node,),
            hosts=_paths(own.client, n)[0],
        )


def _copied(topics: TopicTable, region: str) -> tuple[str, ...]:
    return (*topics.copied_patterns, canary_key(region))


def _paths(nodes: Sequence[Node], n: int) -> tuple[tuple[Node, ...], ...]:
    """Return ``nodes`` once for each of two paths (one node: one path) of number ``n`` (1, 2, …).

    Each path has its preferred node first, then the replacements; the second path has the nodes in
    the opposite order. So whichever nodes are away, the paths share a node only if it is the last
    one. Different numbers begin at different nodes. Of nodes a, b, c number 1 has the paths a c b
    and b c a, number 2 b a c and c a b.
    """
    first = (n - 1) % len(nodes)
    ring = (*nodes[first:], *nodes[:first])
    if len(ring) == 1:
        return (ring,)
    preferred, second, *others = ring
    order = (preferred, *others, second)
    return order, order[::-1]


def _brokers(cluster: Cluster, nodes: Sequence[Node]) -> dict[Broker, Node]:
    return {Broker(cluster, node.name): node for node in nodes}
