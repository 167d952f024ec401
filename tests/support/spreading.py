"""How tests are spread over the workers of pytest-xdist: what stays together, what begins first.

The tests of a file stay together, so that what its fixtures start is started once; a mark
``xdist_group`` makes a group of its own, within a file or across files. Who shares a world, the
Cassandra node, or what the ``conftest.py`` of a folder makes once for a session, needs no mark. A
worker takes the next group when it has nothing left.

Workers find the groups, and the process that schedules them collects no tests: it reads them in a
file. pytest-xdist itself (3.8) writes them into the tests' ids, which pytest (9.2) doesn't let it
do any more; then it spreads all tests one by one, without a word (its issue 1386).

What takes minutes begins first, then what mostly waits (worlds, brokers, browsers), and the rest
fills the processor beside it. One process (``-n 0``) takes the same order. A few worlds, or groups
of Cassandra nodes, are up at a time: whoever would start one more takes what is next and needs
none.
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
# In this order worlds begin, by how long all their tests take. None is those that tests start
# themselves: each file's, or group's, is a world of its own, on ports of its own.
KINDS = ("world", "boxes", None, "far_world")
# Groups that have a world up, or Cassandra nodes of their own, are called so.
HEAVY = "heavy: "
# What a test needs, by its marks: what comes first here begins first.
NEEDS = ("world", "cargo", "cassandra", "broker", "browser")
# Marks of tests that take minutes each.
MINUTES = ("slow", "cargo")
# A world that starts takes two cores for half a minute, and 2 GB of memory; at rest half a core.
# With three of them and Cassandra nodes beside, two cores had a load of 24, and nodes weren't up in
# time.
HEAVY_AT_A_TIME = max(2, min(4, os.cpu_count() or 1))
_CLOSEST = pytest.StashKey[dict[str, pytest.Mark]]()


class ByGroupOrFile(LoadScopeScheduling):  # type: ignore[misc]
    """Groups, and files of those tests that are in none."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._file = _groups_of(config)

    @functools.cached_property
    def _known(self) -> dict[str, Any]:
        # Asked for only when all workers have collected.
        known: dict[str, Any] = json.loads(self._file.read_text("utf-8"))
        return known

    def _split_scope(self, nodeid: str) -> str:
        return str(self._known["groups"][nodeid])

    def _reschedule(self, node: Any) -> None:
        # Two left is soon enough: a worker begins the last when it knows what comes after it.
        # What is given out sooner waits behind tests that may take minutes.
        if self.workqueue and self._pending_of(self.assigned_work[node]) > 1:
            return
        super()._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        group = self._next_for(node)
        if group is None:
            # Only heavy groups are left, and others are at them.
            node.shutdown()
            return
        self.workqueue.move_to_end(group, last=False)
        super()._assign_work_unit(node)

    def _next_for(self, node: Any) -> str | None:
        """The group that ``node`` begins next; None if each is heavy, and enough of them are up."""
        holders = [each for each in self.nodes if self._is_at_a_heavy_one(each)]
        room = node in holders or len(holders) < HEAVY_AT_A_TIME
        can = [group for group in self.workqueue if room or not group.startswith(HEAVY)]
        # What waits behind a test of minutes is what comes last, since it is quick.
        return (can[-1] if self._takes_minutes(node) else can[0]) if can else None

    def _takes_minutes(self, node: Any) -> bool:
        units = self.assigned_work[node].values()
        left = (test for unit in units for test, done in unit.items() if not done)
        return any(test in self._known["minutes"] for test in left)

    def _is_at_a_heavy_one(self, node: Any) -> bool:
        return any(
            group.startswith(HEAVY) and not all(tests.values())
            for group, tests in self.assigned_work[node].items()
        )


def workers() -> int:
    """For ``-n auto``: more than cores, since most tests wait most of the time."""
    return max(4, min(8, 3 * (os.cpu_count() or 1)))


def spread(items: list[pytest.Item], config: pytest.Config) -> None:
    """Give tests their groups, and bring groups into the order in which they begin."""
    for item in items:
        if world_of(item) is not None:
            item.add_marker(pytest.mark.world)
        # Asked for several times, and each time pytest would look through all that it is in.
        item.stash[_CLOSEST] = {mark.name: mark for mark in reversed([*item.iter_markers()])}
    groups = {item.nodeid: _group_of(item) or _file_of(item.nodeid) for item in items}
    turns: dict[str, tuple[bool, int, int, int]] = {}
    for place, item in enumerate(items):
        turn = (*_turn(item), place)
        turns[groups[item.nodeid]] = min(turn, turns.get(groups[item.nodeid], turn))
    items.sort(key=lambda item: turns[groups[item.nodeid]])
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw0":
        # All workers find the same.
        minutes = [item.nodeid for item in items if item.stash[_CLOSEST].keys() & set(MINUTES)]
        _groups_of(config).write_text(json.dumps({"groups": groups, "minutes": minutes}), "utf-8")


def _groups_of(config: pytest.Config) -> Path:
    return folder_of_run(config._tmp_path_factory) / "groups.json"  # type: ignore[attr-defined]


def world_of(item: pytest.Item) -> str | None:
    """Which of the shared worlds a test needs: its fixture's name."""
    names = getattr(item, "fixturenames", ())
    # Others may be called so: ours stand (tests/support/standing_worlds.py).
    return next((w for w in WORLDS if "standing" in names and w in names), None)


def _group_of(item: pytest.Item) -> str | None:
    marks = item.stash[_CLOSEST]
    mark = marks.get("xdist_group")
    if "world" in marks:
        own = _file_of(item.nodeid) if mark is None else mark.args[0]
        return f"{HEAVY}{world_of(item) or own}"
    names = getattr(item, "fixturenames", ())
    if "cassandra" in marks:
        has_its_own = "cassandra_home" in names and "cassandra" not in names
        return f"{HEAVY}{_file_of(item.nodeid)}" if has_its_own else "cassandra"
    if mark is not None:
        return str(mark.args[0])
    return _shared_in_a_folder(item)


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _shared_in_a_folder(item: pytest.Item) -> str | None:
    """The folder below tests/ that makes for a session what the test needs."""
    info = getattr(item, "_fixtureinfo", None)
    known = (
        () if info is None else (info.name2fixturedefs[n] for n in sorted(info.name2fixturedefs))
    )
    folders = (made[-1].baseid for made in known if made[-1].scope == "session")
    return next((folder for folder in folders if folder.startswith("tests/")), None)


def _turn(item: pytest.Item) -> tuple[bool, int, int]:
    marks = item.stash[_CLOSEST]
    need = next((n for n, mark in enumerate(NEEDS) if mark in marks), len(NEEDS))
    return "slow" not in marks, need, KINDS.index(world_of(item))
