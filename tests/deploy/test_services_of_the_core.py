"""A core node's services: the order of restarts, the services that end with a region, the ports."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from newsfabric import kinds
from tests.deploy.prechecks import checks
from tests.deploy.terraform_output import ADMISSION
from tests.deploy.unit_templates import core_unit

ANSIBLE: Final = Path(__file__).resolve().parents[2] / "deploy" / "ansible"
WHOLESALE: Final = ANSIBLE / "roles" / "wholesale"
CORE: Final = "oregon-core-1"
# Numbers of instances, by unit; a test gives two routers.
INSTANCES: Final = {"newsfabric-router@": ["1", "2"]}
# In the order of their restarts.
ALL: Final = [
    *(
        unit + instance
        for unit in map(core_unit, kinds.CORE)
        for instance in INSTANCES.get(unit, ["1"] if unit.endswith("@") else [""])
    ),
    "newsfabric-admit",
]
# Units that carry messages.
CARRIERS: Final = ("newsfabric-shovels", "newsfabric-router@", "newsfabric-mailbox@")


def included(playbook: str) -> list[dict[str, Any]]:
    """Return a playbook's tasks that include the core's services, in their order."""
    plays = yaml.safe_load((ANSIBLE / "playbooks" / playbook).read_text())
    tasks = [task for play in plays for task in play.get("tasks", [play])]
    roles = [(task, task.get("ansible.builtin.include_role", {})) for task in tasks]
    return [task for task, role in roles if role.get("name") == "wholesale"]


def played(
    playbook: str, folder: Path, tasks: list[dict[str, Any]], given: dict[str, Any]
) -> subprocess.CompletedProcess[str]:
    """Run ``tasks`` as a core node of production, with the variables ``given``."""
    play = {
        "hosts": CORE,
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(WHOLESALE / "vars" / "main.yml")],
        "tasks": tasks,
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    variables = {"playbook_dir": str(ANSIBLE / "playbooks"), "newsfabric_secret": "s" * 64, **given}
    inventory = str(ANSIBLE / "inventories" / "production" / "hosts.yml")
    return subprocess.run(
        [playbook, "-i", inventory, str(folder / "play.yml"), "-e", json.dumps(variables)],
        cwd=ANSIBLE,
        capture_output=True,
        text=True,
    )


def named(playbook: str, folder: Path, tasks: list[dict[str, Any]]) -> list[list[str]]:
    """Return the units that each of ``tasks`` would pass to systemd."""
    asked = []
    for number, task in enumerate(tasks):
        source = task["ansible.builtin.include_role"]["tasks_from"]
        [document] = yaml.safe_load((WHOLESALE / "tasks" / source).read_text())
        unit = document.pop("ansible.builtin.systemd_service")["name"]
        fields = {"ansible.builtin.shell": f"echo '{unit}' >> {folder / str(number)}"}
        asked.append({**document, **fields, "vars": task.get("vars", {})})
    done = played(playbook, folder, asked, {"newsfabric_routers": 2, **ADMISSION})
    assert done.returncode == 0, done.stdout + done.stderr
    return [(folder / str(number)).read_text().split() for number in range(len(tasks))]


def test_all_are_restarted(playbook: str, tmp_path: Path) -> None:
    assert named(playbook, tmp_path, included("tasks/restart-services.yml")) == [ALL]


@pytest.mark.parametrize("name", ["site.yml", "rolling-restart.yml"])
def test_both_playbooks_that_restart_them_do_it_in_the_same_way(name: str) -> None:
    text = (ANSIBLE / "playbooks" / name).read_text()
    assert text.count("include_tasks: tasks/restart-services.yml") == 1


def test_all_end_with_their_region_and_what_carries_messages_last(
    playbook: str, tmp_path: Path
) -> None:
    first, second, last = named(playbook, tmp_path, included("evacuate-region.yml"))
    assert first == [unit for unit in ALL[::-1] if not unit.startswith(CARRIERS)]
    assert second == ALL[:0:-1]
    assert last == ALL[::-1]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({}, ""),
        ({"newsfabric_routers": 9}, ""),
        ({"newsfabric_routers": 10}, "newsfabric_routers (10) at most nine"),
        ({"newsfabric_mailboxes": 10}, "newsfabric_mailboxes (10) at most nine"),
        ({"router": 9115}, "newsfabric_ports.router (9115) must be a multiple of ten"),
        ({"mailbox": 9121}, "newsfabric_ports.mailbox (9121) must be a multiple of ten"),
    ],
)
def test_ports_that_probes_would_look_for_elsewhere_are_refused(
    playbook: str, tmp_path: Path, wrong: dict[str, int], error: str
) -> None:
    ports = yaml.safe_load((ANSIBLE / "group_vars" / "all.yml").read_text())["newsfabric_ports"]
    given = {"newsfabric_ports": {**ports, **wrong}, **wrong}
    done = played(
        playbook, tmp_path, checks("Services of which a host has several have ports"), given
    )
    assert done.returncode == (2 if error else 0), done.stdout
    assert error in " ".join(done.stdout.split())


def test_a_host_that_fails_ends_the_deployment() -> None:
    plays = yaml.safe_load((ANSIBLE / "playbooks" / "site.yml").read_text())
    going_on = [
        play["name"] for play in plays if "hosts" in play and not play.get("any_errors_fatal")
    ]
    assert going_on == []
