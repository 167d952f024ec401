"""The state of a fabric on hosts, in the shape of ``newsfabric status --json``. Pure.

A region's ``routed``, known only for a world of processes, is null. Shovels aren't asked for here;
``newsfabric top --view shovels`` shows them. A host that isn't reached is listed as a service that
doesn't run, with the host's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from operations.hosts.described import Host, Hosts
from operations.hosts.remote import HostReport, Unit
from operations.hosts.services_program import GATEWAY

_BROKER = "rabbitmq-server"
_STORE = "cassandra"

All = Mapping[str, HostReport | None]


def hosts_status(hosts: Hosts, seen: All) -> dict[str, Any]:
    """Return the document of ``newsfabric status --json``, with the keys of a world's."""
    regions = [place for place in hosts.places if not _is_proxy(hosts, place)]
    proxies = [place for place in hosts.places if _is_proxy(hosts, place)]
    return {
        "state": str(hosts.folder),
        "ready": all(
            found is not None and all(u.active for u in found.units) for found in seen.values()
        ),
        "epmd": None,
        "regions": [_region(hosts, region, seen) for region in regions],
        "proxy": _proxy(hosts, proxies[0], seen) if proxies else None,
    }


def _is_proxy(hosts: Hosts, place: str) -> bool:
    return all(host.part == "proxy" for host in hosts.hosts if host.place == place)


def _proxy(hosts: Hosts, place: str, seen: All) -> dict[str, Any]:
    return {"name": place, "brokers": _brokers(hosts, place, seen), "shovels": []}


def _region(hosts: Hosts, region: str, seen: All) -> dict[str, Any]:
    own = [host for host in hosts.hosts if host.place == region]
    units = [unit for host in own if (found := seen[host.name]) for unit in found.units]
    url = hosts.frontdesks.get(region, "")
    rest = [u for u in units if u.unit not in (_BROKER, _STORE, GATEWAY)]
    away = [{"name": h.name, "pid": None, "running": False} for h in own if seen[h.name] is None]
    return {
        "name": region,
        "frontdesk_url": url,
        "board_url": f"{url}/board",
        "routed": None,
        "endpoints_url": f"{url}/endpoints.json",
        "brokers": _brokers(hosts, region, seen),
        "store": [_process(u) | {"contact": u.host.name} for u in units if u.unit == _STORE],
        "services": [*map(_process, rest), *away],
        "shovels": [],
        "gateways": [
            _gateway(unit, found)
            for host in own
            if (found := seen[host.name])
            for unit in found.units
            if unit.unit == GATEWAY
        ],
    }


def _brokers(hosts: Hosts, place: str, seen: All) -> list[dict[str, Any]]:
    return [
        _process(unit) | {"role": host.part, "amqp_url": host.name, "management_url": host.name}
        for host in hosts.hosts
        if host.place == place and (found := seen[host.name])
        for unit in found.units
        if unit.unit == _BROKER
    ]


def _process(unit: Unit) -> dict[str, Any]:
    return {"name": unit.name, "pid": unit.pid, "running": unit.active}


def _gateway(unit: Unit, found: HostReport) -> dict[str, Any]:
    load, engine = found.load, found.engine
    return {
        **_process(unit),
        "box": unit.host.name,
        "engine": engine.get("engine"),
        "dataplane_pid": engine.get("dataplane_pid"),
        "sockjs_url": load.get("sockjs_url"),
        "websocket_url": load.get("websocket_url"),
        "sse_url": load.get("sse_url"),
        "connections": load.get("connections"),
        "deliveries_per_second": load.get("deliveries_per_second"),
        "ready": load.get("ready") is True,
        "draining": load.get("draining") is True,
    }


def hosts_unwell(hosts: Hosts, seen: All) -> list[Host]:
    """Return the hosts that weren't reached."""
    return [host for host in hosts.hosts if seen[host.name] is None]
