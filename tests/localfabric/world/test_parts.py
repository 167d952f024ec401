from pathlib import Path

import pytest

from localfabric.world.layout import lay_out
from localfabric.world.options import WorldOptions
from localfabric.world.parts import find_parts, parts
from localfabric.world.programs import region_programs
from newsfabric.errors import ConfigError

LAYOUT = lay_out(WorldOptions(regions=("oregon", "dublin")), Path("/tmp/w"))


def test_every_process_but_the_port_mapper_is_a_part() -> None:
    programs = {p.name for region in LAYOUT.regions for p in region_programs(LAYOUT, region)}
    brokers = {broker.name for broker in LAYOUT.brokers()}
    planes = {f"{box.name}-dataplane" for box in LAYOUT.boxes()}
    assert parts(LAYOUT).keys() == programs | brokers | planes


def test_a_box_is_its_broker_its_agent_and_both_processes_of_its_gateway() -> None:
    found = find_parts(LAYOUT, ["dublin-retail-1-box"])
    assert [(part.name, part.kind) for part in found] == [
        ("dublin-retail-1", "retail node"),
        ("dublin-retail-1-agent", "agent"),
        ("dublin-retail-1-gateway", "gateway"),
        ("dublin-retail-1-dataplane", "dataplane"),
    ]


def test_a_region_is_every_process_of_it() -> None:
    known = parts(LAYOUT)
    found = find_parts(LAYOUT, ["dublin"])
    assert found == [part for part in known.values() if part.region == "dublin"]
    assert {part.kind for part in found} >= {"client node", "core node", "router", "gateway"}
    everything = find_parts(LAYOUT, ["oregon", "dublin", "dublin-router-1"])
    assert sorted(part.name for part in everything) == sorted(known)


def test_a_part_that_is_named_twice_is_found_once() -> None:
    found = find_parts(LAYOUT, ["oregon-retail-1-agent", "oregon-retail-1-box"])
    assert len(found) == len({part.name for part in found}) == 4


def test_a_typo_is_answered_with_the_name_that_was_meant_and_all_there_are() -> None:
    with pytest.raises(ConfigError) as error:
        find_parts(LAYOUT, ["oregon-router-1", "oregon-ruoter-2"])
    assert "did you mean oregon-router-2?" in str(error.value)
    assert all(name in str(error.value) for name in parts(LAYOUT))
