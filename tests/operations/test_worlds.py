"""A world, as seen by the commands that work with any fabric."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from newsfabric.errors import ConfigError, WorldError
from newsfabric.settings import Fabric, Node, ProxyCluster, Region
from operations import worlds
from operations.worlds import WorldPlaces


def world(*regions: str, proxy: bool = False) -> WorldPlaces:
    found = tuple(
        Region(name=name, frontdesk_url=f"http://{name}", client=(_node(name),), core=())
        for name in regions
    )
    proxies = (ProxyCluster(name="proxy", nodes=(_node("proxy"),), nearest=regions[0]),)
    fabric = Fabric(found, proxies if proxy else ())
    return WorldPlaces(fabric=fabric, topics=Path("topics.toml"), processes=(), stores={})


def _node(place: str) -> Node:
    return Node(f"{place}-1", f"amqp://{place}", f"http://{place}:15672")


def test_the_first_region_is_meant_where_none_is_named() -> None:
    assert world("oregon", "dublin").region(None).name == "oregon"
    assert world("oregon", "dublin").region("dublin").name == "dublin"


def test_an_unknown_region_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError) as caught:
        world("oregon", "dublin").region("tokyo")
    assert str(caught.value) == "no region 'tokyo' in this world (there is: oregon, dublin)"


def test_the_frontdesk_of_the_named_region_comes_before_the_others() -> None:
    urls = world("a", "b", "c").frontdesk_urls("b")
    assert urls == ["http://b", "http://a", "http://c"]


def test_one_publishes_in_a_region_or_at_the_proxy_and_then_in_the_others() -> None:
    with_proxy = world("oregon", "dublin", proxy=True)
    near = {name: [f"amqp://{name}"] for name in ("proxy", "oregon", "dublin")}
    for place, ways in (
        ("proxy", ["proxy", "oregon", "dublin"]),
        ("dublin", ["dublin", "oregon"]),
        (None, ["oregon", "dublin"]),
    ):
        found = with_proxy.publishing_ways(place)
        assert list(found.items()) == [(name, near[name]) for name in ways]


def test_without_a_proxy_there_is_no_place_called_so() -> None:
    with pytest.raises(ConfigError, match="no region 'proxy'"):
        world("oregon").publishing_ways("proxy")


def test_where_nobody_runs_worlds_that_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    none = importlib.metadata.EntryPoints()
    monkeypatch.setattr(worlds, "entry_points", lambda **_group: none)
    with pytest.raises(WorldError, match="localfabric, which runs worlds, isn't installed"):
        worlds.running_world(Path())
