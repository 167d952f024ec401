"""How tests are spread over the workers of pytest-xdist: what stays together, what begins first.

The tests of a file stay together, so that what its fixtures start is started once; a mark
``xdist_group`` makes a group of its own, within a file or across files. Who shares a world, the
Cassandra node, or what the ``conftest.py`` of a folder makes once for a session, needs no mark. A
worker takes the next group when it has nothing left.

Workers find the groups, and the process that schedules them collects no tests: it reads them in a
file. pytest-xdist itself (3.8) writes them into the tests' ids, which pytest (9.2) doesn't let it
do any more; then it spreads all tests one by one, without a word (its issue 1386).

What mostly waits (worlds, brokers, browsers) begins first, and the rest fills the processor beside
it. One process (``-n 0``) takes the same order.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from shared import folder_of_run
from xdist.scheduler import LoadScopeScheduling

# Fixtures that are worlds, where a test has several: the first is the one.
WORLDS = ("far_world", "boxes", "world")
# In this order worlds are dealt out to workers, in turn. None is those that tests start themselves.
DEALT = ("far_world", "world", None, "boxes")
# What a test needs, by its marks: what comes first here begins first.
NEEDS = ("world", "cargo", "cassandra", "broker", "browser")
# A world that starts takes two cores for half a minute, and 2 GB of memory.
WORLDS_AT_A_TIME = max(1, min(4, os.cpu_count() or 1))


class ByGroupOrFile(LoadScopeScheduling):  # type: ignore[misc]
    """Groups, and files of those tests that are in none."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._file = _groups_of(config)

    @functools.cached_property
    def _groups(self) -> dict[str, str]:
        # Asked for only when all workers have collected.
        groups: dict[str, str] = json.loads(self._file.read_text("utf-8"))
        return groups

    def _split_scope(self, nodeid: str) -> str:
        return self._groups.get(nodeid) or nodeid.partition("::")[0]


def workers() -> int:
    """For ``-n auto``: more than cores, since most tests wait most of the time."""
    return max(4, min(8, 3 * (os.cpu_count() or 1)))


def spread(items: list[pytest.Item], config: pytest.Config) -> None:
    """Give tests their groups, and bring them into the order in which groups begin."""
    for item in items:
        if world_of(item) is not None:
            item.add_marker(pytest.mark.world)
    items.sort(key=_turn)
    groups = {item.nodeid: group for item in items if (group := _group_of(item)) is not None}
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw0":
        # All workers find the same.
        _groups_of(config).write_text(json.dumps(groups), "utf-8")


def _groups_of(config: pytest.Config) -> Path:
    return folder_of_run(config._tmp_path_factory) / "groups.json"  # type: ignore[attr-defined]


def world_of(item: pytest.Item) -> str | None:
    """Which of the shared worlds a test needs: its fixture's name."""
    names = getattr(item, "fixturenames", ())
    # Others may be called so: ours stand (tests/support/standing_worlds.py).
    return next((w for w in WORLDS if "standing" in names and w in names), None)


def _group_of(item: pytest.Item) -> str | None:
    if item.get_closest_marker("world") is not None:
        return f"worlds-{_kind(item) % WORLDS_AT_A_TIME}"
    names = getattr(item, "fixturenames", ())
    if item.get_closest_marker("cassandra") is not None and not (
        "cassandra_home" in names and "cassandra" not in names
    ):
        return "cassandra"
    if (mark := item.get_closest_marker("xdist_group")) is not None:
        return str(mark.args[0])
    return _shared_in_a_folder(item)


def _shared_in_a_folder(item: pytest.Item) -> str | None:
    """The folder below tests/ that makes for a session what the test needs."""
    info = getattr(item, "_fixtureinfo", None)
    known = (
        () if info is None else (info.name2fixturedefs[n] for n in sorted(info.name2fixturedefs))
    )
    folders = (made[-1].baseid for made in known if made[-1].scope == "session")
    return next((folder for folder in folders if folder.startswith("tests/")), None)


def _kind(item: pytest.Item) -> int:
    return DEALT.index(world_of(item))


def _turn(item: pytest.Item) -> tuple[int, int]:
    marks = (n for n, mark in enumerate(NEEDS) if item.get_closest_marker(mark) is not None)
    return next(marks, len(NEEDS)), _kind(item)
