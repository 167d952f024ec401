"""Whether a region's own nodes have all that other regions wrote."""

from __future__ import annotations

import time
from types import SimpleNamespace

from newsfabric.store._cassandra_session import Presence


def node(name: str, centre: str = "oregon") -> SimpleNamespace:
    """What the driver says of a node."""
    return SimpleNamespace(endpoint=name, datacenter=centre)


def is_whole(presence: Presence, *, later: float = 0.0) -> bool:
    return presence.is_whole(time.monotonic() + later)


def test_nodes_that_are_found_were_there_before() -> None:
    presence = Presence("oregon")
    for name in "ab":
        presence.on_add(node(name))
    assert is_whole(presence)


def test_a_region_whose_nodes_were_all_away_is_whole_some_time_after_the_first_returns() -> None:
    presence = Presence("oregon")
    for name in "ab":
        presence.on_add(node(name))
        presence.on_down(node(name))
    assert not is_whole(presence, later=3_600.0)
    presence.on_up(node("b"))
    assert not is_whole(presence)
    assert is_whole(presence, later=60.0)
    presence.on_up(node("a"))
    assert is_whole(presence, later=60.0)


def test_one_of_several_and_nodes_of_other_regions_change_nothing() -> None:
    presence = Presence("oregon")
    for one in (node("a"), node("b"), node("c", "dublin")):
        presence.on_add(one)
    for one in (node("a"), node("c", "dublin")):
        presence.on_down(one)
        assert is_whole(presence)
        presence.on_up(one)
    assert is_whole(presence)


def test_a_process_that_begins_while_all_are_away_notices_their_return() -> None:
    presence = Presence("oregon")
    presence.on_down(node("a"))
    presence.on_up(node("a"))
    assert not is_whole(presence)
