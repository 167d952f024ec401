"""The parts of a world, as values: regions, brokers, boxes, and every port.

Pure: paths are made, not looked at. Everything follows from
:class:`~localfabric.world.options.WorldOptions`, so the same options always give the same names and
ports, and nothing else has to be stored. :mod:`localfabric.world.programs` makes the commands of
the services from it.

Ports count from ``port_base``; docs/world.md has the table.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

from localfabric.world.broker import HOST, WorldBroker, entrance
from localfabric.world.cassandra import StoreNode, tokens
from localfabric.world.links import (
    API,
    MOST,
    Proxy,
    lay_proxies,
    lay_store_proxies,
    store_host,
    view,
)
from localfabric.world.options import PROXY, REGION_PORTS, WorldOptions
from localfabric.world.paths import Paths
from newsfabric.kinds import CoreKind, word
from newsfabric.settings import Fabric, Node, ProxyCluster, Region
from newsfabric.spelling import unknown_name

KEYSPACE: Final = "newsfabric"
_STORE, _CLIENT, _CORE, _BOX = 4, 10, 25, 40
# Of each kind of service the first port, and the number of processes.
_SERVICES: Final[Mapping[CoreKind, tuple[int, int]]] = {
    "keeper": (3, 1),
    "router": (1, 2),
    "mailbox": (94, 2),
    "frontdesk": (96, 1),
    "scaler": (97, 2),
}
# unix(7): sun_path has 108 bytes, the last of them a NUL.
_SOCKET_PATH_BYTES: Final = 107
# Claims of the world's own tokens (localfabric.world.issuer).
READERS_AUDIENCE: Final = "newsfabric"
READERS_ISSUER: Final = "newsfabric-world"

BrokerRole = Literal["client", "core", "retail"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorldBox:
    """A retail box: a broker, a gateway and an agent under one name.

    On ``control_socket`` gateway and data plane connect; None if its path would be too long for a
    socket: then the gateway chooses a place by itself.
    """

    name: str
    broker: WorldBroker
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
        """The URL of SockJS for readers."""
        return f"http://{HOST}:{self.reader_port}/sockjs"

    @property
    def websocket_url(self) -> str:
        """The URL of the raw WebSocket for readers."""
        return f"ws://{HOST}:{self.reader_port}/websocket"

    @property
    def sse_url(self) -> str:
        """The URL of server-sent events for readers."""
        return f"http://{HOST}:{self.reader_port}/events"

    @property
    def admin_url(self) -> str:
        """The base URL of the gateway's health, load and drain."""
        return f"http://{HOST}:{self.admin_port}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service of a region's core. On ``port`` are its health and its metrics."""

    kind: CoreKind
    name: str
    port: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RegionLayout:
    """A region of the world."""

    name: str
    frontdesk_port: int
    services: tuple[Service, ...]
    client: tuple[WorldBroker, ...]
    core: tuple[WorldBroker, ...]
    boxes: tuple[WorldBox, ...]
    store_nodes: tuple[StoreNode, ...] = ()

    @property
    def frontdesk_url(self) -> str:
        """The base URL of the region's pages and API."""
        return f"http://{HOST}:{self.frontdesk_port}"

    @property
    def endpoints_url(self) -> str:
        """The URL at which readers find the region's gateways."""
        return f"{self.frontdesk_url}/endpoints.json"

    @property
    def board_url(self) -> str:
        """The URL of the operations board."""
        return f"{self.frontdesk_url}/board"

    def brokers(self) -> Iterator[tuple[BrokerRole, WorldBroker]]:
        """Yield every RabbitMQ node of the region with its role."""
        yield from (("client", broker) for broker in self.client)
        yield from (("core", broker) for broker in self.core)
        yield from (("retail", box.broker) for box in self.boxes)

    def of(self, kind: CoreKind) -> tuple[Service, ...]:
        """Return the services of one kind."""
        return tuple(service for service in self.services if service.kind == kind)

    def named(self, kind: CoreKind) -> Service:
        """Return the first service of one kind, of which the region has one at least."""
        return self.of(kind)[0]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorldLayout:
    """A whole world. Make it with :func:`lay_out`."""

    options: WorldOptions
    paths: Paths
    epmd_port: int
    regions: tuple[RegionLayout, ...]
    proxy_nodes: tuple[WorldBroker, ...] = ()
    proxies: tuple[Proxy, ...] = ()

    def fabric_seen_from(self, region: str) -> Fabric:
        """Return the fabric as the services of ``region`` see it."""
        return view(self.fabric(), region, self.proxies)

    @property
    def toxiproxy_port(self) -> int:
        """The port of Toxiproxy's API, if it is used."""
        return self.epmd_port + API

    def fabric(self) -> Fabric:
        """Return the fabric with every node's own addresses."""
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
        """Return the region ``name``, the first one for None; ConfigError lists the known ones."""
        for region in self.regions:
            if name in (None, region.name):
                return region
        known = [region.name for region in self.regions]
        raise unknown_name(str(name), known, "region", "in this world")

    def brokers(self) -> Iterator[WorldBroker]:
        """Yield every RabbitMQ node."""
        yield from (broker for region in self.regions for _, broker in region.brokers())
        yield from self.proxy_nodes

    def store_nodes(self) -> Iterator[StoreNode]:
        """Return every Cassandra node; none with SQLite."""
        return (node for region in self.regions for node in region.store_nodes)

    def store_url(self, region: RegionLayout) -> str:
        """Return the store's URL for ``region``: its own nodes first, then the others."""
        if not region.store_nodes:
            return f"sqlite:{self.paths.store}"
        others = (node for node in self.store_nodes() if node not in region.store_nodes)
        contacts = ",".join(node.contact for node in (*region.store_nodes, *others))
        return f"cassandra://{contacts}/{KEYSPACE}?dc={region.name}"

    def boxes(self) -> Iterator[WorldBox]:
        """Return every retail box."""
        return (box for region in self.regions for box in region.boxes)

    def ports(self) -> Iterator[tuple[int, str]]:
        """Yield every port with the name, for a person, of its listener."""
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
    """Return the world of ``options``, with its files below ``state`` (absolute)."""
    paths = Paths(state=state)
    base = options.port_base
    regions = tuple(
        _region(options, paths, name, base + REGION_PORTS * n)
        for n, name in enumerate(options.regions, 1)
    )
    proxy_port = base + REGION_PORTS * (len(regions) + 1) + _CLIENT
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
    options: WorldOptions, regions: tuple[RegionLayout, ...], proxy_nodes: tuple[WorldBroker, ...]
) -> tuple[Proxy, ...]:
    if options.toxiproxy is None:
        return ()
    nodes = [(region.name, region.client + region.core) for region in regions]
    if proxy_nodes:
        nodes.append((PROXY, proxy_nodes))
    lookers = [region.name for region in regions]
    found = lay_proxies(lookers, nodes, port_base=options.port_base)
    # With too many regions or nodes the proxies don't fit between the ports: then links are direct.
    if len(found) > MOST:
        return ()
    return found + lay_store_proxies([(r.name, r.store_nodes) for r in regions])


