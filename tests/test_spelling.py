"""The error for a name that doesn't exist."""

from __future__ import annotations

import pytest

from newsfabric.errors import ConfigError
from newsfabric.settings import Fabric, Node, Region
from newsfabric.spelling import meant, unknown_name
from operations.worlds import WorldPlaces


def test_an_unknown_name_is_answered_with_the_one_that_was_meant_and_all_there_are() -> None:
    known = ["oregon", "dublin"]
    assert str(unknown_name("dublni", known, "region", "here")) == (
        "no region 'dublni' here; did you mean dublin? (there is: oregon, dublin)"
    )
    assert str(unknown_name("x", [], "box", "here")) == "no box 'x' here (there is: none)"
    assert meant("frankfurt", known) == ""


def test_a_region_of_a_fabric_and_of_a_world_is_meant() -> None:
    node = Node("n-1", "amqp://n-1/%2F", "http://n-1:15672")
    region = Region(name="oregon", frontdesk_url="http://n-1:8080", client=(node,), core=(node,))
    fabric = Fabric((region,))
    world = WorldPlaces(fabric=fabric, topics=None, processes=(), stores={})  # type: ignore[arg-type]
    for of in (fabric.region, world.region):
        with pytest.raises(ConfigError, match=r"'oregno'.*did you mean oregon\?"):
            of("oregno")
