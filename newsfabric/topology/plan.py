"""What a region wants on its own and on the other regions' clusters: shovels, source queues.

Each shovel runs where its messages go, and the region it runs for owns its source queue too.
Only *what* is wanted is said here; on which node a source queue lives when its preferred one
stays away is decided by the keeper (shovels.homes) and comes in as ``homes``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from newsfabric.control import canary_key
from newsfabric.settings import Fabric, Node, ProxyCluster, Region
from newsfabric.topics import TopicTable
from newsfabric.topology.parts import CLIENT, core, paths
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
    Binding,
    Bounds,
    Cluster,
    Part,
    Queue,
    ShovelLink,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A shovel that a region keeps, wherever its source queue happens to live.

    ``nodes`` are the source cluster's, the preferred home first, then the others in the order in
    which they stand in for it.
    """

    name: str
    runs_on: Cluster
    source: Cluster
    exchange: str
    keys: tuple[str, ...]
    destination: str
    queue_name: str
    bounds: Bounds
    nodes: tuple[Node, ...]

    @property
    def id(self) -> str:
        """What the shovel is called where all of a fabric's are listed."""
        return f"{self.runs_on}/{self.name}"

    def queue(self, home: Node) -> Queue:
        """The source queue on ``home``. Another home, another name: while a node
        is away, the names of its queues are taken."""
        moved = "" if home == self.nodes[0] else f".{home.name}"
        return Queue(self.queue_name + moved, self.bounds, home.name)

    def home_of(self, queue_name: str) -> Node | None:
        """The node on which a source queue of that name lives; None if it isn't this link's."""
        return next((node for node in self.nodes if self.queue(node).name == queue_name), None)

    def source_part(self, home: Node) -> Part:
        """What the link needs on its source cluster."""
        queue = self.queue(home)
        bindings = tuple(Binding(self.exchange, queue.name, key) for key in self.keys)
        return Part(queues=(queue,), bindings=bindings)

    def shovel(self, home: Node) -> ShovelLink:
        """The shovel that takes from the source queue on ``home``."""
        return ShovelLink(
            name=self.name,
            sources=(home.amqp_url,),
            queue=self.queue(home),
            exchange=self.destination,
        )


def region_links(fabric: Fabric, region: str, topics: TopicTable) -> tuple[Link, ...]:
    """Every link that the keepers of ``region`` keep, also those at proxy clusters."""
    links = [*_receipts(fabric, region)]
    for other in fabric.regions:
        links += _publish(fabric, region, other.name, topics)
    for other in fabric.others(region):
        links += _outbound(fabric, region, other.name)
    for proxy in fabric.proxies:
        links += _from_proxy(proxy, region, topics)
        links += _to_proxy(proxy, fabric.region(region))
    return tuple(links)


def shovel_plan(
    fabric: Fabric,
    region: str,
    topics: TopicTable,
    *,
    homes: Mapping[str, Node] | None = None,
    away: frozenset[str] = frozenset(),
) -> dict[Cluster, Part]:
    """What ``region`` wants on each cluster: its own objects, its shovels and their source queues.

    ``homes`` says, by :attr:`Link.id`, where a source queue lives instead of at its preferred
    home; ``away`` names nodes that stay away.
    """
    nodes = [node.name for node in fabric.region(region).core]
    plan = {
        Cluster(region, "client"): CLIENT,
        Cluster(region, "core"): core(topics, nodes, away=away),
    }
    plan |= {Cluster(proxy.name, "proxy"): CLIENT for proxy in fabric.proxies}
    for link in region_links(fabric, region, topics):
        home = (homes or {}).get(link.id, link.nodes[0])
        plan[link.source] = plan.get(link.source, Part()) + link.source_part(home)
        plan[link.runs_on] = plan.get(link.runs_on, Part()) + Part(shovels=(link.shovel(home),))
    return plan


def takes_gold_alone(shovel: str, region: str) -> bool:
    """Whether ``shovel`` into the core of ``region`` is one of those that only gold goes through.

    One takes everything that was published in the region.
    """
    return shovel.startswith("publish.") and shovel != f"publish.{region}.1"


def runs_shovels(region: str, cluster: Cluster) -> bool:
    """Whether shovels that ``region`` keeps run on ``cluster``."""
    return cluster.region == region or cluster.role == "proxy"


