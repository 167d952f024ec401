"""Which services can ask for what a machine's role in AWS may do, in the units that are written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
ANSIBLE: Final = ROOT / "deploy" / "ansible"
ROLES: Final = ANSIBLE / "roles"
DENIED: Final = "IPAddressDeny=169.254.169.254/32 fd00:ec2::254/128"
# They make a machine a box, and drain it: their work is in the machine's name.
INSTANCES_OWN: Final = {"instance/settle.service.j2", "instance/leave.service.j2"}


@pytest.fixture(scope="module")
def playbook() -> str:
    """The program."""
    own = ROOT / ".tools" / "ansible" / "bin" / "ansible-playbook"
    program = str(own) if own.exists() else shutil.which("ansible-playbook")
    if program is None:
        if "CI" in os.environ:
            pytest.fail("no ansible-playbook in .tools/ansible or on the PATH")
        pytest.skip("no ansible-playbook in .tools/ansible or on the PATH")
    return program


def units() -> dict[str, str]:
    """Each template of a unit, or of what is added to one."""
    return {
        f"{file.parts[-3]}/{file.name}": text
        for file in sorted(ROLES.glob("*/templates/*"))
        if re.search(r"^\[Service\]$", text := file.read_text(), re.MULTILINE)
    }


def test_no_unit_but_the_instances_own_reaches_the_metadata_service() -> None:
    denied = re.compile(rf"^(?:{re.escape(DENIED)}|IPAddressDeny=any)$", re.MULTILINE)
    open_ = {name for name, text in units().items() if not denied.search(text)}
    assert open_ == INSTANCES_OWN


def test_a_box_of_a_group_runs_no_service_that_reaches_it(playbook: str, tmp_path: Path) -> None:
    install: list[dict[str, Any]] = yaml.safe_load(
        (ROLES / "instance" / "tasks" / "install.yml").read_text()
    )
    [services] = [task for task in install if task["name"] == "A box's services"]
    source = services["ansible.builtin.template"]
    source["src"] = source["src"].replace("{{ role_path }}", str(ROLES / "instance"))
    play = [
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars_files": [
                str(ANSIBLE / "group_vars" / "all.yml"),
                str(ROLES / "instance" / "vars" / "main.yml"),
            ],
            "tasks": [services],
        }
    ]
    file = tmp_path / "play.yml"
    file.write_text(yaml.safe_dump(play))
    done = subprocess.run(
        [playbook, "-i", "localhost,", str(file), "-e", f"instance_folder={tmp_path}"],
        cwd=ANSIBLE,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    denied = {unit.name: DENIED in unit.read_text() for unit in tmp_path.glob("*.service")}
    assert denied == {
        "newsfabric-gateway.service": True,
        "newsfabric-retail-agent.service": True,
    }
