"""The check that a region's own nodes have all messages that other regions wrote."""

from __future__ import annotations

import time
from types import SimpleNamespace

from newsfabric.store._cassandra_presence import Presence


class FakeNodeList:
    """The driver's list of nodes, and its events."""

    def __init__(self, **centres: str) -> None:
        self.nodes = {
            name: SimpleNamespace(endpoint=name, datacenter=None, is_up=True) for name in centres
        }
        self.centres = centres
        self.presence = Presence("oregon", self.nodes.values)

    def connect(self) -> None:
        """Begin with the nodes of a URL, and then learn their regions."""
        for node in self.nodes.values():
            if node.is_up:
                self.presence.on_add(node)
        for name, node in self.nodes.items():
            node.datacenter = self.centres[name]
        self.presence.note_nodes()

    def down(self, name: str) -> None:
        self.nodes[name].is_up = False
        self.presence.on_down(self.nodes[name])

    def up(self, name: str) -> None:
        self.nodes[name].is_up = True
        self.presence.on_up(self.nodes[name])

    def is_whole(self, *, later: float = 0.0) -> bool:
        return self.presence.is_whole(time.monotonic() + later)


def connected(**centres: str) -> FakeNodeList:
    driver = FakeNodeList(**centres)
    driver.connect()
    return driver


def test_nodes_that_are_found_were_there_before() -> None:
    assert connected(a="oregon", b="oregon", c="dublin").is_whole()


def test_a_region_whose_nodes_were_all_away_is_whole_some_time_after_the_first_returns() -> None:
    driver = connected(a="oregon", b="oregon", c="dublin")
    driver.down("a")
    driver.down("b")
    assert not driver.is_whole(later=3_600.0)
    driver.up("b")
    assert not driver.is_whole()
    assert driver.is_whole(later=60.0)
    driver.up("a")
    assert driver.is_whole(later=60.0)


def test_one_of_several_and_nodes_of_other_regions_change_nothing() -> None:
    driver = connected(a="oregon", b="oregon", c="dublin")
    for name in "abc":
        driver.down(name)
        assert driver.is_whole()
        driver.up(name)
    assert driver.is_whole()


def test_a_process_that_begins_while_all_are_away_notices_their_return() -> None:
    driver = FakeNodeList(a="oregon", c="dublin")
    # The driver reports no more events of this node once its region is known.
    driver.down("a")
    driver.connect()
    assert not driver.is_whole(later=3_600.0)
    driver.up("a")
    assert not driver.is_whole()
    assert driver.is_whole(later=60.0)


def test_a_node_that_goes_while_another_returns_doesnt_hide_that_return() -> None:
    driver = connected(a="oregon", b="oregon")
    driver.down("a")
    driver.down("b")
    # The driver's threads report both events at once.
    driver.nodes["b"].is_up = True
    driver.presence.on_down(driver.nodes["a"])
    driver.presence.on_up(driver.nodes["b"])
    assert not driver.is_whole()
    assert driver.is_whole(later=60.0)


def test_a_node_that_leaves_the_cluster_is_no_node_any_more() -> None:
    driver = connected(a="oregon", b="oregon")
    driver.down("a")
    gone = driver.nodes.pop("a")
    driver.presence.on_remove(gone)
    assert driver.is_whole()


def test_another_region_that_comes_later_is_noticed() -> None:
    driver = connected(a="oregon", b="oregon")
    assert not driver.presence.has_others
    driver.nodes["c"] = SimpleNamespace(endpoint="c", datacenter="dublin", is_up=True)
    driver.presence.on_add(driver.nodes["c"])
    assert driver.presence.has_others
    driver.down("c")
    assert driver.presence.has_others
    driver.presence.on_remove(driver.nodes.pop("c"))
    assert not driver.presence.has_others
