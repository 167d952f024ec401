"""A broker is emptied before it stops, and serves again before the next one stops."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
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
    playbook: str,
    folder: Path,
    tasks: list[dict[str, Any]],
    brokers: Mapping[str, list[dict[str, Any]]],
    **variables: Any,
) -> tuple[set[str], str]:
    """Play ``tasks`` on brokers with these queues; return those on which they fail, and the output.

    One run for all: Ansible takes longer to start than for a task on another host.
    """
    for name, queues in brokers.items():
        (folder / name).write_text(json.dumps(queues))
    program = folder / "rabbitmqctl"
    program.write_text(RABBITMQCTL)
    program.chmod(0o755)
    play = {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "environment": {"QUEUES": f"{folder}/{{{{ inventory_hostname }}}}"},
        "vars": variables,
        "tasks": tasks,
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    done = subprocess.run(
        [playbook, "-i", ",".join([*brokers, ""]), str(folder / "play.yml")],
        cwd=ANSIBLE,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    recap = dict(re.findall(r"^(\S+) +: ok=.* failed=(\d+) ", done.stdout, re.MULTILINE))
    assert recap.keys() == brokers.keys(), done.stdout + done.stderr
    return {name for name, failed in recap.items() if failed != "0"}, done.stdout


CONSUMED: Final = (*router_queues(), MAILBOX_QUEUE)
WAITED_FOR: Final = {
    f"{name}-has-a-message": [queue("keeper.1"), queue(name, ready=1)]
    for name in ("shovel.oregon.feed", *CONSUMED)
}
OTHERS: Final = ("box.oregon-retail-1.1", "mailbox.old", "mailboxes", "frontdesk.oregon")
EMPTY: Final = {
    **{f"{name}-is-empty": [queue(name)] for name in ("shovel.oregon.feed", *CONSUMED)},
    "services-work": [queue("router.1", taken=100), queue("mailbox", taken=1)],
    "others-take": [queue(name, ready=1) for name in OTHERS],
    "nobody-takes": [queue("shovel.gone", ready=1, consumers=0)],
}


def test_queues_that_services_take_from_are_waited_for_and_no_others(
    playbook: str, tmp_path: Path
) -> None:
    [task] = yaml.safe_load((TASKS / "empty.yml").read_text())
    brief = [{**task, "retries": 1, "delay": 0}]
    failed, output = play(playbook, tmp_path, brief, WAITED_FOR | EMPTY)
    assert failed == WAITED_FOR.keys(), output


def test_a_core_broker_serves_once_services_take_from_each_of_its_queues(
    playbook: str, tmp_path: Path
) -> None:
    """A queue that nobody consumes, or that is missing, is named."""
    text = (TASKS / "taken-from.yml").read_text()
    text = text.replace("retries: 30", "retries: 1").replace("delay: 2", "delay: 0")
    unserved: dict[str, list[dict[str, Any]]] = {}
    for name in CONSUMED:
        others = [queue(other) for other in CONSUMED if other != name]
        unserved[f"{name}-has-no-consumer"] = [*others, queue(name, consumers=0)]
        unserved[f"{name}-is-missing"] = others
    boxes = queue("box.oregon-retail-1.1", consumers=0)
    served = {"served": [*map(queue, CONSUMED), boxes]}
    failed, output = play(
        playbook, tmp_path, yaml.safe_load(text), unserved | served, newsfabric_place="oregon"
    )
    assert failed == unserved.keys(), output
    for broker in unserved:
        name = broker.partition("-")[0]
        assert f"nobody takes from {name} on {broker}: see on the core nodes" in output


# As rabbitmqctl of 3.10 and of 4.3 prints them.
MAY_GO: Final[dict[str, list[dict[str, int]]]] = {
    "no-limits": [],
    "usual-limits": [{"max-connections": 50, "max-channels": 10}],
}
MAY_NOT_GO: Final = {
    "locked-at-last": [{"max-connections": 50}, {"max-channels": 10, "max-connections": 0}],
    "locked": [{"max-connections": 0, "max-channels": 10}],
}


def test_no_broker_goes_while_publishers_are_locked_out_of_the_one_beside_it(
    playbook: str, tmp_path: Path
) -> None:
    limits = MAY_GO | MAY_NOT_GO
    printed = {
        broker: json.dumps(
            [{"user": "cms", "limits": json.dumps(each, separators=(",", ":"))} for each in users]
        )
        for broker, users in limits.items()
    }
    tasks = [
        {key: value for key, value in task.items() if key != "delegate_to"}
        for task in yaml.safe_load((ROLES / "rabbitmq/tasks/whole.yml").read_text())
        if task["name"] != "Wait for each broker beside it"
    ]
    tasks[0]["ansible.builtin.command"] = {"argv": ["echo", "{{ printed[inventory_hostname] }}"]}
    beside = ["a", "{{ inventory_hostname }}"]
    failed, output = play(
        playbook,
        tmp_path,
        tasks,
        {broker: [] for broker in limits},
        printed=printed,
        newsfabric_cluster=beside,
        newsfabric_asked=beside,
    )
    assert failed == MAY_NOT_GO.keys(), output
    assert "no publisher may connect to a: a playbook was interrupted there" in output


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
