"""The state of a world: the output of ``newsfabric status --json``, as plain values.

The shape is a contract: keys are added, never changed. A process that has died has ``"pid": null``
and ``"running": false``; a shovel whose broker doesn't answer is ``"unknown"``. ``canary_age_ms``
is null if no canary has arrived, or its keeper or agent doesn't answer.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from localfabric.world.broker import HOST, WorldBroker
from localfabric.world.dataplanes import dataplanes
from localfabric.world.layout import RegionLayout, WorldBox, WorldLayout
from localfabric.world.options import PROXY
from localfabric.world.processes import ProcessId, process_id
from localfabric.world.programs import region_programs
from localfabric.world.running import EPMD
from localfabric.world.state import Notes
from newsfabric.brokers.management import Management, ShovelState
from newsfabric.errors import ManagementError
from newsfabric.http.fetching import fetch
from newsfabric.settings import Credentials

_TIMEOUT: Final = 2.0
# The place of shovels to the proxy cluster, as its Cluster is written.
_AT_PROXY: Final = f"{PROXY}/proxy"
_SEQ: Final = re.compile(rb"^newsfabric_router_seq (\S+)$", re.MULTILINE)

# Place of shovels (``oregon/core`` or a box's name) → their states; None: no answer.
Shovels = Mapping[str, Mapping[str, ShovelState] | None]
# Region → the sum of its routers' last numbers; None: no answer.
Routed = Mapping[str, int | None]
# Box → its gateway's answer to /load; None: no answer.
Loads = Mapping[str, dict[str, Any] | None]
# Box → its gateway's answer to /engine; without one, the data plane found in /proc.
Engines = Mapping[str, dict[str, Any]]
# Place of shovels → their names → the answer about their canaries of keeper or agent.
Canaries = Mapping[str, Mapping[str, Mapping[str, Any]]]


@dataclasses.dataclass(frozen=True, slots=True)
class Observations:
    """The results of a look at the running parts."""

    shovels: Shovels
    loads: Loads
    routed: Routed
    engines: Engines
    canaries: Canaries


async def observe(layout: WorldLayout) -> Observations:
    """Ask every broker, gateway and router, all at once; None for those that don't answer
    in time."""
    places = {place: nodes for region in layout.regions for place, nodes in _places(region)}
    if layout.proxy_nodes:
        places[_AT_PROXY] = layout.proxy_nodes
    boxes = list(layout.boxes())
    planes = {found.socket: found.process.pid for found in dataplanes(layout.paths.state)}
    shovels, loads, routed, engines, canaries = await asyncio.gather(
        asyncio.gather(*(_shovel_states(nodes) for nodes in places.values())),
        asyncio.gather(*(_load(box) for box in boxes)),
        asyncio.gather(*(_routed(region) for region in layout.regions)),
        asyncio.gather(*(_engine(box, planes) for box in boxes)),
        _canaries(layout),
    )
    return Observations(
        shovels=dict(zip(places, shovels, strict=True)),
        loads={box.name: load for box, load in zip(boxes, loads, strict=True)},
        routed={r.name: count for r, count in zip(layout.regions, routed, strict=True)},
        engines={box.name: engine for box, engine in zip(boxes, engines, strict=True)},
        canaries=canaries,
    )


def _places(region: RegionLayout) -> Iterator[tuple[str, tuple[WorldBroker, ...]]]:
    """Yield the places of shovels of ``region``, and the nodes that can be asked about them."""
    yield f"{region.name}/client", region.client
    yield f"{region.name}/core", region.core
    yield from ((box.name, (box.broker,)) for box in region.boxes)


async def _shovel_states(nodes: tuple[WorldBroker, ...]) -> dict[str, ShovelState] | None:
    """Return the shovels of all of ``nodes`` that answer, by name; None if none does."""
    asked = await asyncio.gather(*map(_states_on, nodes))
    answers = [found for found in asked if found is not None]
    # A shovel that moves between nodes is listed on both: the running one counts.
    states = sorted(
        (state for found in answers for state in found.values()),
        key=lambda state: state.state == "running",
    )
    return {state.name: state for state in states} if answers else None


async def _states_on(node: WorldBroker) -> dict[str, ShovelState] | None:
    try:
        async with Management(node.management_url, Credentials(), timeout=_TIMEOUT) as management:
            return await management.shovel_states()
    except ManagementError:
        return None


async def _load(box: WorldBox) -> dict[str, Any] | None:
    return await _document(f"{box.admin_url}/load")


async def _engine(box: WorldBox, dataplanes: Mapping[Path, int]) -> dict[str, Any]:
    document = await _document(f"{box.admin_url}/engine")
    if document is not None:
        return document
    # The control plane is dead or doesn't answer, but the readers may still be connected.
    pid = None if box.control_socket is None else dataplanes.get(box.control_socket)
    return {} if pid is None else {"engine": "native", "dataplane_pid": pid}


async def _canaries(layout: WorldLayout) -> Canaries:
    """Ask every keeper and agent."""
    ports: list[tuple[str | None, int]] = [(None, r.named("keeper").port) for r in layout.regions]
    ports += [(box.name, box.agent_port) for box in layout.boxes()]
    urls = [f"http://{HOST}:{port}/canaries" for _, port in ports]
    documents = await asyncio.gather(*(_document(url) for url in urls))
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for (box, _), document in zip(ports, documents, strict=True):
        for shovel in (document or {}).get("shovels", []):
            place = str(box or shovel.get("runs_on"))
            found.setdefault(place, {})[str(shovel.get("name"))] = shovel
    return found


async def _document(url: str) -> dict[str, Any] | None:
    try:
        found = orjson.loads(await _get(url) or b"null")
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


async def _routed(region: RegionLayout) -> int | None:
    """Return the number of messages that the region's routers have numbered since they started."""
    pages = await asyncio.gather(
        *(_get(f"http://{HOST}:{router.port}/metrics") for router in region.of("router"))
    )
    found = [_SEQ.search(page) for page in pages if page is not None]
    numbers = [int(float(match[1])) for match in found if match is not None]
    return sum(numbers) if numbers else None


