import json
from pathlib import Path

import pytest

from localfabric.world.layout import WorldLayout, lay_out
from localfabric.world.links import configuration
from localfabric.world.options import WorldOptions
from localfabric.world.parts import find_links, link_parts, links, parts
from localfabric.world.programs import LINKS, links_program
from localfabric.world.toxiproxy import find_toxiproxy
from newsfabric.errors import ConfigError

STATE = Path("/tmp/w")


def _world(*regions: str, toxiproxy: str | None = "/bin/toxiproxy-server") -> WorldLayout:
    return lay_out(WorldOptions(regions=regions, toxiproxy=toxiproxy), STATE)


def test_a_region_sees_its_own_nodes_straight_and_the_others_through_proxies() -> None:
    layout = _world("oregon", "dublin")
    straight, seen = layout.fabric(), layout.fabric_seen_from("oregon")
    assert seen.region("oregon") == straight.region("oregon")
    there, here = straight.region("dublin"), seen.region("dublin")
    proxies = {proxy.port: proxy.upstream for proxy in layout.proxies}
    for real, viewed in zip(there.client + there.core, here.client + here.core, strict=True):
        assert real.name == viewed.name
        assert proxies[_port(viewed.amqp_url)] == _port(real.amqp_url)
        assert proxies[_port(viewed.management_url)] == _port(real.management_url)
    assert here.frontdesk_url == there.frontdesk_url


def _port(url: str) -> int:
    return int(url.removesuffix("/%2F").rpartition(":")[2])


def test_each_region_has_a_link_of_its_own_to_the_proxy_cluster() -> None:
    options = WorldOptions(proxy=True, toxiproxy="/bin/toxiproxy-server")
    layout = lay_out(options, STATE)
    assert links(layout).keys() == {
        "oregon-dublin-link",
        "oregon-proxy-link",
        "dublin-proxy-link",
    }
    ((real,), (viewed,)) = (
        fabric.proxies[0].nodes for fabric in (layout.fabric(), layout.fabric_seen_from("dublin"))
    )
    ports = {proxy.port: proxy.upstream for proxy in layout.proxies if proxy.region == "dublin"}
    assert ports[_port(viewed.amqp_url)] == _port(real.amqp_url)


def test_without_toxiproxy_regions_see_each_other_as_they_are() -> None:
    layout = _world("oregon", "dublin", toxiproxy=None)
    assert layout.fabric_seen_from("oregon") == layout.fabric()
    assert links_program(layout) is None
    assert LINKS not in parts(layout)
    assert links(layout) == {}


def test_no_two_regions_share_a_proxy() -> None:
    layout = _world("a", "b", "c")
    assert links(layout).keys() == {"a-b-link", "a-c-link", "b-c-link"}
    names = [name for found in links(layout).values() for name in found]
    assert len(names) == len(set(names)) == len(layout.proxies)


def test_a_regions_name_stands_for_all_its_links() -> None:
    layout = _world("a", "b", "c")
    assert find_links(layout, ["b"]) == ["a-b-link", "b-c-link"]
    assert find_links(layout, ["a-c-link", "c"]) == ["a-c-link", "b-c-link"]


def test_a_wrong_link_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="did you mean a-b-link"):
        find_links(_world("a", "b"), ["a-b-lnik"])


def test_a_world_with_more_wires_than_ports_for_them_has_straight_ones() -> None:
    options = WorldOptions(regions=("a", "b", "c"), core_nodes=5, client_nodes=5, toxiproxy="/x")
    assert lay_out(options, STATE).proxies == ()


def _stored(*regions: str, store_nodes: int = 1, toxiproxy: str | None = "/x") -> WorldLayout:
    options = WorldOptions(
        regions=regions, store="cassandra", store_nodes=store_nodes, toxiproxy=toxiproxy
    )
    return lay_out(options, STATE)


def test_what_two_regions_stores_tell_each_other_goes_through_proxies_too() -> None:
    layout = _stored("oregon", "dublin", store_nodes=3)
    wires = [proxy for proxy in layout.proxies if proxy.what == "store"]
    assert {proxy.link for proxy in wires} == {"oregon-dublin-link"}
    nodes = {node.name: node for node in layout.store_nodes()}
    assert [proxy.node for proxy in wires] == list(nodes)
    for proxy in wires:
        node = nodes[proxy.node]
        assert (proxy.host, proxy.port) == (node.wire_host, node.gossip_port)
        assert (proxy.host, proxy.upstream) == ("127.0.0.2", node.gossip_port)
        assert f"{proxy.host}:{proxy.port}" in node.seeds
        assert (node.datacentre, proxy.other, proxy.region) in {
            ("oregon", "oregon", "dublin"),
            ("dublin", "dublin", "oregon"),
        }


def test_what_stores_tell_each_other_and_the_rest_of_a_link_have_names_of_their_own() -> None:
    layout = _stored("oregon", "dublin")
    pieces = link_parts(layout)
    assert pieces.keys() == {"oregon-dublin-store", "oregon-dublin-feed"}
    what = {proxy.name: proxy.what for proxy in layout.proxies}
    assert {what[name] for name in pieces["oregon-dublin-store"]} == {"store"}
    assert {what[name] for name in pieces["oregon-dublin-feed"]} == {"amqp", "management"}
    both = {name for names in pieces.values() for name in names}
    assert both == set(links(layout)["oregon-dublin-link"])
    assert find_links(layout, ["oregon-dublin-store"]) == ["oregon-dublin-store"]
    assert find_links(layout, ["dublin"]) == ["oregon-dublin-link"]


def test_a_link_that_no_store_replicates_over_has_no_parts() -> None:
    assert link_parts(_world("oregon", "dublin")) == {}
    with pytest.raises(ConfigError, match="did you mean oregon-dublin-link"):
        find_links(_world("oregon", "dublin"), ["oregon-dublin-store"])


@pytest.mark.parametrize(
    "layout", [_stored("oregon"), _stored("a", "b", "c"), _stored("a", "b", toxiproxy=None)]
)
def test_other_stores_are_wired_straight(layout: WorldLayout) -> None:
    assert not [proxy for proxy in layout.proxies if proxy.what == "store"]
    assert {node.wire_host for node in layout.store_nodes()} == {"127.0.0.1"}


def test_toxiproxy_is_sent_every_proxy() -> None:
    layout = _stored("oregon", "dublin")
    document = json.loads(configuration(layout.proxies))
    assert {entry["listen"] for entry in document} == {f"{p.host}:{p.port}" for p in layout.proxies}
    assert len(document) == len(layout.proxies)
    assert all(entry["enabled"] for entry in document)


def test_toxiproxy_is_the_one_that_is_named_or_in_the_checkout_or_on_the_path(
    tmp_path: Path,
) -> None:
    assert find_toxiproxy(tmp_path, {"PATH": str(tmp_path)}) is None
    on_path = tmp_path / "toxiproxy-server"
    on_path.touch(mode=0o755)
    assert find_toxiproxy(tmp_path, {"PATH": str(tmp_path)}) == str(on_path)
    own = tmp_path / ".tools" / "toxiproxy" / "toxiproxy-server"
    own.parent.mkdir(parents=True)
    own.touch(mode=0o755)
    assert find_toxiproxy(tmp_path, {"PATH": str(tmp_path)}) == str(own)
    assert find_toxiproxy(tmp_path, {"NEWSFABRIC_TOXIPROXY": "/x"}) == "/x"
    assert find_toxiproxy(tmp_path, {"NEWSFABRIC_TOXIPROXY": ""}) is None
