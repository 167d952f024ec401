"""The distribution of tests to pytest-xdist's workers: groups, and the order in which they begin.

The tests of a file stay together, so that their fixtures start only once; a mark
``xdist_group`` makes a group of its own, within a file or across files. No mark is needed by tests
that share a world, the Cassandra node, or a session's fixture of a folder's ``conftest.py``. A
worker takes the next group when it has no tests left.

Workers compute the groups. The scheduling process collects no tests, so it reads the groups in a
file. pytest-xdist itself (3.8) writes them into the tests' ids, which pytest (9.2) no longer
allows; then it silently spreads all tests one by one (its issue 1386).

Tests that take minutes begin first, then those that mostly wait (worlds, brokers, browsers); the
rest uses the processor meanwhile. One process (``-n 0``) takes the same order. Only a few worlds,
or groups of Cassandra nodes, are up at a time: a worker that would start one more takes the next
group that needs none.
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

# Fixtures that are worlds; a test that uses several belongs to the first of these.
WORLDS = ("far_world", "boxes", "world")
# The order in which worlds begin, by the duration of all their tests. None stands for worlds that
# tests start themselves: each file, or group, has its own, on its own ports.
KINDS = ("world", "boxes", None, "far_world")
# The prefix of groups that have a world up, or Cassandra nodes of their own.
HEAVY = "heavy: "
# Needs of tests, as marks, in the order in which they begin.
NEEDS = ("world", "cargo", "cassandra", "broker", "browser")
# Marks of tests that take minutes each.
MINUTES = ("slow", "long", "cargo")
# A starting world takes two cores for half a minute, and 2 GB of memory; at rest half a core. With
# three worlds and Cassandra nodes, two cores had a load of 24, and nodes started too late.
HEAVY_AT_A_TIME = max(2, min(4, os.cpu_count() or 1))
_CLOSEST = pytest.StashKey[dict[str, pytest.Mark]]()


class ByGroupOrFile(LoadScopeScheduling):  # type: ignore[misc]
    """A scheduler of groups, and of files with those tests that are in no group."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._file = _groups_of(config)

    @functools.cached_property
    def _known(self) -> dict[str, Any]:
        # Used only when all workers have collected.
        known: dict[str, Any] = json.loads(self._file.read_text("utf-8"))
        return known

    def _split_scope(self, nodeid: str) -> str:
        return str(self._known["groups"][nodeid])

    def _reschedule(self, node: Any) -> None:
        # Two tests left is soon enough: a worker begins its last test when it knows the one after
        # it. A group given out sooner waits behind tests that may take minutes.
        if self.workqueue and self._pending_of(self.assigned_work[node]) > 1:
            return
        super()._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        group = self._next_for(node)
        if group is None:
            # Only heavy groups are left, and enough other workers run heavy ones.
            node.shutdown()
            return
        self.workqueue.move_to_end(group, last=False)
        super()._assign_work_unit(node)

    def _next_for(self, node: Any) -> str | None:
        """Return the next group for ``node``; None if all are heavy, and enough of them are up."""
        holders = [each for each in self.nodes if self._is_at_a_heavy_one(each)]
        room = node in holders or len(holders) < HEAVY_AT_A_TIME
        can = [group for group in self.workqueue if room or not group.startswith(HEAVY)]
        # A group behind a test of minutes should be a quick one, and the last ones are.
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


def workers(*, waits: bool) -> int:
    """Return the number for ``-n auto``: above that of cores if most tests wait (``waits``)."""
    cores = os.cpu_count() or 1
    return max(4, min(8, 3 * cores)) if waits else cores


def spread(items: list[pytest.Item], config: pytest.Config) -> None:
    """Assign tests to groups, and sort groups into the order in which they begin."""
    for item in items:
        if world_of(item) is not None:
            item.add_marker(pytest.mark.world)
        # Needed several times, and each time pytest would search all of the test's parents.
        item.stash[_CLOSEST] = {mark.name: mark for mark in reversed([*item.iter_markers()])}
    groups = {item.nodeid: _group_of(item) or _file_of(item.nodeid) for item in items}
    turns: dict[str, tuple[bool, int, int, int]] = {}
    for place, item in enumerate(items):
        turn = (*_turn(item), place)
        turns[groups[item.nodeid]] = min(turn, turns.get(groups[item.nodeid], turn))
    items.sort(key=lambda item: turns[groups[item.nodeid]])
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw0":
        # All workers compute the same groups.
        minutes = [item.nodeid for item in items if item.stash[_CLOSEST].keys() & set(MINUTES)]
        _groups_of(config).write_text(json.dumps({"groups": groups, "minutes": minutes}), "utf-8")


def _groups_of(config: pytest.Config) -> Path:
    return folder_of_run(config._tmp_path_factory) / "groups.json"  # type: ignore[attr-defined]


def world_of(item: pytest.Item) -> str | None:
    """Return the shared world that a test needs: its fixture's name."""
    names = getattr(item, "fixturenames", ())
    # Other fixtures may have these names: ours use `standing` (tests/support/standing_worlds.py).
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
    """Return the folder below tests/ whose ``conftest.py`` has a session's fixture of the test."""
    info = getattr(item, "_fixtureinfo", None)
    known = (
        () if info is None else (info.name2fixturedefs[n] for n in sorted(info.name2fixturedefs))
    )
    folders = (made[-1].baseid for made in known if made[-1].scope == "session")
    return next((folder for folder in folders if folder.startswith("tests/")), None)


def _turn(item: pytest.Item) -> tuple[bool, int, int]:
    marks = item.stash[_CLOSEST]
    need = next((n for n, mark in enumerate(NEEDS) if mark in marks), len(NEEDS))
    return not marks.keys() & {"slow", "long"}, need, KINDS.index(world_of(item))
