"""What a world consists of, as values: regions, brokers, boxes, and every port.

Pure: paths are made, not looked at. Everything follows from :class:`WorldOptions`, so the same
options always mean the same names and ports, and nothing else has to be written down. The commands
of its services are made from it in :mod:`newsfabric.world.programs`.

Ports count from ``port_base`` (docs/world.md has the table)::

    +0                   Erlang's port mapper (epmd)
    +1, +2 …             Toxiproxy, and its proxies between regions        (where it is used)
    +100·r … +100·r+99   the r-th region (r = 1, 2, …):
        +0 frontdesk   +1, +2 routers   +3 the keeper of shovels
        +4+2·(n-1)     the n-th store node: CQL, gossip                       (n ≤ 3)
        +10+3·(n-1)    the n-th client node: AMQP, management, distribution   (n ≤ 5)
        +25+3·(n-1)    the n-th core node, likewise                           (n ≤ 5)
        +40+6·(n-1)    the n-th box: AMQP, management, distribution,
                       readers, the gateway's admin, the agent                (n ≤ 9)
        +94, +95 mailboxes   +97, +98 scalers (where there are some)
    after the last region, as the client nodes of one more: the proxy cluster
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal, get_args

from newsfabric.errors import ConfigError
from newsfabric.settings import (
    Fabric,
    Node,
    ProxyCluster,
    Region,
    is_name,
)
from newsfabric.world.broker import HOST, Broker, entrance
from newsfabric.world.cassandra import StoreNode, tokens
from newsfabric.world.links import (
    API,
    MOST,
    Proxy,
    lay_proxies,
    lay_store_proxies,
    store_host,
    view,
)
from newsfabric.world.paths import Paths

MAX_REGIONS: Final = 9
MAX_NODES: Final = 5
MAX_BOXES: Final = 9
MAX_CAPACITY: Final = 1_000_000
MAX_STORE_NODES: Final = 3
KEYSPACE: Final = "newsfabric"
_ROUTERS: Final = 2
_MAILBOXES: Final = 2
_REGION_PORTS: Final = 100
_SCALERS: Final = 2
_STORE, _CLIENT, _CORE, _BOX, _MAILBOX, _DESK_ADMIN, _SCALER = 4, 10, 25, 40, 94, 96, 97
# unix(7): sun_path has 108 bytes, the last of them a NUL.
_SOCKET_PATH_BYTES: Final = 107
# What the world's own tokens say (newsfabric.world.issuer).
READERS_AUDIENCE: Final = "newsfabric"
READERS_ISSUER: Final = "newsfabric-world"

# The proxy cluster's name.
PROXY: Final = "proxy"

BrokerRole = Literal["client", "core", "retail"]
StoreKind = Literal["sqlite", "cassandra"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """What the person asked for; ConfigError if there can't be such a world.

    ``client_nodes`` and ``core_nodes`` are per region and form clusters; ``retail`` is the
    number of boxes that a region starts with, and ``boxes`` which it has by now, by number, where
    that has changed (a tuple for each region). ``box_capacity`` is how many readers a box takes;
    None for the gateway's default. With ``scale`` (least, most boxes a region) there are scalers,
    which start and end boxes. ``store_nodes`` is per region too, for Cassandra alone: 1, or 3 of
    which one may die. ``proxy`` adds a broker away from all regions, for those who publish there.
    ``toxiproxy`` is the program that links between regions go through; None
    for straight ones.
    """

    regions: tuple[str, ...] = ("oregon", "dublin")
    client_nodes: int = 1
    core_nodes: int = 1
    retail: int = 1
    port_base: int = 18000
    store: StoreKind = "sqlite"
    store_nodes: int = 1
    proxy: bool = False
    toxiproxy: str | None = None
    boxes: tuple[tuple[int, ...], ...] = ()
    box_capacity: int | None = None
    scale: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for name in self.regions:
            if not is_name(name) or len(name) > 40:
                raise ConfigError(f"{name!r} is no region name (a-z, 0-9 and -, at most 40)")
        if len(set(self.regions)) < len(self.regions):
            raise ConfigError("a region is named twice")
        if self.proxy and PROXY in self.regions:
            raise ConfigError(f"{PROXY!r} is the proxy cluster's name, so no region's")
        # The proxy's ports lie where one more region's would.
        places = len(self.regions) + self.proxy
        _check("regions", len(self.regions), 1, MAX_REGIONS - self.proxy)
        _check("client nodes", self.client_nodes, 1, MAX_NODES)
        _check("core nodes", self.core_nodes, 1, MAX_NODES)
        _check("retail boxes", self.retail, 1, MAX_BOXES)
        if self.boxes and len(self.boxes) != len(self.regions):
            raise ConfigError("boxes: not as many entries as regions")
        for numbers in self.boxes:
            if list(numbers) != sorted(set(numbers)):
                raise ConfigError(f"boxes: {numbers} isn't in order")
            for number in numbers:
                _check("box number", number, 1, MAX_BOXES)
        if self.box_capacity is not None:
            _check("readers a box", self.box_capacity, 1, MAX_CAPACITY)
        if self.scale is not None:
            least, most = self.scale
            _check("least boxes", least, 1, MAX_BOXES)
            _check("most boxes", most, least, MAX_BOXES)
        if self.store not in get_args(StoreKind):
            raise ConfigError(f"{self.store!r} is no store: write sqlite or cassandra")
        if self.store_nodes not in (1, MAX_STORE_NODES):
            raise ConfigError("store nodes: 1 or 3 (two replicas are worse than one)")
        _check("port base", self.port_base, 1024, 65535 - _REGION_PORTS * (places + 1))

    def box_numbers(self, region: str) -> tuple[int, ...]:
        """Which boxes ``region`` has; KeyError if there is no such region."""
        if region not in self.regions:
            raise KeyError(region)
        if self.boxes:
            return self.boxes[self.regions.index(region)]
        return tuple(range(1, self.retail + 1))

    def with_boxes(self, region: str, numbers: Iterable[int]) -> WorldOptions:
        """The same world, but for the boxes of ``region``."""
        found = {name: self.box_numbers(name) for name in self.regions}
        found[region] = tuple(sorted(set(numbers)))
        return dataclasses.replace(self, boxes=tuple(found.values()))


def _check(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{what}: {value} is not in {least}..{most}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A retail box: a broker, a gateway and an agent under one name.

    ``control_socket`` is where gateway and data plane meet; None where its path would be too long
    for a socket, and the gateway chooses a place by itself.
    """

    name: str
    broker: Broker
    reader_port: int
    admin_port: int
    agent_port: int
    control_socket: Path | None

    @property
    def gateway(self) -> str:
        """The name of the gateway's process."""
        return f"{self.name}-gateway"

    @property
    def sockjs_url(self) -> str:
        """SockJS."""
        return f"http://{HOST}:{self.reader_port}/sockjs"

    @property
    def websocket_url(self) -> str:
        """Raw WebSocket."""
        return f"ws://{HOST}:{self.reader_port}/websocket"

    @property
    def sse_url(self) -> str:
        """Server-sent events."""
        return f"http://{HOST}:{self.reader_port}/events"

    @property
    def admin_url(self) -> str:
        """Base of the gateway's health, load and drain."""
        return f"http://{HOST}:{self.admin_port}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RegionLayout:
    """One region of the world."""

    name: str
    frontdesk_port: int
    frontdesk_admin_port: int
    router_ports: tuple[int, ...]
    mailbox_ports: tuple[int, ...]
    keeper_port: int
    scaler_ports: tuple[int, ...]
    client: tuple[Broker, ...]
    core: tuple[Broker, ...]
    boxes: tuple[Box, ...]
    store_nodes: tuple[StoreNode, ...] = ()

    @property
    def frontdesk_url(self) -> str:
        """Base of the region's pages and API."""
        return f"http://{HOST}:{self.frontdesk_port}"

    @property
    def endpoints_url(self) -> str:
        """Where readers learn of the region's gateways."""
        return f"{self.frontdesk_url}/endpoints.json"

    @property
    def board_url(self) -> str:
        """The operations board."""
        return f"{self.frontdesk_url}/board"

    def brokers(self) -> Iterator[tuple[BrokerRole, Broker]]:
        """Every RabbitMQ node of the region with its role."""
        yield from (("client", broker) for broker in self.client)
        yield from (("core", broker) for broker in self.core)
        yield from (("retail", box.broker) for box in self.boxes)

    def router_name(self, n: int) -> str:
        """The ``n``-th router, from 1."""
        return f"{self.name}-router-{n}"

    def mailbox_name(self, n: int) -> str:
        """The ``n``-th mailbox service, from 1."""
        return f"{self.name}-mailbox-{n}"

    def scaler_name(self, n: int) -> str:
        """The ``n``-th scaler, from 1."""
        return f"{self.name}-scaler-{n}"

    @property
    def frontdesk_name(self) -> str:
        """The frontdesk's process."""
        return f"{self.name}-frontdesk-1"

    @property
    def keeper_name(self) -> str:
        """The process that keeps the region's shovels."""
        return f"{self.name}-shovels"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorldLayout:
    """A whole world. Make it with :func:`lay_out`."""

    options: WorldOptions
    paths: Paths
    epmd_port: int
    regions: tuple[RegionLayout, ...]
    proxy_nodes: tuple[Broker, ...] = ()
    proxies: tuple[Proxy, ...] = ()

    def fabric_seen_from(self, region: str) -> Fabric:
        """What the services of ``region`` are told of it."""
        return view(self.fabric(), region, self.proxies)

    @property
    def toxiproxy_port(self) -> int:
        """Where Toxiproxy's API is, if it is used."""
        return self.epmd_port + API

    def fabric(self) -> Fabric:
        """All of it, as nobody in particular sees it."""
        return Fabric(
            tuple(
                Region(
                    name=region.name,
                    frontdesk_url=region.frontdesk_url,
                    client=tuple(map(_node, region.client)),
                    core=tuple(map(_node, region.core)),
                )
                for region in self.regions
            ),
            tuple(
                ProxyCluster(name=PROXY, nodes=(_node(broker),), nearest=self.regions[0].name)
                for broker in self.proxy_nodes
            ),
        )

    def region(self, name: str | None) -> RegionLayout:
        """The region called ``name``, the first one for None; ConfigError lists those there are."""
        for region in self.regions:
            if name in (None, region.name):
                return region
        known = ", ".join(region.name for region in self.regions)
        raise ConfigError(f"no region {name!r} in this world (there is: {known})")

    def publishing_urls(self, place: str | None) -> list[str]:
        """Where to publish in a region, or at the proxy cluster; as :meth:`region` otherwise."""
        if self.proxy_nodes and place == PROXY:
            return [broker.amqp_url for broker in self.proxy_nodes]
        return [broker.amqp_url for broker in self.region(place).client]

    def brokers(self) -> Iterator[Broker]:
        """Every RabbitMQ node."""
        yield from (broker for region in self.regions for _, broker in region.brokers())
        yield from self.proxy_nodes

    def store_nodes(self) -> Iterator[StoreNode]:
        """Every Cassandra node; none with SQLite."""
        return (node for region in self.regions for node in region.store_nodes)

    def store_url(self, region: RegionLayout) -> str:
        """The store as processes of ``region`` reach it: by its own nodes, else by any."""
        if not region.store_nodes:
            return f"sqlite:{self.paths.store}"
        others = (node for node in self.store_nodes() if node not in region.store_nodes)
        contacts = ",".join(node.contact for node in (*region.store_nodes, *others))
        return f"cassandra://{contacts}/{KEYSPACE}?dc={region.name}"

    def boxes(self) -> Iterator[Box]:
        """Every retail box."""
        return (box for region in self.regions for box in region.boxes)

    def ports(self) -> Iterator[tuple[int, str]]:
        """Every port and what listens there, in words for a person."""
        yield self.epmd_port, "Erlang's port mapper"
        if self.proxies:
            yield self.toxiproxy_port, "Toxiproxy"
        for proxy in self.proxies:
            if proxy.what != "store":
                yield proxy.port, f"{proxy.node} as {proxy.region} sees it"
        for region in self.regions:
            yield from _region_ports(region)
        for broker in self.proxy_nodes:
            yield from _broker_ports(broker)


