"""deploy/terraform and deploy/ansible agree: the same ports, names and networks."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
ANSIBLE: Final = ROOT / "deploy" / "ansible"
TERRAFORM: Final = ROOT / "deploy" / "terraform"
MODULES: Final = TERRAFORM / "modules"
DEFAULTS: Final[dict[str, Any]] = yaml.safe_load((ANSIBLE / "group_vars" / "all.yml").read_text())


def default(module: str, variable: str) -> str:
    """Return the default of a module's variable, as text."""
    found = re.search(
        rf'^variable "{variable}" \{{\n(.*?)^\}}$',
        (MODULES / module / "variables.tf").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert found is not None
    return found[1]


def test_the_firewall_opens_the_ports_that_hosts_listen_on() -> None:
    ports = re.findall(
        r"^    (\w+) += optional\(number, (\d+)\)", default("firewall", "ports"), re.M
    )
    assert {name: int(port) for name, port in ports} == {
        "amqps": DEFAULTS["newsfabric_amqps_port"],
        "management": DEFAULTS["newsfabric_management_tls_port"],
        "cql": DEFAULTS["newsfabric_cql_port"],
        "gossip": DEFAULTS["newsfabric_gossip_port"],
        "readers": DEFAULTS["newsfabric_readers_port"],
        "frontdesk": DEFAULTS["newsfabric_frontdesk_port"],
        "node_exporter": DEFAULTS["newsfabric_node_exporter_port"],
        "metrics": DEFAULTS["newsfabric_ports"]["relay"],
    }


def test_no_port_of_the_firewalls_table_is_written_elsewhere() -> None:
    ports = re.findall(r"optional\(number, (\d+)\)", default("firewall", "ports"))
    written = re.compile(rf":(?:{'|'.join(ports)})\b")
    found = {file for file in MODULES.glob("*/*.tf") if written.search(file.read_text())}
    assert found == set()


def test_another_image_or_type_of_machine_stops_no_node_by_itself() -> None:
    text = (MODULES / "machines" / "main.tf").read_text()
    assert "ignore_changes = [ami, user_data, instance_type]" in text


def test_balancers_ask_the_ports_that_hosts_listen_on() -> None:
    for name in ("readers", "frontdesk"):
        port = re.search(r"^  default += (\d+)$", default("edge", f"{name}_port"), re.MULTILINE)
        assert port is not None
        assert int(port[1]) == DEFAULTS[f"newsfabric_{name}_port"]


def values(name: str) -> str:
    """Return an environment's own values."""
    return (TERRAFORM / "environments" / name / "environment.auto.tfvars").read_text()


def environment(name: str) -> dict[str, dict[str, str]]:
    """Return each place that an environment makes, with its values as text."""
    blocks = re.findall(r"^ *(?:first|second|proxy) += \{\n(.*?)^ *\}$", values(name), re.M | re.S)
    places = [dict(re.findall(r'^ +(\w+) += "?(.*?)"?$', block, re.M)) for block in blocks]
    return {place["name"]: place for place in places}


def made(name: str) -> dict[str, int]:
    """Return the sizes of an environment's clusters: ``oregon-core`` to 3."""
    sizes = re.findall(r"^(client|core|store) += \{ number = (\d+)", values(name), re.M)
    found: dict[str, int] = {}
    for place, settings in environment(name).items():
        if "nearest" in settings:
            found[f"{place}-proxy"] = int(settings["number"])
        else:
            found |= {f"{place}-{role}": int(number) for role, number in sizes}
    return found


def inventory(name: str) -> dict[str, dict[str, Any]]:
    """Return the groups of an environment's ``hosts.yml``, with their hosts."""
    file = ANSIBLE / "inventories" / name / "hosts.yml"
    groups = yaml.safe_load(file.read_text())["all"]["children"]
    return {group: group_settings["hosts"] for group, group_settings in groups.items()}


def settings(name: str) -> dict[str, Any]:
    file = ANSIBLE / "inventories" / name / "group_vars" / "all" / "20-settings.yml"
    found: dict[str, Any] = yaml.safe_load(file.read_text())
    return found


ENVIRONMENTS = pytest.mark.parametrize("name", ["production", "staging"])


@ENVIRONMENTS
def test_an_environment_has_the_same_places_and_networks_in_both(name: str) -> None:
    places, variables = environment(name), settings(name)
    assert variables["newsfabric_environment"] == name
    assert variables["newsfabric_regions"] == [p for p in places if "nearest" not in places[p]]
    assert variables["newsfabric_proxies"] == {
        place: each["nearest"] for place, each in places.items() if "nearest" in each
    }
    assert variables["newsfabric_networks"] == [each["cidr"] for each in places.values()]


@ENVIRONMENTS
def test_frontdesks_have_the_names_that_terraform_makes(name: str) -> None:
    example = (TERRAFORM / "environments" / "terraform.tfvars.example").read_text()
    domain = re.search(r'^domain += "(.*)"$', example, re.MULTILINE)
    assert domain is not None
    own = {"production": domain[1], "staging": f"staging.{domain[1]}"}[name]
    found = settings(name)
    assert found["newsfabric_frontdesk_urls"] == {
        region: f"https://{region}.{own}" for region in found["newsfabric_regions"]
    }


@ENVIRONMENTS
def test_readers_reach_boxes_by_the_names_that_terraform_makes(name: str) -> None:
    found = settings(name)
    url = found["newsfabric_public_url"]
    frontdesks: dict[str, str] = found["newsfabric_frontdesk_urls"]
    names = {region: url.replace("{{ newsfabric_place }}", region) for region in frontdesks}
    assert names == {
        region: frontdesk.replace("https://", "https://readers.")
        for region, frontdesk in frontdesks.items()
    }
    assert [f"https://{one}" for one in found["newsfabric_gateways_at"]] == list(names.values())


@ENVIRONMENTS
def test_the_example_of_an_inventory_has_the_machines_that_terraform_makes(name: str) -> None:
    hosts = inventory(name)
    for place, settings in environment(name).items():
        network = ipaddress.ip_network(settings["cidr"])
        addresses = [ipaddress.ip_address(host["ansible_host"]) for host in hosts[place].values()]
        assert all(address in network for address in addresses), place
    wanted = {f"{cluster}-{n + 1}" for cluster, number in made(name).items() for n in range(number)}
    found = {host for place in environment(name) for host in hosts[place]}
    # Boxes are added and removed.
    assert {host for host in found if "-retail-" not in host} == wanted


def test_every_setting_that_terraform_tells_is_one_of_ansibles() -> None:
    outputs = (TERRAFORM / "environments" / "production" / "outputs.tf").read_text()
    output = re.findall(r"^    (newsfabric_\w+) +=", outputs, re.MULTILINE)
    assert "newsfabric_networks" in output
    assert [name for name in output if name not in DEFAULTS] == []


def test_staging_is_production_but_for_its_values_and_the_key_of_its_state() -> None:
    production = TERRAFORM / "environments" / "production"
    staging = TERRAFORM / "environments" / "staging"
    shared = {path.name for path in production.glob("*.tf")} - {"backend.tf"} | {"tests"}
    assert {path.name for path in staging.iterdir() if path.is_symlink()} == shared
    assert all((staging / name).resolve() == production / name for name in shared)


@ENVIRONMENTS
def test_data_volumes_are_as_large_as_hosts_need_them(name: str) -> None:
    least = DEFAULTS["newsfabric_least_disk_mib"]
    region = (MODULES / "region" / "variables.tf").read_text()
    fabric = (TERRAFORM / "environments" / name / "variables.tf").read_text()
    for role in ("client", "core", "store", "proxy"):
        found = re.search(rf"^{role} +=.*?data_gb = (\d+)", values(name), re.MULTILINE)
        texts = (fabric,) if role == "proxy" else (region, fabric)
        sizes = [int(found[1])] if found else [default_of(text, role, "data_gb") for text in texts]
        # The file system uses a part of the disk for itself.
        assert all(size * 1024 * 0.95 >= least[role] for size in sizes), role


def default_of(text: str, variable: str, field: str) -> int:
    found = re.search(
        rf'^variable "{variable}" \{{\n.*?{field} += optional\(number, (\d+)\)', text, re.M | re.S
    )
    assert found is not None
    return int(found[1])
