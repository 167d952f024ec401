"""The store's data are copied to replicas that a run of the playbooks adds."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
ANSIBLE: Final = ROOT / "deploy" / "ansible"
ROLE: Final = ANSIBLE / "roles" / "cassandra"
LAST: Final = "dublin-store-3"
MARK: Final = "/etc/newsfabric/store-copies"
REBUILD: Final = "rebuild --keyspace newsfabric -- oregon"
REPAIR: Final = "repair --full newsfabric"
OREGON: Final = [f"oregon-store-{n}" for n in (1, 2, 3)]
DUBLIN: Final = [f"dublin-store-{n}" for n in (1, 2, 3)]
# The command of newsfabric, and nodetool of each host, which fails at the broken host.
NEWSFABRIC: Final = """#!/bin/sh
cd "$(dirname "$0")" || exit
case $2 in
    plan) cat plan.json ;;
    apply) ls marks >marked; echo "nothing to do" ;;
esac
"""
NODETOOL: Final = """#!/bin/sh
cd "$(dirname "$0")" || exit
echo "$@" >>copied
test "$1" != "$(cat broken 2>/dev/null)"
"""


class StoreNodes:
    """Production's store nodes, as the role's task on the last node sees them."""

    def __init__(self, playbook: str, folder: Path) -> None:
        self._playbook = playbook
        self._folder = folder
        (folder / "marks").mkdir()
        for name, text in (("newsfabric", NEWSFABRIC), ("nodetool", NODETOOL)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        # Each host has a file and a command, all on this machine.
        tasks = (ROLE / "tasks" / "tables.yml").read_text()
        tasks = tasks.replace(MARK, f"{folder}/marks/{{{{ item.item | default(item) }}}}")
        tasks = tasks.replace("cmd: nodetool", f"cmd: {folder}/nodetool {{{{ item.item }}}}")
        (folder / "tables.yml").write_text(tasks)
        play = [
            {
                "hosts": LAST,
                "gather_facts": False,
                "tasks": [
                    {"ansible.builtin.include_vars": {"file": str(ROLE / "vars" / "main.yml")}},
                    {"ansible.builtin.include_tasks": str(folder / "tables.yml")},
                ],
            }
        ]
        (folder / "play.yml").write_text(yaml.safe_dump(play))

    def played(self, *, has: dict[str, int] | None, raised: list[str]) -> int:
        """Run the tasks with this output of ``schema plan``; return the exit code."""
        plan = {"replication": has, "raised": raised, "kept": {}, "applied": [], "changes": []}
        (self._folder / "plan.json").write_text(json.dumps(plan))
        given: dict[str, Any] = {
            "playbook_dir": str(ANSIBLE / "playbooks"),
            "newsfabric_secret": "s" * 64,
            "ansible_connection": "local",
            "cassandra_command": str(self._folder / "newsfabric"),
        }
        inventory = str(ANSIBLE / "inventories" / "production" / "hosts.yml")
        words = ["-i", inventory, str(self._folder / "play.yml"), "-e", json.dumps(given)]
        done = subprocess.run([self._playbook, *words], cwd=ANSIBLE, capture_output=True, text=True)
        self.output = done.stdout + done.stderr
        return done.returncode

    def breaks(self, host: str) -> None:
        (self._folder / "broken").write_text(host)

    def copied(self) -> list[tuple[str, str]]:
        """Return the hosts and arguments of the nodetool calls since the last call."""
        file = self._folder / "copied"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [(host, words) for host, _, words in (line.partition(" ") for line in lines)]

    def marked_when_applied(self) -> list[str]:
        return (self._folder / "marked").read_text().split()

    def marks(self) -> list[str]:
        return sorted(path.name for path in (self._folder / "marks").iterdir())


@pytest.fixture
def fabric(playbook: str, tmp_path: Path) -> StoreNodes:
    return StoreNodes(playbook, tmp_path)


@pytest.mark.slow
def test_a_new_data_centre_is_rebuilt_after_more_replicas_of_the_other_are_repaired(
    fabric: StoreNodes,
) -> None:
    assert fabric.played(has={"oregon": 1}, raised=["dublin", "oregon"]) == 0, fabric.output
    assert fabric.marked_when_applied() == sorted(OREGON + DUBLIN)
    assert fabric.copied() == [(h, REPAIR) for h in OREGON] + [(h, REBUILD) for h in DUBLIN]
    assert fabric.marks() == []


@pytest.mark.slow
def test_a_run_that_was_interrupted_is_made_good_by_the_next(fabric: StoreNodes) -> None:
    fabric.breaks(DUBLIN[1])
    assert fabric.played(has={"oregon": 3}, raised=["dublin"]) != 0
    assert [host for host, _ in fabric.copied()][:2] == DUBLIN[:2]
    fabric.breaks("")
    # The replicas exist now, so the plan no longer reports that they are empty.
    assert fabric.played(has={"oregon": 3, "dublin": 3}, raised=[]) == 0, fabric.output
    assert (DUBLIN[1], REBUILD) in fabric.copied()
    assert fabric.marks() == []


@pytest.mark.parametrize("has", [None, {"oregon": 3, "dublin": 3}])
def test_nothing_is_copied_where_no_replica_is_new(
    fabric: StoreNodes, has: dict[str, int] | None
) -> None:
    assert fabric.played(has=has, raised=[]) == 0, fabric.output
    assert fabric.copied() == []