def lay_out(options: WorldOptions, state: Path) -> WorldLayout:
    """The world that ``options`` ask for, with its files below ``state`` (absolute)."""
    paths = Paths(state=state)
    base = options.port_base
    regions = tuple(
        _region(options, paths, name, base + _REGION_PORTS * n)
        for n, name in enumerate(options.regions, 1)
    )
    proxy_port = base + _REGION_PORTS * (len(regions) + 1) + _CLIENT
    proxy_nodes = _entrance(options, paths, PROXY, 1, proxy_port) if options.proxy else ()
    return WorldLayout(
        options=options,
        paths=paths,
        epmd_port=base,
        regions=regions,
        proxy_nodes=proxy_nodes,
        proxies=_proxies(options, regions, proxy_nodes),
    )


def _proxies(
    options: WorldOptions, regions: tuple[RegionLayout, ...], proxy_nodes: tuple[Broker, ...]
) -> tuple[Proxy, ...]:
    if options.toxiproxy is None:
        return ()
    nodes = [(region.name, region.client + region.core) for region in regions]
    if proxy_nodes:
        nodes.append((PROXY, proxy_nodes))
    lookers = [region.name for region in regions]
    found = lay_proxies(lookers, nodes, port_base=options.port_base)
    # So many regions or nodes that their wires don't fit between the ports: then straight ones.
    if len(found) > MOST:
        return ()
    return found + lay_store_proxies([(r.name, r.store_nodes) for r in regions])


