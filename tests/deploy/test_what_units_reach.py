"""The limits that units set for services: the machine's role in AWS, and a key on a group's box."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from operations.instance.leave import RENEW
from tests.deploy.unit_templates import DENIED, reaches_metadata, units, written

ROOT: Final = Path(__file__).resolve().parents[2]
ANSIBLE: Final = ROOT / "deploy" / "ansible"
ROLES: Final = ANSIBLE / "roles"
# These make a machine a box, and drain it: they act in the machine's name.
INSTANCES_OWN: Final = {"instance/settle.service.j2", "instance/leave.service.j2"}


def test_no_unit_but_the_instances_own_reaches_the_metadata_service() -> None:
    open_ = {name for name, text in units().items() if reaches_metadata(text)}
    assert open_ == INSTANCES_OWN


@pytest.fixture(scope="module")
def of_a_box(playbook: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the units that the image has for a group's box."""
    tmp_path = tmp_path_factory.mktemp("box")
    install: list[dict[str, Any]] = yaml.safe_load(
        (ROLES / "instance" / "tasks" / "install.yml").read_text()
    )
    templates = [
        task
        for task in install
        if task["name"].startswith(("Write a box's services", "Install the units that set up"))
    ]
    for task in templates:
        source = task["ansible.builtin.template"]
        source["src"] = source["src"].replace("{{ role_path }}", str(ROLES / "instance"))
        if not source["src"].startswith("/"):
            source["src"] = str(ROLES / "instance" / "templates" / source["src"])
        source["dest"] = f"{tmp_path}/{Path(source['dest']).name}"
    play = [
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars_files": [
                str(ANSIBLE / "group_vars" / "all.yml"),
                str(ROLES / "instance" / "vars" / "main.yml"),
            ],
            "tasks": templates,
        }
    ]
    file = written(tmp_path, play)
    done = subprocess.run(
        [playbook, "-i", "localhost,", str(file)],
        cwd=ANSIBLE,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {unit.name: unit.read_text() for unit in tmp_path.glob("*.service")}


def test_a_box_of_a_group_runs_no_service_that_reaches_it(of_a_box: dict[str, str]) -> None:
    assert {name: f"\n{DENIED}\n" in text for name, text in of_a_box.items()} == {
        "newsfabric-gateway.service": True,
        "newsfabric-retail-agent.service": True,
        "newsfabric-settle.service": False,
        "newsfabric-renew.service": False,
    }


def test_a_box_is_made_at_boot_and_its_secrets_are_renewed_when_leave_asks(
    of_a_box: dict[str, str],
) -> None:
    settle, renew = of_a_box["newsfabric-settle.service"], of_a_box[RENEW]
    assert "\nWantedBy=multi-user.target\n" in settle
    assert "\nRestart=on-failure\n" in settle
    # It can be started again, but doesn't start by itself.
    assert not {"WantedBy=multi-user.target", "RemainAfterExit=yes"} & set(renew.splitlines())
    assert "\nReadWritePaths=/etc/newsfabric\n" in renew


def test_a_box_of_a_group_runs_no_service_that_is_given_a_key(of_a_box: dict[str, str]) -> None:
    # All boxes of a group would have the same key.
    assert [name for name, text in of_a_box.items() if "key.pem" in text] == []
    broker = (ROLES / "rabbitmq" / "templates" / "rabbitmq.conf.j2").read_text()
    [only, _] = broker.split("keyfile = ")
    assert "{% if newsfabric_tls and newsfabric_part != 'retail' %}" in only
