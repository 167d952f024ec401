"""The parts of a world, as values: regions, brokers, boxes, and every port.

Pure: paths are made, not looked at. Everything follows from
:class:`~localfabric.world.options.WorldOptions`, so the same options always give the same names and
ports, and nothing else has to be stored. :mod:`localfabric.world.programs` makes the commands of
the services from it.

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
from collections.abc import Iterator
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
from newsfabric.settings import Fabric, Node, ProxyCluster, Region
from newsfabric.spelling import unknown_name

KEYSPACE: Final = "newsfabric"
_ROUTERS: Final = 2
_MAILBOXES: Final = 2
_SCALERS: Final = 2
_STORE, _CLIENT, _CORE, _BOX, _MAILBOX, _DESK_ADMIN, _SCALER = 4, 10, 25, 40, 94, 96, 97
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
class RegionLayout:
    """A region of the world."""

    name: str
    frontdesk_port: int
    frontdesk_admin_port: int
    router_ports: tuple[int, ...]
    mailbox_ports: tuple[int, ...]
    keeper_port: int
    scaler_ports: tuple[int, ...]
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

    def router_name(self, n: int) -> str:
        """Return the name of the ``n``-th router's process, from 1."""
        return f"{self.name}-router-{n}"

    def mailbox_name(self, n: int) -> str:
        """Return the name of the ``n``-th mailbox service's process, from 1."""
        return f"{self.name}-mailbox-{n}"

    def scaler_name(self, n: int) -> str:
        """Return the name of the ``n``-th scaler's process, from 1."""
        return f"{self.name}-scaler-{n}"

    @property
    def frontdesk_name(self) -> str:
        """The name of the frontdesk's process."""
        return f"{self.name}-frontdesk-1"

    @property
    def keeper_name(self) -> str:
        """The name of the process that keeps the region's shovels."""
        return f"{self.name}-shovels"


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
        frontdesk_admin_port=base + _DESK_ADMIN,
        router_ports=tuple(base + n for n in range(1, _ROUTERS + 1)),
        mailbox_ports=tuple(base + _MAILBOX + n for n in range(_MAILBOXES)),
        keeper_port=base + _ROUTERS + 1,
        scaler_ports=tuple(base + _SCALER + n for n in range(_SCALERS if options.scale else 0)),
        client=_entrance(options, paths, f"{name}-client", options.client_nodes, base + _CLIENT),
        core=_side_by_side(options, paths, f"{name}-core", options.core_nodes, base + _CORE),
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
