import os
from pathlib import Path

import pytest

from localfabric.world.layout import lay_out
from localfabric.world.options import WorldOptions
from localfabric.world.processes import ProcessId, process_id
from localfabric.world.running import planned
from localfabric.world.state import Notes
from localfabric.world.status import Observations, observe, status_document
from newsfabric.brokers.management import ShovelState

LAYOUT = lay_out(WorldOptions(regions=("oregon",), port_base=22400), Path("/tmp/w"))
SELF = process_id(os.getpid())
LOAD = {
    "connections": 7,
    "deliveries_per_second": 12.5,
    "ready": True,
    "draining": False,
    "sockjs_url": "https://box.example/sockjs",
    "websocket_url": "wss://box.example/websocket",
    "sse_url": "https://box.example/events",
}


def process_document(**fields: object) -> dict[str, object]:
    notes = Notes(options=LAYOUT.options, processes=dict.fromkeys(planned(LAYOUT), SELF))
    seen = Observations(
        **{"shovels": {}, "loads": {}, "routed": {}, "engines": {}, "canaries": {}, **fields}  # type: ignore[arg-type]
    )
    (region,) = status_document(LAYOUT, notes, seen)["regions"]
    assert isinstance(region, dict)
    return region


def test_the_keys_that_others_rely_on_are_there() -> None:
    region = process_document(loads={"oregon-retail-1": LOAD})
    assert {"name", "frontdesk_url", "endpoints_url"} <= set(region)
    assert region["board_url"] == f"{region['frontdesk_url']}/board"
    brokers, services, gateways = region["brokers"], region["services"], region["gateways"]
    assert isinstance(brokers, list)
    assert isinstance(services, list)
    assert isinstance(gateways, list)
    assert [(b["name"], b["role"]) for b in brokers] == [
        ("oregon-client-1", "client"),
        ("oregon-core-1", "core"),
        ("oregon-retail-1", "retail"),
    ]
    assert {"pid", "amqp_url", "management_url"} <= set(brokers[0])
    (oregon,) = LAYOUT.regions
    core = {service.name for service in oregon.services}
    assert {s["name"] for s in services} == core | {"oregon-retail-1-agent"}
    assert len(services) == len(core) + 1
    assert {"name", "pid", "sockjs_url", "websocket_url", "sse_url", "connections"} <= set(
        gateways[0]
    )


def test_a_broker_is_shown_with_the_rabbitmq_that_was_started_dead_or_alive() -> None:
    notes = Notes(
        options=LAYOUT.options,
        processes=dict.fromkeys(planned(LAYOUT)),
        versions={"oregon-core-1": "4.3.6"},
    )
    status = status_document(LAYOUT, notes, Observations({}, {}, {}, {}, {}))
    found = {broker["name"]: broker["version"] for broker in status["regions"][0]["brokers"]}
    assert found == {
        "oregon-client-1": None,
        "oregon-core-1": "4.3.6",
        "oregon-retail-1": None,
    }


def test_a_gateway_is_shown_with_its_own_word_about_itself() -> None:
    gateways = process_document(loads={"oregon-retail-1": LOAD})["gateways"]
    assert isinstance(gateways, list)
    assert gateways[0]["connections"] == 7
    assert gateways[0]["websocket_url"] == "wss://box.example/websocket"
    assert gateways[0]["ready"] is True


def test_a_gateway_that_does_not_answer_has_its_planned_urls_and_no_count() -> None:
    gateways = process_document(loads={"oregon-retail-1": None})["gateways"]
    assert isinstance(gateways, list)
    assert gateways[0]["connections"] is None
    assert gateways[0]["websocket_url"] == "ws://127.0.0.1:22543/websocket"
    assert gateways[0]["ready"] is False


def gateway(**engine: object) -> dict[str, object]:
    gateways = process_document(engines={"oregon-retail-1": engine})["gateways"]
    assert isinstance(gateways, list)
    (found,) = gateways
    assert isinstance(found, dict)
    return found


