"""Publishers that had to leave a broker come back, whatever fails meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from localfabric.nodes.rabbitmq import LocalNode
from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.topics import PublisherRights
from newsfabric.topology import BrokerObjects, client_definitions
from newsfabric.topology.rights import publisher
from tests.deploy.unit_templates import ROLES

ANSIBLE: Final = ROLES.parent
PLAYBOOKS: Final = ANSIBLE / "playbooks"
# A broker with one queue, which records its other commands; and a systemd under which it runs.
RABBITMQCTL: Final = """#!/bin/sh
case $* in
    *list_queues*) cat "$BROKER/queues" ;;
    *list_users*) echo '[]' ;;
    *) echo "$*" >>"$BROKER/commands" ;;
esac
"""
SYSTEMCTL: Final = """#!/bin/sh
case $* in
    is-active*) test -e "$BROKER/runs" ;;
    show*) echo 'Wed 2020-01-01 08:00:00.000000 UTC' ;;
esac
"""
# The steps of the replacement don't matter here, only its failure.
REPLACED: Final = """
- name: Check the broker
  ansible.builtin.fail:
    msg: it has an alarm
  when: "'%s' == 'replacing'"
"""
LOCKED: Final = "set_user_limits cms"
LET_IN: Final = "import_definitions"


def copied(source: Path, target: Path, broker: Path) -> None:
    """Copy tasks, with the broker's folder and shorter retries."""
    text = source.read_text().replace("/etc/rabbitmq", str(broker))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text.replace("retries: 60", "retries: 1").replace("delay: 1", "delay: 0"))


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """Return the folder of a broker that runs and is empty."""
    for name, text in (("rabbitmqctl", RABBITMQCTL), ("systemctl", SYSTEMCTL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "runs").touch()
    (tmp_path / "definitions.json").write_text('{"users": []}')
    waits(tmp_path, 0)
    return tmp_path


def waits(broker: Path, messages: int) -> None:
    """Put so many messages into the broker's queue."""
    queue = {"name": "shovel.oregon", "messages_ready": messages, "consumers": 1}
    (broker / "queues").write_text(json.dumps([queue]))


def task_of(playbook: str, name: str) -> dict[str, Any]:
    """Return the task of that name in one of our playbooks."""
    plays = yaml.safe_load((PLAYBOOKS / playbook).read_text())
    [found] = [task for play in plays for task in play.get("tasks", []) if task["name"] == name]
    task: dict[str, Any] = found
    return task


def play(
    playbook: str, broker: Path, task: dict[str, Any], *, fails: str = "nothing"
) -> tuple[int, str]:
    """Play ``task`` on ``broker``; return the exit code and the output."""
    folder = broker / "ansible"
    role = folder / "roles" / "rabbitmq"
    for name in ("publishers-leave.yml", "publishers-return.yml", "empty.yml"):
        copied(PLAYBOOKS / "tasks" / name, folder / "playbooks" / "tasks" / name, broker)
    (folder / "playbooks" / "tasks" / "replace-broker.yml").write_text(REPLACED % fails)
    copied(ROLES / "rabbitmq/tasks/import.yml", role / "tasks/import.yml", broker)
    copied(ROLES / "rabbitmq/files/strangers.py", role / "files/strangers.py", broker)
    one = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "any_errors_fatal": True,
        "vars": {
            "newsfabric_publisher_passwords": {"cms": "secret"},
            "upgrade_broker_stopped": False,
            "evacuate_broker": {"stdout": "active"},
        },
        "tasks": [task],
    }
    file = folder / "playbooks" / "play.yml"
    file.write_text(yaml.safe_dump([one]))
    done = subprocess.run(
        [playbook, "-i", "localhost,", str(file)],
        cwd=ANSIBLE,
        env={
            **os.environ,
            "PATH": f"{broker}:{os.environ['PATH']}",
            "BROKER": str(broker),
            "ANSIBLE_ROLES_PATH": str(folder / "roles"),
        },
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def lock_commands(broker: Path) -> list[str]:
    """Return the broker's commands that locked publishers out and let them in, in order."""
    lines = (broker / "commands").read_text().splitlines()
    return [words for line in lines for words in (LOCKED, LET_IN) if words in line]


TAKES: Final = [
    ("upgrade-rabbitmq.yml", "Replace the broker"),
    ("evacuate-region.yml", "Send publishers away"),
]


@pytest.mark.parametrize(("file", "name"), TAKES)
def test_a_broker_that_does_not_become_empty_takes_publishers_again(
    playbook: str, broker: Path, file: str, name: str
) -> None:
    waits(broker, 1)
    code, output = play(playbook, broker, task_of(file, name))
    assert (code, lock_commands(broker)) == (2, [LOCKED, LET_IN]), output
    assert "Wait until the queues are empty: " in output


def test_a_broker_that_is_not_replaced_takes_publishers_again(playbook: str, broker: Path) -> None:
    code, output = play(playbook, broker, task_of(*TAKES[0]), fails="replacing")
    assert (code, lock_commands(broker)) == (2, [LOCKED, LET_IN]), output
    assert "Check the broker: it has an alarm" in output


def test_where_all_goes_well_nobody_comes_back_too_early(playbook: str, broker: Path) -> None:
    code, output = play(playbook, broker, task_of(*TAKES[0]))
    assert (code, lock_commands(broker)) == (0, [LOCKED]), output


def test_after_a_run_that_was_killed_the_next_one_lets_them_in(playbook: str, broker: Path) -> None:
    (broker / "definitions.imported").touch()
    play(playbook, broker, {"ansible.builtin.include_tasks": "tasks/publishers-leave.yml"})
    imports = {"ansible.builtin.include_role": {"name": "rabbitmq", "tasks_from": "import.yml"}}
    for _ in range(2):
        code, output = play(playbook, broker, imports)
        assert (code, lock_commands(broker)) == (0, [LOCKED, LET_IN]), output


@pytest.mark.broker
def test_an_import_of_definitions_sets_limits_back(
    rabbitmq_home: RabbitmqHome, tmp_path: Path
) -> None:
    rights = PublisherRights("cms", ("news.#",))
    document = client_definitions(BrokerObjects(), [publisher(rights)], {"cms": "secret"})
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(document))
    with LocalNode(tmp_path / "node", rabbitmq_home) as node:
        node.ctl("import_definitions", str(file))
        before = node.ctl("list_user_limits", "--user", "cms")
        node.ctl("set_user_limits", "cms", '{"max-connections": 0}')
        assert node.ctl("list_user_limits", "--user", "cms") != before
        node.ctl("import_definitions", str(file))
        assert node.ctl("list_user_limits", "--user", "cms") == before
