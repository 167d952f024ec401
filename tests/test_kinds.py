"""Files that list kinds of processes, apart from ``newsfabric.kinds``, have the same kinds.

A failing test names each file that lacks a kind: a new kind has its row, and then these files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from localfabric.world.layout import lay_out
from localfabric.world.options import WorldOptions
from newsfabric.kinds import BOX, CORE, KINDS, word
from newsfabric.topics import load_topics
from newsfabric.topology.roles import cluster_users
from newsfabric.topology.values import Cluster
from wholesale.commands import main

ROOT: Final = Path(__file__).parents[1]
ANSIBLE: Final = ROOT / "deploy" / "ansible"
CHART: Final = ROOT / "deploy" / "helm" / "newsfabric"

#: Name, value and wanted value of a place.
Place = tuple[str, Any, Any]


def users() -> Iterator[Place]:
    """Yield the users of services on a core broker."""
    fabric = lay_out(WorldOptions(regions=("oregon",)), Path("/tmp/w")).fabric()
    found = cluster_users(fabric, load_topics(ROOT / "topics.toml"), Cluster("oregon", "core"))
    names = {user.name for user in found} - {"shovel.oregon"}
    yield "cluster_users of a core", names, {f"{kind}.oregon" for kind in CORE}


def commands() -> Iterator[Place]:
    """Yield the commands of ``python -m wholesale``."""
    wanted = {KINDS[kind].command for kind in CORE} - {"shovels"}
    yield "the commands", {f"wholesale {name}" for name in main.commands}, wanted


def world() -> Iterator[Place]:
    """Yield the services of a world that scales."""
    layout = lay_out(WorldOptions(scale=(1, 2)), Path("/tmp/w"))
    services = layout.regions[0].services
    yield "_SERVICES", {service.kind for service in services}, set(CORE)


def settings() -> Iterator[Place]:
    """Yield Ansible's settings of core services and of ports."""
    found = yaml.safe_load((ANSIBLE / "group_vars" / "all.yml").read_text())
    rows = found["newsfabric_core_kinds"]
    yield "newsfabric_core_kinds", list(rows), list(CORE)
    for kind in CORE:
        row, wanted = rows.get(kind, {}), KINDS[kind]
        yield f"number of {kind}", "number" in row, wanted.several
        yield f"topics of {kind}", row.get("topics", False), wanted.topics
        yield f"store of {kind}", row.get("store", ""), wanted.store
    for kind in (*CORE, *BOX):
        yield f"port of {kind}", found["newsfabric_ports"].get(kind), KINDS[kind].port
    words = {kind: word(kind) for kind in CORE if word(kind) != kind}
    yield "newsfabric_words", found["newsfabric_words"], words


def units() -> Iterator[Place]:
    """Yield the programs of the units on a core node."""
    found = yaml.safe_load((ANSIBLE / "roles" / "wholesale" / "vars" / "main.yml").read_text())
    own = found["wholesale_own"]
    yield "the kinds of wholesale_own", set(own) - set(CORE), set()
    for kind in CORE:
        program = own.get(kind, {}).get("program", ["wholesale", kind])
        yield f"program of {kind}", program, KINDS[kind].command.split()


def pods() -> Iterator[Place]:
    """Yield the chart's services. Readers ask a frontdesk at 8080, in a pod too."""
    helpers = (CHART / "templates" / "_helpers.tpl").read_text()
    table = re.search(r'define "newsfabric.services" -}}\n(.*?){{- end', helpers, re.DOTALL)
    assert table is not None
    found = yaml.safe_load(table[1])
    yield "newsfabric.services", set(found), set(CORE)
    for kind in CORE:
        row, text = KINDS[kind], found.get(kind, {})
        yield f"command of {kind}", text.get("command"), row.command.split()
        yield f"port of {kind}", text.get("port"), 8080 if kind == "frontdesk" else row.port
        yield f"topics of {kind}", text.get("topics", False), row.topics
        yield f"store of {kind}", text.get("store", ""), row.store


def values() -> Iterator[Place]:
    """Yield the chart's settings of services."""
    found = yaml.safe_load((CHART / "values.yaml").read_text())
    yield "services", set(found["services"]), set(CORE)


def page() -> Iterator[Place]:
    """Yield the commands in the table of processes."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    found = set(re.findall(r"^\| [\w ,]+ \| `python -m ([\w ]+)` \|", text, re.MULTILINE))
    wanted = {KINDS[kind].command for kind in (*CORE, *BOX)}
    yield "the table of processes", found, wanted


def rights() -> Iterator[Place]:
    """Yield the users of regions in the table of rights."""
    text = (ROOT / "docs" / "design" / "0024-users-and-rights.md").read_text()
    found = set(re.findall(r"^\| `(\w+)\.REGION` \|", text, re.MULTILINE))
    yield "the table of users", found, {*CORE, "shovel"}


FILES: Final[dict[str, Callable[[], Iterator[Place]]]] = {
    "newsfabric/topology/roles.py": users,
    "wholesale/commands.py": commands,
    "localfabric/world/layout.py": world,
    "deploy/ansible/group_vars/all.yml": settings,
    "deploy/ansible/roles/wholesale/vars/main.yml": units,
    "deploy/helm/newsfabric/templates/_helpers.tpl": pods,
    "deploy/helm/newsfabric/values.yaml": values,
    "docs/architecture.md": page,
    "docs/design/0024-users-and-rights.md": rights,
}


@pytest.mark.parametrize("file", FILES)
def test_a_file_has_every_kind_of_process_as_the_table_has_it(file: str) -> None:
    wrong = [
        f"{file}: {name} is {found}, and newsfabric/kinds.py wants {wanted}"
        for name, found, wanted in FILES[file]()
        if found != wanted
    ]
    assert wrong == []


def test_no_two_processes_of_a_host_have_a_port() -> None:
    ports = [KINDS[kind].port + n for kind in CORE for n in range(10 if KINDS[kind].several else 1)]
    assert len(set(ports)) == len(ports)


def test_a_kind_with_a_store_reads_topics() -> None:
    assert [kind for kind, row in KINDS.items() if row.store and not row.topics] == []