def owned_shovel(region: str, cluster: Cluster, name: str) -> bool:
    """Whether shovel ``name`` on ``cluster`` is for ``region`` to keep or remove."""
    match cluster.role:
        case "client":
            return cluster.region == region and name.startswith(("receipts.", "proxy."))
        case "core":
            return cluster.region == region and name.startswith(("publish.", "outbound."))
        case "proxy":
            return name.startswith(f"receipts.{region}.")


def owned_queue(region: str, cluster: Cluster, name: str) -> bool:
    """Whether queue ``name`` on ``cluster`` is a source queue for ``region`` to keep or remove."""
    if cluster.role in ("client", "proxy"):
        return name.startswith(f"shovel.publish.{region}.")
    receipts = cluster.region == region and name.startswith("shovel.receipts.")
    return receipts or name.startswith(f"shovel.outbound.{region}.")


def _publish(fabric: Fabric, region: str, source: str, topics: TopicTable) -> Iterator[Link]:
    """One shovel for everything of one's own region; gold on a second one and from elsewhere.

    Canaries go through each.
    """
    gold = topics.patterns("gold")
    for n, nodes in _rotations(fabric.region(source).client):
        name = f"publish.{source}.{n}"
        yield Link(
            name=name,
            runs_on=Cluster(region, "core"),
            source=Cluster(source, "client"),
            exchange=PUBLISH,
            keys=(*gold, canary_key(region)) if takes_gold_alone(name, region) else (ALL,),
            destination=INTAKE,
            queue_name=f"shovel.publish.{region}.{n}",
            bounds=REGION_BOUNDS,
            nodes=nodes,
        )


def _outbound(fabric: Fabric, region: str, source: str) -> Iterator[Link]:
    for n, nodes in _rotations(fabric.region(source).core):
        yield Link(
            name=f"outbound.{source}.{n}",
            runs_on=Cluster(region, "core"),
            source=Cluster(source, "core"),
            exchange=OUTBOUND,
            keys=(ALL,),
            destination=POSTOFFICE,
            queue_name=f"shovel.outbound.{region}.{n}",
            bounds=REGION_BOUNDS,
            nodes=nodes,
        )


def _receipts(fabric: Fabric, region: str) -> Iterator[Link]:
    for n, nodes in _rotations(fabric.region(region).core):
        yield Link(
            name=f"receipts.{n}",
            runs_on=Cluster(region, "client"),
            source=Cluster(region, "core"),
            exchange=RECEIPTS,
            keys=(ALL,),
            destination=RECEIPTS,
            queue_name=f"shovel.receipts.{n}",
            bounds=RECEIPT_BOUNDS,
            nodes=nodes,
        )


def _from_proxy(proxy: ProxyCluster, region: str, topics: TopicTable) -> Iterator[Link]:
    """What is published far away: gold to every region, the rest to the nearest."""
    for n, nodes in _rotations(proxy.nodes):
        everything = region == proxy.nearest and n == 1
        yield Link(
            name=f"proxy.{proxy.name}.{n}",
            runs_on=Cluster(region, "client"),
            source=Cluster(proxy.name, "proxy"),
            exchange=PUBLISH,
            keys=(ALL,) if everything else (*topics.patterns("gold"), canary_key(region)),
            destination=PUBLISH,
            queue_name=f"shovel.publish.{region}.{n}",
            bounds=PROXY_BOUNDS,
            nodes=nodes,
        )


def _to_proxy(proxy: ProxyCluster, region: Region) -> Iterator[Link]:
    """Receipts for those who publish there, of whichever region's routers."""
    for n, nodes in _rotations(region.core):
        yield Link(
            name=f"receipts.{region.name}.{n}",
            runs_on=Cluster(proxy.name, "proxy"),
            source=Cluster(region.name, "core"),
            exchange=RECEIPTS,
            keys=(ALL,),
            destination=RECEIPTS,
            queue_name=f"shovel.receipts.{proxy.name}.{n}",
            bounds=RECEIPT_BOUNDS,
            nodes=nodes,
        )


def _rotations(nodes: Sequence[Node]) -> Iterator[tuple[int, tuple[Node, ...]]]:
    """``nodes`` once for each path, numbered from 1: its preferred home, then who stands in for it.

    The other path's home stands in last: on one node both would be lost with it.
    """
    count = paths(len(nodes))
    for n in range(count):
        spare = nodes[count:]
        yield n + 1, (nodes[n], *spare[n:], *spare[:n], *nodes[:n], *nodes[n + 1 : count])
