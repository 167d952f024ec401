"""The services of a world: their commands and their environment.

Everything follows from a :class:`~localfabric.world.layout.WorldLayout`;
:mod:`localfabric.world.running` runs them.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Final

from localfabric.world.broker import HOST
from localfabric.world.layout import (
    READERS_AUDIENCE,
    READERS_ISSUER,
    RegionLayout,
    WorldBox,
    WorldLayout,
)
from newsfabric.settings import AMQP_LOGIN, SHOVEL_LOGIN, login_variables
from newsfabric.topology.roles import Service, user_name

# A gateway's own default suits a crowd; here a few readers must have left before the time of `down`
# is over.
_DRAIN_SECONDS: Final = 2
# A world with a given capacity of boxes has a crowd, which mustn't move to the next box at once.
_CROWD_DRAIN_SECONDS: Final = 8

# Here a box boots in seconds, there is one zone, and a person wants to see boxes end, too.
_SCALER_PLAN: Final = {"boot": "20s", "drain": "15s", "zones": 1, "calm": "30s"}

# The process that carries all links between regions.
LINKS: Final = "links"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServiceProgram:
    """A service process: its name, its command, and its additions to the environment."""

    name: str
    command: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()


def links_program(layout: WorldLayout) -> ServiceProgram | None:
    """Return Toxiproxy, which carries the links between regions; None if it isn't used."""
    if not layout.proxies:
        return None
    assert layout.options.toxiproxy is not None
    words = ("-host", HOST, "-port", str(layout.toxiproxy_port), "-config", str(layout.paths.links))
    return ServiceProgram(name=LINKS, command=(layout.options.toxiproxy, *words))


def region_programs(layout: WorldLayout, region: RegionLayout) -> tuple[ServiceProgram, ...]:
    """Return the services of ``region``, in the order of their start."""
    return (
        _keeper(layout, region),
        *(_agent(layout, region, box) for box in region.boxes),
        *(_router(layout, region, n) for n in range(1, len(region.router_ports) + 1)),
        *(_mailbox(layout, region, n) for n in range(1, len(region.mailbox_ports) + 1)),
        *(_gateway(layout, region, box) for box in region.boxes),
        _frontdesk(layout, region),
        *(_scaler(layout, region, n) for n in range(1, len(region.scaler_ports) + 1)),
    )


def box_programs(
    layout: WorldLayout, region: RegionLayout, box: WorldBox
) -> tuple[ServiceProgram, ...]:
    """Return the services of one box of ``region``."""
    return (_agent(layout, region, box), _gateway(layout, region, box))


def _keeper(layout: WorldLayout, region: RegionLayout) -> ServiceProgram:
    paths = layout.paths
    seen = paths.fabric_seen_from(region.name)
    options = {"region": region.name, "fabric": seen, "topics": paths.topics}
    program = _program(region.keeper_name, "shovels", options | {"port": region.keeper_port})
    keeper = _logs_in(layout, program, "keeper", region.name)
    return _logs_in(layout, keeper, "shovel", region.name, SHOVEL_LOGIN)


def _router(layout: WorldLayout, region: RegionLayout, n: int) -> ServiceProgram:
    name = region.router_name(n)
    options = _wholesale(layout, name, region) | {"port": region.router_ports[n - 1]}
    return _logs_in(layout, _program(name, "wholesale router", options), "router", region.name)


def _mailbox(layout: WorldLayout, region: RegionLayout, n: int) -> ServiceProgram:
    name = region.mailbox_name(n)
    options = _wholesale(layout, name, region) | {"port": region.mailbox_ports[n - 1]}
    return _logs_in(layout, _program(name, "wholesale mailbox", options), "mailbox", region.name)


def _scaler(layout: WorldLayout, region: RegionLayout, n: int) -> ServiceProgram:
    assert layout.options.scale is not None
    least, most = layout.options.scale
    name = region.scaler_name(n)
    options: dict[str, object] = {
        "name": name,
        "region": region.name,
        "fabric": layout.paths.fabric_seen_from(region.name),
        "port": region.scaler_ports[n - 1],
        "driver": "world",
        "world": layout.paths.state,
        "least": least,
        "most": most,
        **_SCALER_PLAN,
    }
    if layout.options.box_capacity is not None:
        options["per-box"] = layout.options.box_capacity
    program = _program(name, "wholesale scaler", options)
    return _logs_in(layout, program, "scaler", region.name)


def _frontdesk(layout: WorldLayout, region: RegionLayout) -> ServiceProgram:
    name = region.frontdesk_name
    options = _wholesale(layout, name, region) | {
        "host": HOST,
        "port": region.frontdesk_port,
        "admin-port": region.frontdesk_admin_port,
    }
    program = _program(name, "wholesale frontdesk", options)
    return _logs_in(layout, program, "frontdesk", region.name)


def _logs_in(
    layout: WorldLayout,
    program: ServiceProgram,
    service: Service,
    place: str,
    prefix: str = AMQP_LOGIN,
) -> ServiceProgram:
    """Return ``program`` with its user, and the path of its password, in its environment."""
    name = user_name(service, place)
    variables = login_variables(name, layout.paths.users / name, prefix)
    return dataclasses.replace(program, variables=(*program.variables, *variables.items()))


def _wholesale(layout: WorldLayout, name: str, region: RegionLayout) -> dict[str, object]:
    return {
        "name": name,
        "region": region.name,
        "fabric": layout.paths.fabric_seen_from(region.name),
        "topics": layout.paths.topics,
        "store": layout.store_url(region),
    }


def _gateway(layout: WorldLayout, region: RegionLayout, box: WorldBox) -> ServiceProgram:
    capacity = layout.options.box_capacity
    options: dict[str, object] = {
        "name": box.name,
        "region": region.name,
        "broker": box.broker.amqp_url,
        "topics": layout.paths.topics,
        "store": layout.store_url(region),
        "host": HOST,
        "port": box.reader_port,
        "admin-port": box.admin_port,
        "drain-seconds": _DRAIN_SECONDS if capacity is None else _CROWD_DRAIN_SECONDS,
        "token-keys": layout.paths.token_keys,
        "token-audience": READERS_AUDIENCE,
        "token-issuer": READERS_ISSUER,
    }
    if capacity is not None:
        options["capacity"] = capacity
    if box.control_socket is not None:
        options["dataplane-socket"] = box.control_socket
    program = _logs_in(layout, _program(box.gateway, "gateway", options), "box", box.name)
    others = (other for other in layout.regions if other is not region)
    urls = (one.endpoints_url for one in (region, *others))
    words = (word for url in urls for word in ("--endpoints", url))
    return dataclasses.replace(program, command=(*program.command, *words))


def _agent(layout: WorldLayout, region: RegionLayout, box: WorldBox) -> ServiceProgram:
    options = {
        "name": box.name,
        "region": region.name,
        "broker": box.broker.amqp_url,
        "management": box.broker.management_url,
        "gateway-admin": box.admin_url,
        "port": box.agent_port,
    }
    program = _program(f"{box.name}-agent", "retail", options)
    program = _logs_in(layout, program, "box", box.name)
    cores = (word for broker in region.core for word in ("--core", broker.amqp_url))
    return dataclasses.replace(program, command=(*program.command, *cores))


def _program(name: str, module: str, options: dict[str, object]) -> ServiceProgram:
    words = (word for key, value in options.items() for word in (f"--{key}", str(value)))
    return ServiceProgram(name=name, command=(sys.executable, "-m", *module.split(), *words))
