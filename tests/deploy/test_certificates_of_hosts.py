"""The expiry of hosts' certificates, and the users that log in to brokers by certificate."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from authorities import Authority

from tests.deploy.terraform_output import ADMISSION
from tests.deploy.unit_templates import ROLES, written

PROGRAM: Final = ROLES / "observability" / "files" / "certificate_ends.py"
METRIC: Final = "newsfabric_tls_certificate_expiry_timestamp_seconds"
CORE, BOX = "oregon-core-1", "oregon-retail-1"


def ends_of(folder: Path) -> dict[str, float]:
    """Return the days until the host's certificate and the last of its authorities expire."""
    file = folder / "newsfabric.prom"
    subprocess.run([sys.executable, PROGRAM, folder, file], check=True)
    found = dict(line.split() for line in file.read_text().splitlines())
    now = time.time()
    return {name: round((int(end) - now) / 86400, 1) for name, end in found.items()}


def test_a_host_says_when_its_certificate_ends_and_the_last_of_its_authorities(
    tmp_path: Path,
) -> None:
    ours = Authority(tmp_path, "ours")
    soon = ours.issue("host", days=3).certificate.read_bytes()
    (tmp_path / "cert.pem").write_bytes(soon)
    # An authority that expires sooner is trusted, too.
    (tmp_path / "ca.pem").write_bytes(soon + ours.file.read_bytes())
    expected = {f'{METRIC}{{use="host"}}': 2.0, f'{METRIC}{{use="authority"}}': 9.0}
    assert ends_of(tmp_path) == expected
    (tmp_path / "cert.pem").write_bytes(ours.issue("host", days=5).certificate.read_bytes())
    assert ends_of(tmp_path)[f'{METRIC}{{use="host"}}'] == 4.0


