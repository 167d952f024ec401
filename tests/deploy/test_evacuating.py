"""Regions with boxes that no playbook drains aren't evacuated."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.terraform_output import ADMISSION

ANSIBLE: Final = Path(__file__).resolve().parents[2] / "deploy" / "ansible"
CORE: Final = "oregon-core-1"
CHECK: Final = "Check that no autoscaling group has boxes there"
# Modules of the tasks before the check and beside it; none of them changes a host.
LOOKS: Final = {f"ansible.builtin.{name}" for name in ("assert", "include_tasks", "uri")}


def first_tasks() -> list[dict[str, Any]]:
    """Return the tasks of the playbook's first play after the prechecks."""
    [_, play, *_] = yaml.safe_load((ANSIBLE / "playbooks" / "evacuate-region.yml").read_text())
    tasks: list[dict[str, Any]] = play["tasks"]
    return tasks


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"region": "oregon", **ADMISSION}, True),
        ({"region": "oregon", **ADMISSION, "evacuate_anyway": "true"}, False),
        ({"region": "oregon"}, False),
    ],
    ids=["group", "group-that-is-empty", "boxes-of-the-inventory"],
)
def test_a_region_whose_boxes_are_a_groups_is_refused_unless_they_have_gone(
    playbook: str, tmp_path: Path, given: dict[str, Any], refused: bool
) -> None:
    checks = [task for task in first_tasks() if task["name"] == CHECK]
    play = [{"hosts": CORE, "connection": "local", "gather_facts": False, "tasks": checks}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    variables = {"playbook_dir": str(ANSIBLE / "playbooks"), **given}
    inventory = str(ANSIBLE / "inventories" / "production" / "hosts.yml")
    done = subprocess.run(
        [playbook, "-i", inventory, str(tmp_path / "play.yml"), "-e", json.dumps(variables)],
        cwd=ANSIBLE,
        capture_output=True,
        text=True,
    )
    reason = "boxes of oregon are an autoscaling group's, and this drains none"
    has_reason = reason in " ".join(done.stdout.split())
    assert len(checks) == 1
    assert (done.returncode, has_reason) == ((2, True) if refused else (0, False)), done.stdout


def test_it_is_refused_before_anything_is_changed() -> None:
    assert [task["name"] for task in first_tasks() if not LOOKS & task.keys()] == []
