"""The exposure of each unit: `systemd-analyze security` gives each 2.0 or less of 10."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.terraform_output import ADMISSION
from tests.deploy.unit_templates import ROLES, reaches_metadata, units, written

ANSIBLE: Final = ROLES.parent
CLIENT, CORE, STORE, BOX = "oregon-client-1", "oregon-core-1", "oregon-store-1", "oregon-retail-1"
MOST: Final = 2.0
# The users of Debian's units to which we add settings: our files don't repeat them.
DEBIANS: Final = {
    "rabbitmq-server": "rabbitmq",
    "prometheus": "prometheus",
    "prometheus-node-exporter": "prometheus",
}
# The target of each template but unit.j2: the host, and the unit or the addition to a unit.
GOES: Final = {
    "rabbitmq/unit.conf.j2": (CORE, "rabbitmq-server.service.d/newsfabric.conf"),
    "cassandra/cassandra.service.j2": (STORE, "cassandra.service"),
    "observability/prometheus.conf.j2": (CLIENT, "prometheus.service.d/newsfabric.conf"),
    "observability/node-exporter.conf.j2": (
        STORE,
        "prometheus-node-exporter.service.d/newsfabric.conf",
    ),
    "observability/certificates.service.j2": (STORE, "newsfabric-certificates.service"),
    # Two units: `once` has the loop.
    "instance/settle.service.j2": (BOX, "newsfabric-{{ instance_once.program }}.service"),
    "instance/leave.service.j2": (BOX, "newsfabric-leave.service"),
}
# The files that include the role `service`.
SERVICES: Final = {
    "wholesale/tasks/main.yml": CORE,
    "retail/tasks/main.yml": BOX,
    "observability/tasks/relay.yml": CORE,
}


def analyze() -> str:
    """Return the path of systemd-analyze; without it skip on a laptop, fail in CI."""
    found = shutil.which("systemd-analyze")
    if found is None:
        why = "no systemd-analyze (package systemd)"
        if "CI" in os.environ:
            pytest.fail(why)
        pytest.skip(why)
    return found


def rendered(source: str, target: str, host: str, **more: Any) -> dict[str, Any]:
    """Return a task that writes a template's unit."""
    role, name = source.split("/")
    return {
        "ansible.builtin.template": {
            "src": str(ROLES / role / "templates" / name),
            "dest": "{{ folder }}/" + target,
            "mode": "0644",
        },
        "when": f"inventory_hostname == '{host}'",
        **more,
    }


def services() -> list[dict[str, Any]]:
    """Return tasks that write the units of the role ``service``, with all its users' variables."""
    tasks = []
    for file, host in SERVICES.items():
        [task] = yaml.safe_load((ROLES / file).read_text())
        kept = {key: task[key] for key in ("vars", "loop", "loop_control") if key in task}
        tasks.append(rendered("service/unit.j2", "{{ service_unit }}.service", host, **kept))
    return tasks


def once() -> dict[str, Any]:
    """Return the loop over the units that run once, from the role ``instance``."""
    install = yaml.safe_load((ROLES / "instance/tasks/install.yml").read_text())
    [task] = [task for task in install if "instance_once" in str(task.get("loop_control"))]
    return {key: task[key] for key in ("loop", "loop_control")}


def play() -> list[dict[str, Any]]:
    variables = [
        {
            "ansible.builtin.include_vars": {"file": str(ROLES / role / "vars" / "main.yml")},
            "when": f"inventory_hostname == '{host}'",
        }
        for role, host in (
            ("wholesale", CORE),
            ("cassandra", STORE),
            ("retail", BOX),
            ("observability", STORE),
        )
    ]
    others = [
        rendered(source, target, host, **(once() if "instance_once" in target else {}))
        for source, (host, target) in GOES.items()
    ]
    return [
        {
            "hosts": ":".join((CLIENT, CORE, STORE, BOX)),
            "connection": "local",
            "gather_facts": False,
            "vars_files": [str(ROLES / "service" / "defaults" / "main.yml")],
            "vars": {"role_path": str(ROLES / "service")},
            "tasks": [*variables, *services(), *others],
        }
    ]


@pytest.fixture(scope="module")
def root(playbook: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root folder with the units of production's hosts."""
    root = tmp_path_factory.mktemp("root")
    folder = root / "etc" / "systemd" / "system"
    for name, user in DEBIANS.items():
        (folder / f"{name}.service.d").mkdir(parents=True)
        (folder / f"{name}.service").write_text(
            f"[Service]\nUser={user}\nExecStart=/usr/bin/{name}\n"
        )
    file = written(root, play())
    given = {"folder": str(folder), "newsfabric_secret": "s" * 64, **ADMISSION}
    inventory = str(ANSIBLE / "inventories" / "production" / "hosts.yml")
    done = subprocess.run(
        [playbook, "-i", inventory, str(file), "--extra-vars", json.dumps(given)],
        cwd=ANSIBLE,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return root


def exposure(root: Path, unit: str) -> float:
    """Return the exposure of a unit, from 0 to 10."""
    done = subprocess.run(
        [analyze(), "security", "--offline=true", f"--root={root}", "--no-pager", unit],
        capture_output=True,
        text=True,
    )
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    return float(found[1])


def test_each_template_of_a_unit_is_looked_at() -> None:
    assert set(units()) == {"service/unit.j2", *GOES}


def test_no_unit_is_exposed_by_more_than_two(root: Path) -> None:
    found = {file.name for file in (root / "etc" / "systemd" / "system").glob("*.service")}
    measured = {unit: exposure(root, unit.replace("@.", "@1.")) for unit in sorted(found)}
    assert {f"newsfabric-{name}.service" for name in ("router@", "admit", "gateway")} <= set(
        measured
    )
    assert {unit: level for unit, level in measured.items() if level > MOST} == {}


def test_who_talks_to_strangers_never_acts_in_the_machines_name(root: Path) -> None:
    ours = (root / "etc" / "systemd" / "system").glob("newsfabric-*.service")
    assert {unit.stem for unit in ours if reaches_metadata(unit.read_text())} == {
        *("newsfabric-scaler", "newsfabric-admit"),
        # These make a machine a box, and drain it.
        *("newsfabric-settle", "newsfabric-renew", "newsfabric-leave"),
    }


def test_the_limits_are_written_once() -> None:
    block = (ROLES / "service" / "files" / "hardening.conf").read_text()
    lines = {line for line in block.splitlines() if line and not line.startswith("#")}
    assert {name: lines & set(text.splitlines()) for name, text in units().items()} == {
        name: set() for name in units()
    }