def _region(options: WorldOptions, paths: Paths, name: str, base: int) -> RegionLayout:
    return RegionLayout(
        name=name,
        frontdesk_port=base,
        services=tuple(
            Service(kind=kind, name=_service_name(name, kind, n), port=base + first + n)
            for kind, (first, count) in _SERVICES.items()
            if kind != "scaler" or options.scale
            for n in range(count)
        ),
        client=_entrance(options, paths, f"{name}-client", options.client_nodes, base + _CLIENT),
        core=_side_by_side(options, paths, f"{name}-core", options.core_nodes, base + _CORE),
        boxes=tuple(
            _box(options, paths, f"{name}-retail-{n}", base + _BOX + 6 * (n - 1))
            for n in options.box_numbers(name)
        ),
        store_nodes=_store_nodes(options, paths, name),
    )


def _service_name(region: str, kind: CoreKind, n: int) -> str:
    # A region has one keeper.
    return f"{region}-{word(kind)}" + ("" if kind == "keeper" else f"-{n + 1}")


def _store_nodes(options: WorldOptions, paths: Paths, region: str) -> tuple[StoreNode, ...]:
    if options.store == "sqlite":
        return ()
    count = options.store_nodes

    def port(centre: int, n: int) -> int:
        return options.port_base + REGION_PORTS * (centre + 1) + _STORE + 2 * n

    centre = options.regions.index(region)
    # The proxies of two regions always fit between the ports.
    host = HOST if options.toxiproxy is None else store_host(options.regions)
    # All are seeds: a cluster that starts as a whole has no older nodes to ask.
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
            replicas=count,
            wire_host=host,
        )
        for n in range(count)
    )


def _side_by_side(
    options: WorldOptions, paths: Paths, name: str, count: int, port: int
) -> tuple[WorldBroker, ...]:
    names = [f"{name}-{n + 1}" for n in range(count)]
    definitions = paths.definitions(name)
    return tuple(
        WorldBroker(
            name=node,
            folder=paths.brokers / node,
            amqp_port=port + 3 * n,
            management_port=port + 3 * n + 1,
            distribution_port=port + 3 * n + 2,
            epmd_port=options.port_base,
            definitions=definitions,
        )
        for n, node in enumerate(names)
    )


def _entrance(
    options: WorldOptions, paths: Paths, name: str, count: int, port: int
) -> tuple[WorldBroker, ...]:
    """Return brokers that publishers connect to."""
    nodes = _side_by_side(options, paths, name, count, port)
    return tuple(entrance(node) for node in nodes)


def _box(options: WorldOptions, paths: Paths, name: str, port: int) -> WorldBox:
    broker = WorldBroker(
        name=name,
        folder=paths.brokers / name,
        amqp_port=port,
        management_port=port + 1,
        distribution_port=port + 2,
        epmd_port=options.port_base,
        definitions=paths.definitions(name),
    )
    return WorldBox(
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


def _node(broker: WorldBroker) -> Node:
    return Node(broker.name, broker.amqp_url, broker.management_url)


def _region_ports(region: RegionLayout) -> Iterator[tuple[int, str]]:
    yield region.frontdesk_port, region.named("frontdesk").name
    for service in region.services:
        admin = ", admin" if service.kind == "frontdesk" else ""
        yield service.port, service.name + admin
    for node in region.store_nodes:
        yield node.cql_port, f"{node.name}, CQL"
        yield node.gossip_port, f"{node.name}, gossip"
    for broker in (*region.client, *region.core):
        yield from _broker_ports(broker)
    for box in region.boxes:
        yield from box_ports(box)


def box_ports(box: WorldBox) -> Iterator[tuple[int, str]]:
    """Yield every port of ``box`` with the name of its listener."""
    yield from _broker_ports(box.broker)
    yield box.reader_port, f"{box.name}, readers"
    yield box.admin_port, f"{box.gateway}, admin"
    yield box.agent_port, f"{box.name}-agent"


def _broker_ports(broker: WorldBroker) -> Iterator[tuple[int, str]]:
    yield broker.amqp_port, f"{broker.name}, AMQP"
    yield broker.management_port, f"{broker.name}, management"
    yield broker.distribution_port, f"{broker.name}, Erlang distribution"
