"""inventories/three-machines, and the files that the role ``machine`` makes from it."""

from __future__ import annotations

import collections
import ipaddress
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.networks import Networks, made
from tests.deploy.unit_templates import written

ROOT: Final = Path(__file__).resolve().parents[2]
ANSIBLE: Final = ROOT / "deploy" / "ansible"
EXAMPLE: Final = ANSIBLE / "inventories" / "three-machines"
INVENTORY: Final = EXAMPLE / "hosts.yml"
TEMPLATES: Final = ANSIBLE / "roles" / "machine" / "templates"
PAGE: Final = ROOT / "docs" / "operations" / "three-machines.md"
PARTS: Final = ("client", "core", "store", "retail")


def hosts() -> dict[str, dict[str, str]]:
    """Return the inventory's variables of each host of the example."""
    found: dict[str, dict[str, str]] = yaml.safe_load(INVENTORY.read_text())["all"]["children"][
        "oregon"
    ]["hosts"]
    return found


def settings() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(
        (EXAMPLE / "group_vars" / "all" / "20-settings.yml").read_text()
    )
    return found


def part_of(host: str) -> str:
    return host.split("-")[1]


def test_each_machine_carries_a_host_of_each_part_and_is_its_own_zone() -> None:
    carried = collections.defaultdict(list)
    for host, variables in hosts().items():
        carried[variables["machine"]].append(part_of(host))
    assert {name: sorted(parts) for name, parts in carried.items()} == dict.fromkeys(
        settings()["newsfabric_machines"], sorted(PARTS)
    )
    assert all(variables["zone"] == variables["machine"] for variables in hosts().values())


def test_no_two_have_an_address_and_all_are_in_the_hosts_network() -> None:
    network = ipaddress.ip_network(settings()["newsfabric_machines_network"])
    inside = [machine["inside"] for machine in settings()["newsfabric_machines"].values()]
    addresses = [variables["ansible_host"] for variables in hosts().values()] + inside
    assert len(set(addresses)) == len(addresses)
    assert all(ipaddress.ip_address(address) in network for address in addresses)


def test_the_pages_sizes_fit_their_machines_and_the_first_is_the_examples() -> None:
    rows = re.findall(r"^\| [\d,]+ \| \d+ \| (\d+) GiB \| \d+ GB \|(.*)\|$", PAGE.read_text(), re.M)
    assert len(rows) == 3
    sizes = [[int(n or 0) for n in map(str.strip, rest.split("|")[:4])] for _, rest in rows]
    assert dict(zip(PARTS, sizes[0], strict=True)) == settings()["newsfabric_memory_mib"]
    for (gib, _), of_parts in zip(rows, sizes, strict=True):
        # An eighth is left for the machine's own Debian, HAProxy and the page cache.
        assert sum(of_parts) <= int(gib) * 1024 * 7 / 8


def first_play(
    playbook: str, tmp_path: Path, name: str, *, machines: list[str], more: dict[str, Any]
) -> subprocess.CompletedProcess[str]:
    """Run the playbook's first play, which connects to no host, with these machines."""
    plays = yaml.safe_load((ANSIBLE / "playbooks" / name).read_text())
    known = {one: settings()["newsfabric_machines"][one] for one in machines}
    given = {"newsfabric_machines": known, "newsfabric_secret": "a" * 64, **more}
    return subprocess.run(
        [
            playbook,
            "-i",
            str(INVENTORY),
            str(written(tmp_path, plays[:1])),
            "-e",
            json.dumps(given),
        ],
        cwd=ANSIBLE,
        capture_output=True,
        text=True,
    )


def test_a_host_of_no_machine_is_refused(playbook: str, tmp_path: Path) -> None:
    done = first_play(playbook, tmp_path, "machines-known.yml", machines=["a", "b"], more={})
    assert done.returncode != 0
    assert "machines that newsfabric_machines hasn't (c)" in done.stdout


def test_two_of_one_address_are_refused(playbook: str, tmp_path: Path) -> None:
    more = {"newsfabric_address": "10.9.0.11"}
    done = first_play(playbook, tmp_path, "machines-known.yml", machines=["a", "b", "c"], more=more)
    assert done.returncode != 0
    assert "two have one address" in done.stdout


def test_another_inventory_than_the_one_that_was_meant_is_refused(
    playbook: str, tmp_path: Path
) -> None:
    more = {"expect": "production"}
    done = first_play(playbook, tmp_path, "machines-known.yml", machines=["a", "b", "c"], more=more)
    assert done.returncode != 0
    assert "this inventory is three-machines" in done.stdout


