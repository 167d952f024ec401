"""When a region's nodes have come back from being all away."""

from __future__ import annotations

import time
from types import SimpleNamespace

from newsfabric.store._cassandra_session import Presence

NEVER = float("-inf")


def node(name: str, centre: str = "oregon") -> SimpleNamespace:
    """What the driver says of a node."""
    return SimpleNamespace(endpoint=name, datacenter=centre)


def test_nodes_that_are_found_have_not_come_back() -> None:
    presence = Presence("oregon")
    for name in "ab":
        presence.on_add(node(name))
    assert presence.came_back == NEVER


def test_the_first_that_returns_when_all_were_away_brings_the_region_back() -> None:
    presence = Presence("oregon")
    for name in "ab":
        presence.on_add(node(name))
        presence.on_down(node(name))
    before = time.monotonic()
    presence.on_up(node("b"))
    back = presence.came_back
    assert before <= back <= time.monotonic()
    presence.on_up(node("a"))
    assert presence.came_back == back


def test_one_of_several_and_nodes_of_other_regions_change_nothing() -> None:
    presence = Presence("oregon")
    for one in (node("a"), node("b"), node("c", "dublin")):
        presence.on_add(one)
    for one in (node("a"), node("c", "dublin")):
        presence.on_down(one)
        presence.on_up(one)
    assert presence.came_back == NEVER


def test_a_process_that_begins_while_all_are_away_notices_their_return() -> None:
    presence = Presence("oregon")
    presence.on_down(node("a"))
    presence.on_up(node("a"))
    assert presence.came_back > NEVER
