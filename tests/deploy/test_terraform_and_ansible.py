"""What deploy/terraform makes and deploy/ansible expects: the same ports, names, networks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
ANSIBLE: Final = ROOT / "deploy" / "ansible"
TERRAFORM: Final = ROOT / "deploy" / "terraform"
MODULES: Final = TERRAFORM / "modules"
DEFAULTS: Final[dict[str, Any]] = yaml.safe_load((ANSIBLE / "group_vars" / "all.yml").read_text())


def default(module: str, variable: str) -> str:
    """The text of a variable of a module."""
    found = re.search(
        rf'^variable "{variable}" \{{\n(.*?)^\}}$',
        (MODULES / module / "variables.tf").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert found is not None
    return found[1]


def test_the_firewall_opens_the_ports_that_hosts_listen_on() -> None:
    ports = re.findall(r"^    (\w+) += optional\(number, (\d+)\)", default("firewall", "ports"), re.M)
    assert {name: int(port) for name, port in ports} == {
        "amqps": DEFAULTS["newsfabric_amqps_port"],
        "management": DEFAULTS["newsfabric_management_tls_port"],
        "cql": DEFAULTS["newsfabric_cql_port"],
        "gossip": DEFAULTS["newsfabric_gossip_port"],
        "readers": DEFAULTS["newsfabric_readers_port"],
        "frontdesk": DEFAULTS["newsfabric_frontdesk_port"],
        "node_exporter": DEFAULTS["newsfabric_node_exporter_port"],
        "metrics": DEFAULTS["newsfabric_ports"]["relay"],
        # RabbitMQ's own.
        "epmd": 4369,
        "erlang": 25672,
    }


def test_balancers_ask_the_ports_that_hosts_listen_on() -> None:
    for name in ("readers", "frontdesk"):
        port = re.search(r"^  default += (\d+)$", default("edge", f"{name}_port"), re.MULTILINE)
        assert port is not None
        assert int(port[1]) == DEFAULTS[f"newsfabric_{name}_port"]


def test_scalers_are_watched_by_the_names_that_they_are_started_with() -> None:
    services: list[dict[str, Any]] = yaml.safe_load(
        (ANSIBLE / "roles" / "wholesale" / "vars" / "main.yml").read_text()
    )["wholesale_services"]
    [scaler] = [each for each in services if each["unit"] == "newsfabric-scaler"]
    started = re.search(r"'--name', inventory_hostname ~ '([a-z-]+)'", scaler["command"])
    # One on each host of group `core`.
    watched = re.search(
        r'^  scalers = \[for name in sort\(keys\(local\.hosts\.core\)\) : "\$\{name\}([a-z-]+)"\]$',
        (MODULES / "region" / "main.tf").read_text(),
        re.MULTILINE,
    )
    assert started is not None
    assert watched is not None
    assert started[1] == watched[1]