@pytest.mark.parametrize(
    ("host", "moves"),
    [
        ("oregon-core-1", True),
        ("oregon-retail-1", False),
        ("nobody", False),
        # All others of its part are in another region.
        ("dublin-core-1", False),
    ],
)
def test_a_host_moves_that_has_others_of_its_part_beside_it(
    playbook: str, tmp_path: Path, host: str, moves: bool
) -> None:
    more = tmp_path / "dublin.yml"
    dublin = {"dublin-core-1": {"ansible_host": "10.9.0.51", "machine": "a"}}
    groups = {name: {"hosts": dublin} for name in ("core", "dublin")}
    more.write_text(yaml.safe_dump({"all": {"children": groups}}))
    (known, *_) = yaml.safe_load((ANSIBLE / "playbooks" / "machines-known.yml").read_text())
    plays = yaml.safe_load((ANSIBLE / "playbooks" / "move-host.yml").read_text())
    (moving,) = [play for play in plays if play["name"] == "Choose the machine to move to"]
    moving |= {"connection": "local", "gather_facts": False, "tasks": moving["tasks"][:1]}
    variables = {"host": host, "newsfabric_regions": ["oregon", "dublin"], "ansible_become": False}
    done = subprocess.run(
        [
            playbook,
            *("-i", str(INVENTORY), "-i", str(more)),
            str(written(tmp_path, [known, moving])),
            *("-e", json.dumps(variables)),
        ],
        cwd=ANSIBLE,
        capture_output=True,
        text=True,
    )
    assert (done.returncode == 0) == moves, done.stdout
    assert ("isn't the only one of its part" in done.stdout.replace("\n", " ")) != moves


@pytest.fixture(scope="module")
def of_b(playbook: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return machine b's files by the template's name; of its hosts only the core node's."""
    folder = tmp_path_factory.mktemp("machine")
    tasks = [
        {
            "ansible.builtin.template": {
                "src": str(template),
                "dest": f"{folder}/{{{{ inventory_hostname }}}}-{template.stem}",
                "mode": "0644",
            },
            "vars": {"item": "oregon-core-2"},
        }
        for template in sorted(TEMPLATES.glob("*.j2"))
    ]
    (known, *_) = yaml.safe_load((ANSIBLE / "playbooks" / "machines-known.yml").read_text())
    play = {
        "hosts": "machines",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(ANSIBLE / "roles" / "machine" / "vars" / "main.yml")],
        "tasks": tasks,
    }
    done = subprocess.run(
        [playbook, "-i", str(INVENTORY), str(written(folder, [known, play]))],
        cwd=ANSIBLE,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name.removeprefix("b-"): path.read_text() for path in folder.glob("b-*")}


def test_a_tunnel_ends_at_each_other_machine_and_takes_packets_of_no_one_else(
    of_b: dict[str, str],
) -> None:
    assert "wanted='192.0.2.11 192.0.2.13'" in of_b["bridge.sh"]
    assert "local 192.0.2.12" in of_b["bridge.sh"]
    guard = rules(of_b, "input")
    assert guard == [
        "udp dport 4789 ip saddr { 192.0.2.11, 192.0.2.13 } ip daddr 192.0.2.12 "
        "fib saddr . iif oif exists accept",
        "udp dport 4789 drop",
    ]


def rules(of_b: dict[str, str], chain: str) -> list[str]:
    """Return the rules of a chain, without its hook and comments."""
    lines = of_b["bridge.nft"].partition(f"chain {chain} {{")[2].partition("}\n    ")[0]
    return [line for line in map(str.strip, lines.splitlines()[2:]) if line[:1] not in "#}"]


def test_a_machine_forwards_for_its_hosts_alone(of_b: dict[str, str]) -> None:
    assert "type filter hook forward priority filter; policy drop\n" in of_b["bridge.nft"]
    assert rules(of_b, "forward") == [
        'iifname "newsfabric" oifname "newsfabric" accept',
        'oifname "newsfabric" ct state established,related accept',
        "udp dport 4789 drop",
        "ip daddr 169.254.0.0/16 meta l4proto { tcp, udp } th dport != { 53, 123 } drop",
        'iifname "newsfabric" ip saddr 10.9.0.0/24 accept',
    ]