def _region(options: WorldOptions, paths: Paths, name: str, base: int) -> RegionLayout:
    return RegionLayout(
        name=name,
        frontdesk_port=base,
        frontdesk_admin_port=base + _DESK_ADMIN,
        router_ports=tuple(base + n for n in range(1, _ROUTERS + 1)),
        mailbox_ports=tuple(base + _MAILBOX + n for n in range(_MAILBOXES)),
        keeper_port=base + _ROUTERS + 1,
        scaler_ports=tuple(base + _SCALER + n for n in range(_SCALERS if options.scale else 0)),
        client=_entrance(options, paths, f"{name}-client", options.client_nodes, base + _CLIENT),
        core=_cluster(options, paths, f"{name}-core", options.core_nodes, base + _CORE),
        boxes=tuple(
            _box(options, paths, f"{name}-retail-{n}", base + _BOX + 6 * (n - 1))
            for n in options.box_numbers(name)
        ),
        store_nodes=_store_nodes(options, paths, name),
    )


def _store_nodes(options: WorldOptions, paths: Paths, region: str) -> tuple[StoreNode, ...]:
    if options.store == "sqlite":
        return ()
    count = options.store_nodes

    def port(centre: int, n: int) -> int:
        return options.port_base + _REGION_PORTS * (centre + 1) + _STORE + 2 * n

    centre = options.regions.index(region)
    # The wires of two regions always fit between the ports.
    host = HOST if options.toxiproxy is None else store_host(options.regions)
    # All are seeds: a cluster that starts as a whole has nobody else to ask.
    seeds = tuple(
        f"{host}:{port(c, n) + 1}" for c in range(len(options.regions)) for n in range(count)
    )
    return tuple(
        StoreNode(
            name=f"{region}-store-{n + 1}",
            datacentre=region,
            folder=paths.cassandra / f"{region}-store-{n + 1}",
            cql_port=port(centre, n),
            gossip_port=port(centre, n) + 1,
            tokens=tokens(centre=centre, node=n, nodes=count),
            seeds=seeds,
            single=count == 1,
            wire_host=host,
        )
        for n in range(count)
    )


