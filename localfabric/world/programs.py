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
    Service,
    WorldBox,
    WorldLayout,
)
from newsfabric.kinds import KINDS
from newsfabric.settings import AMQP_LOGIN, SHOVEL_LOGIN, login_variables
from newsfabric.topology import roles

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
        *(_core_service(layout, region, service) for service in region.services),
        *(program for box in region.boxes for program in box_programs(layout, region, box)),
    )


def box_programs(
    layout: WorldLayout, region: RegionLayout, box: WorldBox
) -> tuple[ServiceProgram, ...]:
    """Return the services of one box of ``region``."""
    return (_agent(layout, region, box), _gateway(layout, region, box))


def _core_service(layout: WorldLayout, region: RegionLayout, service: Service) -> ServiceProgram:
    row = KINDS[service.kind]
    options: dict[str, object] = {
        "name": service.name,
        "region": region.name,
        "fabric": layout.paths.fabric_seen_from(region.name),
        "port": service.port,
    }
    if row.topics:
        options["topics"] = layout.paths.topics
    if row.store:
        options["store"] = layout.store_url(region)
    match service.kind:
        case "frontdesk":
            options |= {
                "host": HOST,
                "port": region.frontdesk_port,
                "admin-port": service.port,
            }
        case "scaler":
            options |= _scaling(layout)
    program = _program(service.name, row.command, options)
    program = _logs_in(layout, program, service.kind, region.name)
    if service.kind == "keeper":
        return _logs_in(layout, program, "shovel", region.name, SHOVEL_LOGIN)
    return program


def _scaling(layout: WorldLayout) -> dict[str, object]:
    """Return a scaler's options for a world that scales."""
    assert layout.options.scale is not None
    least, most = layout.options.scale
    options = {
        "driver": "world",
        "world": layout.paths.state,
        "least": least,
        "most": most,
        **_SCALER_PLAN,
    }
    if layout.options.box_capacity is not None:
        options["per-box"] = layout.options.box_capacity
    return options


def _logs_in(
    layout: WorldLayout,
    program: ServiceProgram,
    service: roles.Service,
    place: str,
    prefix: str = AMQP_LOGIN,
) -> ServiceProgram:
    """Return ``program`` with its user, and the path of its password, in its environment."""
    name = roles.user_name(service, place)
    variables = login_variables(name, layout.paths.users / name, prefix)
    return dataclasses.replace(program, variables=(*program.variables, *variables.items()))


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
    program = _logs_in(
        layout, _program(box.gateway, KINDS["gateway"].command, options), "box", box.name
    )
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
    program = _program(f"{box.name}-agent", KINDS["agent"].command, options)
    program = _logs_in(layout, program, "box", box.name)
    cores = (word for broker in region.core for word in ("--core", broker.amqp_url))
    return dataclasses.replace(program, command=(*program.command, *cores))


def _program(name: str, module: str, options: dict[str, object]) -> ServiceProgram:
    words = (word for key, value in options.items() for word in (f"--{key}", str(value)))
    return ServiceProgram(name=name, command=(sys.executable, "-m", *module.split(), *words))
