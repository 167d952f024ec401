import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localfabric.world.layout import lay_out
from localfabric.world.options import WorldOptions
from localfabric.world.parts import parts
from localfabric.world.programs import region_programs
from newsfabric.errors import ConfigError
from newsfabric.kinds import KINDS
from newsfabric.settings import dump_fabric, parse_fabric

STATE = Path("/tmp/w")
MANUAL = Path(__file__).parents[3] / "docs" / "world.md"

worlds = st.builds(
    WorldOptions,
    regions=st.integers(1, 9).map(lambda n: tuple(f"r{i}" for i in range(n))),
    client_nodes=st.integers(1, 5),
    core_nodes=st.integers(1, 5),
    retail=st.integers(1, 9),
    port_base=st.integers(1024, 60000),
    store=st.sampled_from(["sqlite", "cassandra"]),
    store_nodes=st.sampled_from([1, 3]),
    toxiproxy=st.sampled_from([None, "/usr/bin/toxiproxy-server"]),
)


@given(worlds)
def test_no_port_has_two_purposes_and_all_are_within_the_worlds_range(
    options: WorldOptions,
) -> None:
    ports = [port for port, _ in lay_out(options, STATE).ports()]
    assert len(set(ports)) == len(ports)
    assert min(ports) == options.port_base
    assert max(ports) < options.port_base + 100 * (len(options.regions) + 1)
    assert max(ports) <= 65535


@given(worlds)
def test_every_process_has_a_name_of_its_own(options: WorldOptions) -> None:
    layout = lay_out(options, STATE)
    names = [broker.name for broker in layout.brokers()]
    names += [
        program.name for region in layout.regions for program in region_programs(layout, region)
    ]
    assert len(set(names)) == len(names)


@given(worlds)
def test_no_two_store_nodes_share_a_name_or_a_place_on_the_ring(options: WorldOptions) -> None:
    nodes = list(lay_out(options, STATE).store_nodes())
    count = options.store_nodes * len(options.regions) if options.store == "cassandra" else 0
    assert len({node.name for node in nodes}) == count
    assert len({token for node in nodes for token in node.tokens}) == 4 * count
    assert all(-(2**63) <= token < 2**63 for node in nodes for token in node.tokens)


def test_programs_reach_the_store_of_their_own_region() -> None:
    layout = lay_out(WorldOptions(store="cassandra", store_nodes=3), STATE)
    dublin = layout.region("dublin")
    own = "127.0.0.1:18204,127.0.0.1:18206,127.0.0.1:18208"
    others = "127.0.0.1:18104,127.0.0.1:18106,127.0.0.1:18108"
    assert layout.store_url(dublin) == f"cassandra://{own},{others}/newsfabric?dc=dublin"
    commands = [p.command for p in region_programs(layout, dublin) if "--store" in p.command]
    readers = [service for service in dublin.services if KINDS[service.kind].store]
    assert len(commands) == len(readers) + len(dublin.boxes)
    assert all(layout.store_url(dublin) in command for command in commands)