def _cluster(
    options: WorldOptions, paths: Paths, name: str, count: int, port: int
) -> tuple[Broker, ...]:
    names = tuple(f"{name}-{n + 1}" for n in range(count))
    definitions = paths.definitions(name)
    return tuple(
        Broker(
            name=node,
            folder=paths.brokers / node,
            amqp_port=port + 3 * n,
            management_port=port + 3 * n + 1,
            distribution_port=port + 3 * n + 2,
            epmd_port=options.port_base,
            peers=names if count > 1 else (),
            definitions=definitions,
        )
        for n, node in enumerate(names)
    )


def _entrance(
    options: WorldOptions, paths: Paths, name: str, count: int, port: int
) -> tuple[Broker, ...]:
    """A cluster that publishers connect to."""
    nodes = _cluster(options, paths, name, count, port)
    return tuple(entrance(node) for node in nodes)


def _box(options: WorldOptions, paths: Paths, name: str, port: int) -> Box:
    broker = Broker(
        name=name,
        folder=paths.brokers / name,
        amqp_port=port,
        management_port=port + 1,
        distribution_port=port + 2,
        epmd_port=options.port_base,
        definitions=paths.definitions(name),
    )
    return Box(
        name=name,
        broker=broker,
        reader_port=port + 3,
        admin_port=port + 4,
        agent_port=port + 5,
        control_socket=_control_socket(paths, port + 3),
    )


def _control_socket(paths: Paths, port: int) -> Path | None:
    path = paths.sockets / str(port)
    return path if len(os.fsencode(path)) <= _SOCKET_PATH_BYTES else None


def _node(broker: Broker) -> Node:
    return Node(broker.name, broker.amqp_url, broker.management_url)


def _region_ports(region: RegionLayout) -> Iterator[tuple[int, str]]:
    yield region.frontdesk_port, region.frontdesk_name
    yield region.frontdesk_admin_port, f"{region.frontdesk_name}, admin"
    for n, port in enumerate(region.router_ports, 1):
        yield port, region.router_name(n)
    for n, port in enumerate(region.mailbox_ports, 1):
        yield port, region.mailbox_name(n)
    yield region.keeper_port, region.keeper_name
    for n, port in enumerate(region.scaler_ports, 1):
        yield port, region.scaler_name(n)
    for node in region.store_nodes:
        yield node.cql_port, f"{node.name}, CQL"
        yield node.gossip_port, f"{node.name}, gossip"
    for broker in (*region.client, *region.core):
        yield from _broker_ports(broker)
    for box in region.boxes:
        yield from box_ports(box)


def box_ports(box: Box) -> Iterator[tuple[int, str]]:
    """Every port of ``box`` and what listens there."""
    yield from _broker_ports(box.broker)
    yield box.reader_port, f"{box.name}, readers"
    yield box.admin_port, f"{box.gateway}, admin"
    yield box.agent_port, f"{box.name}-agent"


def _broker_ports(broker: Broker) -> Iterator[tuple[int, str]]:
    yield broker.amqp_port, f"{broker.name}, AMQP"
    yield broker.management_port, f"{broker.name}, management"
    yield broker.distribution_port, f"{broker.name}, Erlang distribution"
