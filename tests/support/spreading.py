"""How tests are spread over the workers of pytest-xdist: what stays together, what begins first.

The tests of a file stay together, so that what its fixtures start is started once; a mark
``xdist_group`` makes a group of its own, within a file or across files. Who shares a world or the
Cassandra node needs no mark. A worker takes the next group when it has nothing left.

What mostly waits (worlds, brokers, browsers) begins first, and the rest fills the processor beside
it. One process (``-n 0``) takes the same order.
"""

from __future__ import annotations

import os

import pytest
from xdist.scheduler import LoadGroupScheduling

# Fixtures that are worlds, where a test has several: the first is the one.
WORLDS = ("far_world", "boxes", "world")
# What a test needs, by its marks: what comes first here begins first.
NEEDS = ("world", "cargo", "cassandra", "broker", "browser")
# A world that starts takes two cores for half a minute, and 2 GB of memory.
WORLDS_AT_A_TIME = max(1, min(4, os.cpu_count() or 1))


class ByGroupOrFile(LoadGroupScheduling):  # type: ignore[misc]
    """Groups, and files of those tests that are in none."""

    def _split_scope(self, nodeid: str) -> str:
        group: str = super()._split_scope(nodeid)
        return group if group != nodeid else nodeid.partition("::")[0]


def workers() -> int:
    """For ``-n auto``: more than cores, since most tests wait most of the time."""
    return max(4, min(8, 3 * (os.cpu_count() or 1)))


def spread(items: list[pytest.Item]) -> None:
    """Give tests their groups, and bring them into the order in which groups begin."""
    for item in items:
        if (group := _group_of(item)) is not None:
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_turn)


def world_of(item: pytest.Item) -> str | None:
    """Which of the shared worlds a test needs: its fixture's name."""
    names = getattr(item, "fixturenames", ())
    return next((world for world in WORLDS if world in names), None)


def _group_of(item: pytest.Item) -> str | None:
    if item.get_closest_marker("world") is not None or world_of(item) is not None:
        # Those that start worlds of their own are one more kind.
        return f"worlds-{_kind(item) % WORLDS_AT_A_TIME}"
    names = getattr(item, "fixturenames", ())
    if item.get_closest_marker("cassandra") is not None and not (
        "cassandra_home" in names and "cassandra" not in names
    ):
        return "cassandra"
    return None


def _kind(item: pytest.Item) -> int:
    world = world_of(item)
    return len(WORLDS) if world is None else WORLDS.index(world)


def _turn(item: pytest.Item) -> tuple[int, int]:
    marks = (n for n, mark in enumerate(NEEDS) if item.get_closest_marker(mark) is not None)
    return next(marks, len(NEEDS)), _kind(item)