@pytest.mark.parametrize("options", [{"store_nodes": 2}, {"store": "oracle"}])
def test_stores_that_there_cannot_be_are_a_config_error(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        WorldOptions(**options)


def test_the_ports_of_services_are_those_in_the_manual() -> None:
    rows = re.findall(r"^\| ([\d, ]+) \| (.+) \|$", MANUAL.read_text(), re.MULTILINE)
    manual = {int(offset): text for offsets, text in rows for offset in offsets.split(", ")}
    layout = lay_out(WorldOptions(scale=(1, 2)), STATE)
    listed, oregon = dict(layout.ports()), layout.region("oregon")
    assert all(listed[service.port].startswith(service.name) for service in oregon.services)
    assert (listed[18100], listed[18196]) == ("oregon-frontdesk-1", "oregon-frontdesk-1, admin")
    ports = {service.port - 18100: service for service in oregon.services}
    assert set(manual) == {*ports, 0}, "docs/world.md"
    assert [
        f"docs/world.md: {offset} isn't the {KINDS[service.kind].title}'s"
        for offset, service in ports.items()
        if KINDS[service.kind].title not in manual[offset]
    ] == []


def test_the_ports_of_the_default_world_are_those_in_the_manual() -> None:
    layout = lay_out(WorldOptions(), STATE)
    services = {service.name for region in layout.regions for service in region.services}
    assert {"oregon-shovels", "oregon-router-1", "oregon-router-2", "dublin-mailbox-2"} < services
    found = {port: name for port, name in layout.ports() if name.split(",")[0] not in services}
    assert found == {
        18000: "Erlang's port mapper",
        **_region_ports("oregon", 18100),
        **_region_ports("dublin", 18200),
    }


def _region_ports(name: str, base: int) -> dict[int, str]:
    return {
        base + 10: f"{name}-client-1, AMQP",
        base + 11: f"{name}-client-1, management",
        base + 12: f"{name}-client-1, Erlang distribution",
        base + 25: f"{name}-core-1, AMQP",
        base + 26: f"{name}-core-1, management",
        base + 27: f"{name}-core-1, Erlang distribution",
        base + 40: f"{name}-retail-1, AMQP",
        base + 41: f"{name}-retail-1, management",
        base + 42: f"{name}-retail-1, Erlang distribution",
        base + 43: f"{name}-retail-1, readers",
        base + 44: f"{name}-retail-1-gateway, admin",
        base + 45: f"{name}-retail-1-agent",
    }


def test_a_proxy_cluster_lies_where_one_more_region_would() -> None:
    layout = lay_out(WorldOptions(proxy=True), STATE)
    assert [(n.name, n.amqp_port) for n in layout.proxy_nodes] == [("proxy-1", 18310)]
    (proxy,) = layout.fabric().proxies
    assert (proxy.name, proxy.nearest) == ("proxy", "oregon")
    assert parts(layout)["proxy-1"].kind == "proxy node"


@pytest.mark.parametrize(
    "regions", [("proxy",), tuple("abcdefghi")], ids=["named as it is", "nine regions"]
)
def test_there_isnt_a_proxy_everywhere(regions: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        WorldOptions(regions=regions, proxy=True)


def test_two_worlds_a_thousand_ports_apart_share_none() -> None:
    first, second = (
        {port for port, _ in lay_out(WorldOptions(port_base=base, retail=9), STATE).ports()}
        for base in (18000, 19000)
    )
    assert first.isdisjoint(second)


def test_the_fabric_it_tells_its_services_of_is_a_valid_one() -> None:
    layout = lay_out(WorldOptions(core_nodes=3, client_nodes=2), STATE)
    fabric = layout.fabric()
    assert parse_fabric(json.loads(dump_fabric(fabric))) == fabric
    assert [node.name for node in fabric.region("dublin").core] == [
        "dublin-core-1",
        "dublin-core-2",
        "dublin-core-3",
    ]


def test_what_publishers_can_send_leaves_room_for_what_shovels_add() -> None:
    layout = lay_out(WorldOptions(proxy=True, client_nodes=2), STATE)
    entrances = [*layout.proxy_nodes, *(node for each in layout.regions for node in each.client)]
    behind = [node for each in layout.regions for node in each.core]
    assert {node.frame_max for node in entrances} == {20 * 1024}
    assert {node.frame_max for node in behind} == {128 * 1024}
    assert {node.message_max for node in entrances} == {128 * 1024}
    assert {node.message_max for node in behind} == {1024 * 1024}


def test_an_agent_is_given_every_core_node() -> None:
    layout = lay_out(WorldOptions(core_nodes=2), STATE)
    (agent,) = [
        p for p in region_programs(layout, layout.regions[0]) if p.name == "oregon-retail-1-agent"
    ]
    assert [agent.command[n + 1] for n, word in enumerate(agent.command) if word == "--core"] == [
        "amqp://127.0.0.1:18125/%2F",
        "amqp://127.0.0.1:18128/%2F",
    ]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"regions": ("Oregon",)}, "no region name"),
        ({"regions": ("a", "a")}, "named twice"),
        ({"regions": ("",)}, "no region name"),
        ({"retail": 10}, "retail boxes: 10 is not in 1..9"),
        ({"core_nodes": 0}, "core nodes: 0 is not in 1..5"),
        ({"port_base": 80}, "port base: 80 is not in"),
        ({"port_base": 65500}, "port base: 65500 is not in"),
    ],
)
def test_a_world_that_cannot_be_is_refused(wrong: dict[str, object], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        WorldOptions(**wrong)  # type: ignore[arg-type]


def test_an_unknown_region_is_answered_with_those_there_are() -> None:
    layout = lay_out(WorldOptions(), STATE)
    assert layout.region(None).name == "oregon"
    with pytest.raises(ConfigError, match=r"no region 'mars'.*oregon, dublin"):
        layout.region("mars")


def test_gateway_and_data_plane_meet_in_the_worlds_folder() -> None:
    layout = lay_out(WorldOptions(regions=("oregon",)), Path("/tmp/w"))
    (box,) = layout.boxes()
    assert box.control_socket == Path(f"/tmp/w/sockets/{box.reader_port}")
    programs = {p.name: p.command for p in region_programs(layout, layout.regions[0])}
    command = programs[box.gateway]
    at = command.index("--dataplane-socket")
    assert command[at + 1] == str(box.control_socket)


def test_a_folder_too_deep_for_a_socket_leaves_the_place_to_the_gateway() -> None:
    layout = lay_out(WorldOptions(regions=("oregon",)), Path("/tmp") / ("x" * 100))
    (box,) = layout.boxes()
    assert box.control_socket is None
    programs = {p.name: p.command for p in region_programs(layout, layout.regions[0])}
    assert "--dataplane-socket" not in programs[box.gateway]
