"""Files that can't read ``newsfabric.kinds`` have the same kinds of processes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from newsfabric.kinds import BOX, CORE, KINDS, word

ROOT: Final = Path(__file__).parents[1]
ANSIBLE: Final = ROOT / "deploy" / "ansible"
CHART: Final = ROOT / "deploy" / "helm" / "newsfabric"


def settings() -> Iterator[tuple[str, Any, Any]]:
    """Yield name, value and wanted value of each setting that Ansible repeats."""
    found = yaml.safe_load((ANSIBLE / "group_vars" / "all.yml").read_text())
    numbers = found["newsfabric_core_kinds"]
    yield "newsfabric_core_kinds", list(numbers), list(CORE)
    for kind in CORE:
        yield f"number of {kind}", bool(numbers.get(kind)), KINDS[kind].several
    for kind in (*CORE, *BOX):
        yield f"port of {kind}", found["newsfabric_ports"].get(kind), KINDS[kind].port
    words = {kind: word(kind) for kind in CORE if word(kind) != kind}
    yield "newsfabric_words", found["newsfabric_words"], words


def units() -> Iterator[tuple[str, Any, Any]]:
    """Yield the same of the units on a core node. One loop makes units of several instances."""
    vars_ = yaml.safe_load((ANSIBLE / "roles" / "wholesale" / "vars" / "main.yml").read_text())
    found = {each["unit"]: each for each in vars_["wholesale_services"]}
    wanted = {f"newsfabric-{word(kind)}": kind for kind in CORE if not KINDS[kind].several}
    yield "units", list(found), list(wanted)
    for unit, kind in wanted.items():
        text = found.get(unit, {"command": ""})
        begun = re.findall(r"\w+", text["command"])
        words = KINDS[kind].command.split()
        yield f"command of {unit}", begun[: len(words)], words
        yield f"login of {unit}", text.get("login"), f"{kind}.{{{{ newsfabric_place }}}}"
        reads = text.get("store") == "{{ newsfabric_cassandra_reader }}"
        yield f"store of {unit}", "reader" if reads else text.get("store", ""), KINDS[kind].store
    for row in (KINDS[kind] for kind in CORE if KINDS[kind].several):
        yield (
            f"the loop's {row.title}",
            ("wholesale", "writer"),
            (row.command.split()[0], row.store),
        )


def pods() -> Iterator[tuple[str, Any, Any]]:
    """Yield the same of the chart's services. Readers ask a frontdesk at 8080, in a pod too."""
    helpers = (CHART / "templates" / "_helpers.tpl").read_text()
    table = re.search(r'define "newsfabric.services" -}}\n(.*?){{- end', helpers, re.DOTALL)
    assert table is not None
    found = yaml.safe_load(table[1])
    yield "newsfabric.services", set(found), set(CORE)
    for kind in CORE:
        row, text = KINDS[kind], found.get(kind, {})
        yield f"command of {kind}", text.get("command"), row.command.split()
        yield f"port of {kind}", text.get("port"), 8080 if kind == "frontdesk" else row.port
        yield f"store of {kind}", text.get("store", ""), row.store


def values() -> Iterator[tuple[str, Any, Any]]:
    found = yaml.safe_load((CHART / "values.yaml").read_text())
    yield "services", set(found["services"]), set(CORE)


FILES: Final[dict[str, Callable[[], Iterator[tuple[str, Any, Any]]]]] = {
    "deploy/ansible/group_vars/all.yml": settings,
    "deploy/ansible/roles/wholesale/vars/main.yml": units,
    "deploy/helm/newsfabric/templates/_helpers.tpl": pods,
    "deploy/helm/newsfabric/values.yaml": values,
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
