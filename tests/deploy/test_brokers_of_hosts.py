"""What the playbooks do to brokers that run, and to those that don't."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from newsfabric.instance.description import INSTANCE_ID
from tests.deploy.unit_templates import ROLES

IMPORT: Final = ROLES / "rabbitmq" / "tasks" / "import.yml"
STRANGERS: Final = ROLES / "rabbitmq" / "files" / "strangers.py"
SECRET: Final = "s" * 64
# A broker whose users are the lines of a file, and a systemd that says whether it runs.
RABBITMQCTL: Final = """#!/bin/sh
case $* in
    '--quiet --formatter json list_users')
        sed 's/.*/{"user": "&", "tags": []}/' users | paste -sd, | sed 's/.*/[&]/' ;;
    '--quiet delete_user '*) echo said; sed -i "/^$3\\$/d" users ;;
    *) exit 1 ;;
esac
"""
SYSTEMCTL: Final = """#!/bin/sh
case $* in
    'is-active --quiet rabbitmq-server') test -e runs ;;
    *) echo 'Tue 2026-11-24 08:00:00.000000 UTC' ;;
esac
"""


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """A broker that runs, and knows who it should and others."""
    for name, text in (("rabbitmqctl", RABBITMQCTL), ("systemctl", SYSTEMCTL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "runs").touch()
    users = ["cms", "left", "box.oregon-retail-9", "operator", "box.i-0123456789abcdef0"]
    (tmp_path / "users").write_text("".join(f"{user}\n" for user in users))
    told = {"users": [{"name": "operator"}, {"name": "cms"}, {"name": "box.oregon-retail-1"}]}
    (tmp_path / "definitions.json").write_text(json.dumps(told))
    return tmp_path


def ran(broker: Path, *command: str) -> str:
    done = subprocess.run(
        command,
        cwd=broker,
        env={**os.environ, "PATH": f"{broker}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_who_is_in_no_definitions_loses_the_login_and_boxes_of_groups_keep_it(
    broker: Path,
) -> None:
    command = (sys.executable, str(STRANGERS), "definitions.json")
    assert ran(broker, *command) == "box.oregon-retail-9\nleft\n"
    assert (broker / "users").read_text() == "cms\noperator\nbox.i-0123456789abcdef0\n"
    assert ran(broker, *command) == ""
    assert INSTANCE_ID.pattern in STRANGERS.read_text()


def test_a_broker_that_does_not_run_is_told_nothing(broker: Path) -> None:
    [asks] = [
        task["ansible.builtin.shell"]["cmd"]
        for task in yaml.safe_load(IMPORT.read_text())
        if task["name"] == "Has it got its definitions?"
    ]
    asks = asks.replace("/etc/rabbitmq/", f"{broker}/")
    before = (broker / "users").read_text()
    assert ran(broker, "sh", "-c", asks) == f"{broker}/definitions.json\n"
    (broker / "runs").unlink()
    assert ran(broker, "sh", "-c", asks) == ""
    assert ran(broker, sys.executable, str(STRANGERS), "definitions.json") == ""
    assert (broker / "users").read_text() == before


@pytest.mark.parametrize("name", ["deploy", "rotate-secrets"])
def test_hosts_out_of_service_are_refused_before_anything_is_changed(name: str) -> None:
    plays = yaml.safe_load((ROLES.parent / "playbooks" / f"{name}.yml").read_text())
    assert plays[0]["ansible.builtin.import_playbook"] == "precheck.yml"
    [task] = plays[1]["tasks"]
    assert task["ansible.builtin.include_tasks"] == "tasks/all_in_service.yml"
    assert (plays[1]["hosts"], plays[1]["any_errors_fatal"]) == ("all:!image", True)


def followed(playbook: str, folder: Path, order: list[int]) -> dict[str, Any]:
    """What follows from the inventory that lists the nodes of a region in this order."""
    hosts: dict[str, Any] = {
        group: {"hosts": {f"oregon-{group}-{n}": {"ansible_host": f"10.1.1.{n}"} for n in order}}
        for group in ("core", "store")
    }
    hosts["oregon"] = {"children": {group: {} for group in hosts}}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": hosts}}, sort_keys=False))
    (folder / "group_vars").symlink_to(ROLES.parent / "group_vars")
    play = {
        "hosts": "oregon-core-2",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [
            str(ROLES / role / "vars" / "main.yml") for role in ("rabbitmq", "cassandra")
        ],
        "vars": {
            "told": {
                "cluster": "{{ newsfabric_cluster }}",
                "cookie": "{{ rabbitmq_cookie }}",
                "seeds": "{{ cassandra_seeds }}",
            },
        },
        "tasks": [
            {
                "ansible.builtin.copy": {
                    "content": "{{ told | to_json }}",
                    "dest": str(folder / "told.json"),
                }
            }
        ],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    given = json.dumps({"newsfabric_regions": ["oregon"], "newsfabric_secret": SECRET})
    done = subprocess.run(
        [playbook, "-i", str(folder / "hosts.yml"), str(folder / "play.yml"), "-e", given],
        cwd=ROLES.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads((folder / "told.json").read_text())
    return told


def test_cookies_and_seeds_do_not_hang_on_the_inventorys_order(
    playbook: str, tmp_path: Path
) -> None:
    told = followed(playbook, tmp_path, [3, 1, 2])
    assert told["cluster"] == ["oregon-core-1", "oregon-core-2", "oregon-core-3"]
    first = f"{SECRET}:cookie:oregon-core-1"
    assert told["cookie"] == hashlib.sha256(first.encode()).hexdigest()
    assert told["seeds"] == "10.1.1.1:7000,10.1.1.2:7000"