@pytest.fixture(scope="module")
def networks(of_b: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Networks]:
    """Make machine b's network from its files, with one host, machine a and the world beside it.

    ``outside`` has every address that isn't of the fabric, and both have a route to hosts.
    """
    folder = tmp_path_factory.mktemp("bridge")
    for name in ("bridge.sh", "bridge.nft"):
        (folder / name).write_text(of_b[name].replace("/var/lib/newsfabric-machine", str(folder)))
    with made(["machine", "outside", "peer", "host"]) as found:
        found.joined("machine", "198.51.100.2/24", "outside", "198.51.100.9/24")
        found.joined("machine", "192.0.2.12/24", "peer", "192.0.2.11/24")
        for _ in range(2):
            found.run("machine", f"sh {folder}/bridge.sh")
        found.bridged("machine", "newsfabric", "host", "10.9.0.22/24")
        found.run("host", "ip route add default via 10.9.0.2")
        found.run("outside", "ip route add 10.9.0.0/24 via 198.51.100.2")
        found.run("outside", "ip route add 192.0.2.0/24 via 198.51.100.2")
        found.run("peer", "ip route add default via 192.0.2.12")
        found.run("outside", "ip address add 169.254.169.254/32 dev lo")
        found.run("machine", "ip route add 169.254.0.0/16 via 198.51.100.9")
        yield found


def test_a_hosts_way_out_is_its_machines_address(networks: Networks) -> None:
    with networks.listens("outside", 80):
        assert networks.asks("host", "198.51.100.9", 80) == "198.51.100.2"


def test_a_machine_reaches_its_hosts_and_nobody_else_does_through_it(networks: Networks) -> None:
    with networks.listens("host", 9100):
        assert networks.asks("machine", "10.9.0.22", 9100) == "10.9.0.2"
        for who in ("outside", "peer"):
            assert networks.asks(who, "10.9.0.22", 9100) is None


def test_a_machine_is_no_router_between_its_networks(networks: Networks) -> None:
    with networks.listens("peer", 80), networks.listens("outside", 80):
        assert networks.asks("machine", "192.0.2.11", 80) == "192.0.2.12"
        assert networks.asks("outside", "192.0.2.11", 80) is None
        assert networks.asks("peer", "198.51.100.9", 80) is None


def test_a_host_asks_a_clouds_name_servers_and_not_for_its_machines_role(
    networks: Networks,
) -> None:
    with networks.listens("outside", 80), networks.listens("outside", 53):
        assert networks.asks("host", "169.254.169.254", 53) == "198.51.100.2"
        assert networks.asks("host", "169.254.169.254", 80) is None


def test_a_tunnel_takes_nothing_that_comes_another_way_than_from_its_machine(
    networks: Networks,
) -> None:
    # The third machine's address, on the wrong network.
    networks.run("outside", "ip address add 192.0.2.13/32 dev lo")
    networks.tunnel("outside", "192.0.2.13", "192.0.2.12", "10.9.0.13/32", to="host")
    networks.tunnel("peer", "192.0.2.11", "192.0.2.12", "10.9.0.11/32", to="host")
    with networks.hears("host", 9999) as heard:
        for _ in range(3):
            networks.sends("outside", "10.9.0.22", 9999)
        networks.sends("peer", "10.9.0.22", 9999)
        assert heard() == "10.9.0.11"


def test_a_host_has_its_address_its_machines_way_out_and_a_limit(of_b: dict[str, str]) -> None:
    assert "Address=10.9.0.22/24\nGateway=10.9.0.2\n" in of_b["host.network"]
    assert f"MemoryMax={settings()['newsfabric_memory_mib']['core']}M" in of_b["host.conf"]


def test_readers_come_by_name_to_the_machines_own_box_and_to_any_frontdesk(
    of_b: dict[str, str],
) -> None:
    text = of_b["haproxy.cfg"]
    assert "use_backend boxes if { ssl_fc_sni -i readers-b.news.example.com }" in text
    servers = re.findall(r"^    server (\S+) (\S+)(.*)$", text, re.MULTILINE)
    # The proxy sends the reader's address to the gateway; other machines' frontdesks are backups.
    assert ("oregon-retail-2", "10.9.0.102:8080", " send-proxy-v2") in servers
    frontdesks = {
        name: rest for name, where, rest in servers if where.endswith(":8080") and "core" in name
    }
    assert {name: rest.endswith("backup") for name, rest in frontdesks.items()} == {
        "oregon-core-1": True,
        "oregon-core-2": False,
        "oregon-core-3": True,
    }
    assert all(f"verify required verifyhost {name}" in rest for name, rest in frontdesks.items())
    publishers = {where: rest.endswith("backup") for _, where, rest in servers if ":5671" in where}
    assert publishers == {
        "10.9.0.11:5671": True,
        "10.9.0.12:5671": False,
        "10.9.0.13:5671": True,
    }