async def _get(url: str) -> bytes | None:
    http = SimpleAsyncHTTPClient(force_instance=True)
    try:
        request = HTTPRequest(url, connect_timeout=_TIMEOUT, request_timeout=_TIMEOUT)
        answer = await fetch(http, request)
    except (OSError, HTTPClientError):
        return None
    finally:
        http.close()
    return answer.body


def status_document(layout: WorldLayout, notes: Notes, seen: Observations) -> dict[str, Any]:
    """Return the document of ``newsfabric status --json`` (docs/world.md)."""
    running = notes.running()
    return {
        "state": str(layout.paths.state),
        "ready": notes.ready,
        "epmd": _process(EPMD, running),
        "regions": [_region(layout, region, notes, seen) for region in layout.regions],
        "proxy": _proxy(layout, notes, seen) if layout.proxy_nodes else None,
    }


def _proxy(layout: WorldLayout, notes: Notes, seen: Observations) -> dict[str, Any]:
    return {
        "name": PROXY,
        "brokers": [_broker(PROXY, broker, notes) for broker in layout.proxy_nodes],
        "shovels": _shovels(
            _AT_PROXY, seen.shovels.get(_AT_PROXY), seen.canaries.get(_AT_PROXY, {})
        ),
    }


def _region(
    layout: WorldLayout, region: RegionLayout, notes: Notes, seen: Observations
) -> dict[str, Any]:
    running = notes.running()
    gateways = {box.gateway for box in region.boxes}
    return {
        "name": region.name,
        "frontdesk_url": region.frontdesk_url,
        "board_url": region.board_url,
        "routed": seen.routed.get(region.name),
        "endpoints_url": region.endpoints_url,
        "brokers": [_broker(role, broker, notes) for role, broker in region.brokers()],
        "store": [
            {**_process(node.name, running), "contact": node.contact} for node in region.store_nodes
        ],
        "services": [
            _process(program.name, running)
            for program in region_programs(layout, region)
            if program.name not in gateways
        ],
        "shovels": [
            shovel
            for place, _ in _places(region)
            for shovel in _shovels(place, seen.shovels.get(place), seen.canaries.get(place, {}))
        ],
        "gateways": [_gateway(box, running, seen) for box in region.boxes],
    }


def _broker(role: str, broker: WorldBroker, notes: Notes) -> dict[str, Any]:
    return {
        **_process(broker.name, notes.running()),
        "role": role,
        "version": notes.versions.get(broker.name),
        "amqp_url": broker.amqp_url,
        "management_url": broker.management_url,
    }


def _process(name: str, running: Mapping[str, ProcessId]) -> dict[str, Any]:
    process = running.get(name)
    return {
        "name": name,
        "pid": None if process is None else process.pid,
        "running": process is not None,
    }


def _shovels(
    place: str,
    states: Mapping[str, ShovelState] | None,
    canaries: Mapping[str, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    if states is None:
        silent = "the broker doesn't answer"
        nothing = {"canary_age_ms": None, "restarts": None}
        return [{"name": "*", "runs_on": place, "state": "unknown", "reason": silent} | nothing]
    return [
        {
            "name": state.name,
            "runs_on": place,
            "state": state.state,
            "reason": state.reason,
            "canary_age_ms": canaries.get(state.name, {}).get("canary_age_ms"),
            "restarts": canaries.get(state.name, {}).get("restarts"),
        }
        for state in sorted(states.values(), key=lambda state: state.name)
    ]


def _gateway(box: WorldBox, running: Mapping[str, ProcessId], seen: Observations) -> dict[str, Any]:
    load = seen.loads.get(box.name) or {}
    engine = seen.engines.get(box.name) or {}
    if box.gateway not in running and isinstance(engine.get("pid"), int):
        # Another control plane was started in place of ours.
        replacement = process_id(engine["pid"])
        running = {} if replacement is None else {box.gateway: replacement}
    return {
        **_process(box.gateway, running),
        "box": box.name,
        "engine": engine.get("engine"),
        "dataplane_pid": engine.get("dataplane_pid"),
        "sockjs_url": load.get("sockjs_url", box.sockjs_url),
        "websocket_url": load.get("websocket_url", box.websocket_url),
        "sse_url": load.get("sse_url", box.sse_url),
        "connections": load.get("connections"),
        "deliveries_per_second": load.get("deliveries_per_second"),
        "ready": load.get("ready") is True,
        "draining": load.get("draining") is True,
    }