def test_a_gateway_names_its_engine_and_both_of_its_processes() -> None:
    found = gateway(engine="native", pid=os.getpid(), dataplane_pid=4711)
    assert (found["engine"], found["pid"], found["dataplane_pid"]) == ("native", os.getpid(), 4711)
    found = gateway(engine="tornado", pid=os.getpid(), dataplane_pid=None)
    assert (found["engine"], found["dataplane_pid"]) == ("tornado", None)
    found = gateway()
    assert (found["engine"], found["dataplane_pid"]) == (None, None)


def test_a_control_plane_that_took_the_place_of_a_dead_one_is_shown() -> None:
    dead = {"oregon-retail-1-gateway": ProcessId(os.getpid(), 1)}
    notes = Notes(options=LAYOUT.options, processes=dict.fromkeys(planned(LAYOUT), SELF) | dead)
    engines = {"oregon-retail-1": {"engine": "native", "pid": os.getpid(), "dataplane_pid": 4711}}
    status = status_document(LAYOUT, notes, Observations({}, {}, {}, engines, {}))
    (found,) = status["regions"][0]["gateways"]
    assert (found["pid"], found["running"]) == (os.getpid(), True)
    engines = {"oregon-retail-1": {"engine": "native", "dataplane_pid": 4711}}
    status = status_document(LAYOUT, notes, Observations({}, {}, {}, engines, {}))
    (found,) = status["regions"][0]["gateways"]
    assert (found["pid"], found["running"], found["dataplane_pid"]) == (None, False, 4711)


def test_shovels_are_listed_by_the_place_they_run_at() -> None:
    shovels = process_document(
        shovels={
            "oregon/core": {"publish.oregon.1": ShovelState("publish.oregon.1", "running")},
            "oregon-retail-1": None,
        }
    )["shovels"]
    assert isinstance(shovels, list)
    assert shovels[1]["canary_age_ms"] is None
    assert [(s["runs_on"], s["name"], s["state"]) for s in shovels] == [
        ("oregon/client", "*", "unknown"),
        ("oregon/core", "publish.oregon.1", "running"),
        ("oregon-retail-1", "*", "unknown"),
    ]


def test_a_shovel_is_shown_with_the_age_of_its_canary() -> None:
    fields = {"name": "publish.oregon.1", "canary_age_ms": 412, "restarts": 1}
    shovels = process_document(
        shovels={"oregon/core": {"publish.oregon.1": ShovelState("publish.oregon.1", "running")}},
        canaries={"oregon/core": {"publish.oregon.1": fields}},
    )["shovels"]
    assert isinstance(shovels, list)
    (found,) = (s for s in shovels if s["name"] == "publish.oregon.1")
    assert (found["canary_age_ms"], found["restarts"]) == (412, 1)


def test_a_dead_process_has_no_pid() -> None:
    dead = ProcessId(os.getpid(), 1)
    notes = Notes(
        options=LAYOUT.options,
        processes=dict.fromkeys(planned(LAYOUT), SELF) | {"oregon-core-1": dead, "epmd": None},
    )
    status = status_document(LAYOUT, notes, Observations({}, {}, {}, {}, {}))
    core = next(b for b in status["regions"][0]["brokers"] if b["role"] == "core")
    assert (core["pid"], core["running"]) == (None, False)
    assert status["epmd"] == {"name": "epmd", "pid": None, "running": False}


@pytest.mark.sockets
async def test_where_nothing_answers_everything_is_unknown() -> None:
    seen = await observe(LAYOUT)
    assert seen == Observations(
        shovels={"oregon/client": None, "oregon/core": None, "oregon-retail-1": None},
        loads={"oregon-retail-1": None},
        routed={"oregon": None},
        engines={"oregon-retail-1": {}},
        canaries={},
    )
