"""A broker is emptied before it stops, and serves again before the next one stops."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from newsfabric.topology.parts import MAILBOX_QUEUE, router_queues
from tests.deploy.unit_templates import ROLES

ANSIBLE: Final = ROLES.parent
TASKS: Final = ANSIBLE / "playbooks" / "tasks"
# A broker whose queues are in a file. As rabbitmqctl it prints the columns that were asked for.
RABBITMQCTL: Final = """#!/usr/bin/env python3
import json, os, sys
columns = sys.argv[sys.argv.index("list_queues") + 1:]
with open(os.environ["QUEUES"]) as file:
    print(json.dumps([{column: queue[column] for column in columns} for queue in json.load(file)]))
"""


def queue(name: str, *, ready: int = 0, taken: int = 0, consumers: int = 1) -> dict[str, Any]:
    """Return a queue with so many messages ready, and so many delivered but not acknowledged."""
    return {
        "name": name,
        "messages": ready + taken,
        "messages_ready": ready,
        "messages_unacknowledged": taken,
        "consumers": consumers,
    }


def play(
    playbook: str, folder: Path, tasks: list[dict[str, Any]], queues: list[dict[str, Any]]
) -> subprocess.CompletedProcess[str]:
    """Play ``tasks`` on a broker with ``queues``."""
    (folder / "queues").write_text(json.dumps(queues))
    program = folder / "rabbitmqctl"
    program.write_text(RABBITMQCTL)
    program.chmod(0o755)
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    return subprocess.run(
        [playbook, "-i", "localhost,", str(folder / "play.yml")],
        cwd=ANSIBLE,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "QUEUES": f"{folder}/queues"},
        capture_output=True,
        text=True,
    )


def is_empty(playbook: str, folder: Path, *queues: dict[str, Any]) -> bool:
    """Return whether a broker with ``queues`` counts as empty."""
    [task] = yaml.safe_load((TASKS / "empty.yml").read_text())
    return (
        play(playbook, folder, [{**task, "retries": 1, "delay": 0}], list(queues)).returncode == 0
    )


@pytest.mark.parametrize("name", ["shovel.oregon.feed", *router_queues(), MAILBOX_QUEUE])
def test_what_services_take_from_is_waited_for(playbook: str, tmp_path: Path, name: str) -> None:
    assert not is_empty(playbook, tmp_path, queue("keeper.1"), queue(name, ready=1))
    assert is_empty(playbook, tmp_path, queue(name))


def test_what_somebody_works_on_is_not(playbook: str, tmp_path: Path) -> None:
    assert is_empty(playbook, tmp_path, queue("router.1", taken=100), queue("mailbox", taken=1))


def test_what_others_take_from_is_not(playbook: str, tmp_path: Path) -> None:
    others = ["box.oregon-retail-1.1", "mailbox.old", "mailboxes", "frontdesk.oregon"]
    assert is_empty(playbook, tmp_path, *(queue(name, ready=1) for name in others))
    assert is_empty(playbook, tmp_path, queue("shovel.gone", ready=1, consumers=0))


def taken_from(
    playbook: str, folder: Path, *queues: dict[str, Any]
) -> subprocess.CompletedProcess[str]:
    """Run the playbooks' wait for services that consume the queues of a core broker."""
    text = (TASKS / "taken-from.yml").read_text()
    text = text.replace("retries: 30", "retries: 1").replace("delay: 2", "delay: 0")
    [task] = yaml.safe_load(text)
    task["vars"]["newsfabric_place"] = "oregon"
    return play(playbook, folder, [task], list(queues))


def test_a_core_broker_serves_once_services_take_from_each_of_its_queues(
    playbook: str, tmp_path: Path
) -> None:
    served = [queue(name) for name in (*router_queues(), MAILBOX_QUEUE)]
    done = taken_from(playbook, tmp_path, *served, queue("box.oregon-retail-1.1", consumers=0))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", [*router_queues(), MAILBOX_QUEUE])
def test_a_queue_from_which_no_service_takes_is_named(
    playbook: str, tmp_path: Path, name: str
) -> None:
    others = [queue(other) for other in (*router_queues(), MAILBOX_QUEUE) if other != name]
    for missing in ([queue(name, consumers=0)], []):
        done = taken_from(playbook, tmp_path, *others, *missing)
        assert done.returncode == 2
        assert f"nobody takes from {name} on localhost: see on the core nodes" in done.stdout


@pytest.mark.parametrize(
    ("limits", "may"),
    [
        ([], True),
        ([{"max-connections": 50, "max-channels": 10}], True),
        ([{"max-connections": 50}, {"max-channels": 10, "max-connections": 0}], False),
        ([{"max-connections": 0, "max-channels": 10}], False),
    ],
)
def test_no_broker_goes_while_publishers_are_locked_out_of_the_one_beside_it(
    playbook: str, tmp_path: Path, limits: list[dict[str, int]], may: bool
) -> None:
    # As rabbitmqctl of 3.10 and of 4.3 prints them.
    rows = [{"user": "cms", "limits": json.dumps(each, separators=(",", ":"))} for each in limits]
    tasks = [
        {key: value for key, value in task.items() if key != "delegate_to"}
        for task in yaml.safe_load((ROLES / "rabbitmq/tasks/whole.yml").read_text())
        if task["name"] != "Wait for each broker beside it"
    ]
    tasks[0]["ansible.builtin.command"] = {"argv": ["echo", json.dumps(rows)]}
    known = {"newsfabric_cluster": ["a", "localhost"], "newsfabric_asked": ["a", "localhost"]}
    done = play(playbook, tmp_path, [{"block": tasks, "vars": known}], [])
    assert done.returncode == (0 if may else 2), done.stdout
    assert ("no publisher may connect to a: a playbook was interrupted there" in done.stdout) != may


@pytest.mark.parametrize(
    ("file", "before"),
    [
        ("tasks/replace-broker.yml", "Delete the former data"),
        ("replace-core-node.yml", "Mark the replacement as done"),
        # After this task the next broker is restarted.
        ("rolling-restart.yml", "Wait until the box's gateway is connected again"),
    ],
)
def test_a_core_node_isnt_done_before(file: str, before: str) -> None:
    text = (ANSIBLE / "playbooks" / file).read_text()
    assert text.index("taken-from.yml") < text.index(before)