def test_a_file_that_is_no_certificate_leaves_what_was_known(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    for name in ("cert.pem", "ca.pem"):
        (tmp_path / name).write_bytes(ours.file.read_bytes())
    ends_of(tmp_path)
    before = (tmp_path / "newsfabric.prom").read_text()
    (tmp_path / "cert.pem").write_text("none")
    with pytest.raises(subprocess.CalledProcessError):
        ends_of(tmp_path)
    assert (tmp_path / "newsfabric.prom").read_text() == before


Rendered = Callable[[bool], dict[str, str]]


@pytest.fixture(scope="module")
def rendered(playbook: str, tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    """Return a function: a core node's and a box's files of RabbitMQ, and the units of services,
    with or without the option of client certificates. Each is rendered once."""

    @functools.cache
    def made(client_certificates: bool) -> dict[str, str]:
        given = {"newsfabric_amqp_client_certificates": True} if client_certificates else {}
        return _rendered(playbook, tmp_path_factory.mktemp("rendered"), given)

    return made


def _rendered(playbook: str, tmp_path: Path, given: dict[str, Any]) -> dict[str, str]:
    [services] = yaml.safe_load((ROLES / "wholesale" / "tasks" / "main.yml").read_text())
    unit = {
        "vars": services["vars"],
        "loop": "{{ wholesale_all }}",
        "loop_control": services["loop_control"],
        "when": f"inventory_hostname == '{CORE}'",
    }
    templates: list[tuple[str, str, str, dict[str, Any]]] = [
        ("rabbitmq", "rabbitmq.conf", "rabbitmq.conf", {}),
        ("rabbitmq", "enabled_plugins", "enabled_plugins", {}),
        ("service", "unit", "{{ service_unit }}", unit),
    ]
    play = [
        {
            "hosts": f"{CORE}:{BOX}",
            "connection": "local",
            "gather_facts": False,
            "vars_files": [
                str(ROLES / "service" / "defaults" / "main.yml"),
                str(ROLES / "wholesale" / "vars" / "main.yml"),
            ],
            "tasks": [
                {
                    "ansible.builtin.template": {
                        "src": str(ROLES / role / "templates" / f"{source}.j2"),
                        "dest": f"{tmp_path}/{{{{ inventory_hostname }}}}.{target}",
                    },
                    **more,
                }
                for role, source, target, more in templates
            ],
        }
    ]
    file = written(tmp_path, play)
    variables = json.dumps({"newsfabric_secret": "s" * 64, **ADMISSION, **given})
    inventory = str(ROLES.parent / "inventories" / "production" / "hosts.yml")
    done = subprocess.run(
        [playbook, "-i", inventory, str(file), "--extra-vars", variables],
        cwd=ROLES.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {file.name: file.read_text() for file in tmp_path.glob("oregon-*")}


PLUGINS: Final = (
    "rabbitmq_management,rabbitmq_prometheus,rabbitmq_shovel,rabbitmq_shovel_management"
)


@pytest.mark.slow
def test_without_the_option_nobody_logs_in_by_certificate(rendered: Rendered) -> None:
    found = rendered(False)
    assert found[f"{CORE}.enabled_plugins"] == f"[{PLUGINS}].\n"
    assert "EXTERNAL" not in found[f"{CORE}.rabbitmq.conf"]
    assert "AMQP_CERT_FILE" not in found[f"{CORE}.newsfabric-router@"]


def test_brokers_hosts_have_the_certificate_of_the_shovels_that_they_run(
    playbook: str, tmp_path: Path
) -> None:
    tasks = yaml.safe_load((ROLES / "base" / "tasks" / "tls.yml").read_text())
    name = "Install the shovels' certificate and key"
    [copied] = [task for task in tasks if task["name"] == name]
    folder = tmp_path / "certs" / "issued" / "shovel.oregon"
    folder.mkdir(parents=True)
    (tmp_path / "tls").mkdir()
    for of in ("cert", "key"):
        (folder / f"{of}.pem").write_text(of)
    # The group exists on hosts only.
    copy = {k: v for k, v in copied["ansible.builtin.copy"].items() if k not in ("owner", "group")}
    copy["dest"] = copy["dest"].replace("}}/", "}}/{{ inventory_hostname }}.", 1)
    task = {**copied, "ansible.builtin.copy": copy}
    hosts = f"{CORE}:oregon-client-1:{BOX}:oregon-store-1"
    play = {"hosts": hosts, "connection": "local", "gather_facts": False, "tasks": [task]}
    variables = {
        "newsfabric_secret": "s" * 64,
        "newsfabric_amqp_client_certificates": True,
        "newsfabric_certs": str(tmp_path / "certs"),
        "newsfabric_tls_folder": str(tmp_path / "tls"),
        **ADMISSION,
    }
    inventory = str(ROLES.parent / "inventories" / "production" / "hosts.yml")
    done = subprocess.run(
        [playbook, "-i", inventory, str(written(tmp_path, [play])), "-e", json.dumps(variables)],
        cwd=ROLES.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(file.name for file in (tmp_path / "tls").iterdir()) == sorted(
        f"{host}.shovel.oregon.{of}.pem"
        for host in (CORE, "oregon-client-1")
        for of in ("cert", "key")
    )


@pytest.mark.slow
def test_with_it_brokers_take_certificates_and_services_show_theirs(rendered: Rendered) -> None:
    found = rendered(True)
    external = f"[{PLUGINS},rabbitmq_auth_mechanism_ssl].\n"
    assert found[f"{CORE}.enabled_plugins"] == external
    # The broker of a box listens on loopback, without TLS.
    assert found[f"{BOX}.enabled_plugins"] == f"[{PLUGINS}].\n"
    assert "\nauth_mechanisms.2 = EXTERNAL\n" in found[f"{CORE}.rabbitmq.conf"]
    assert "EXTERNAL" not in found[f"{BOX}.rabbitmq.conf"]
    shown = "\nEnvironment=NEWSFABRIC_AMQP_CERT_FILE=/etc/newsfabric/tls/{}.oregon.cert.pem\n"
    for unit, user in (("router@", "router"), ("shovels", "keeper")):
        assert shown.format(user) in found[f"{CORE}.newsfabric-{unit}"]
    keeper = found[f"{CORE}.newsfabric-shovels"].splitlines()
    for of in ("cert", "key"):
        file = f"/etc/newsfabric/tls/shovel.oregon.{of}.pem"
        assert f"Environment=NEWSFABRIC_SHOVEL_{of.upper()}_FILE={file}" in keeper
    assert "SHOVEL_CERT_FILE" not in found[f"{CORE}.newsfabric-router@"]
    # The admit service makes users, by the management API and a password.
    assert "AMQP_CERT_FILE" not in found[f"{CORE}.newsfabric-admit"]


@pytest.mark.slow
def test_brokers_find_key_and_certificate_in_one_file(rendered: Rendered) -> None:
    lines = rendered(False)[f"{CORE}.rabbitmq.conf"].splitlines()
    files = {line.split(" = ")[1] for line in lines if "certfile =" in line or "keyfile =" in line}
    assert files == {f"/etc/newsfabric/tls/{name}.pem" for name in ("ca", "both")}
