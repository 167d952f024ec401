"""Settings of group_vars/all.yml that follow from others, or from facts that prechecks found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml

ANSIBLE: Final = Path(__file__).resolve().parents[2] / "deploy" / "ansible"
LOOK: Final = ANSIBLE / "roles" / "precheck" / "files" / "look.py"


def setting(playbook: str, folder: Path, name: str, given: dict[str, object]) -> str:
    """Return the value of setting ``name`` when the variables ``given`` are set."""
    found = folder / "found"
    task = {"content": f"{{{{ {name} }}}}", "dest": str(found), "mode": "0600"}
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(ANSIBLE / "group_vars" / "all.yml")],
        "tasks": [{"ansible.builtin.copy": task}],
    }
    file = folder / "play.yml"
    file.write_text(yaml.safe_dump([play]))
    done = subprocess.run(
        [playbook, "-i", "localhost,", str(file), "-e", json.dumps(given)],
        cwd=ANSIBLE,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return found.read_text()


@pytest.mark.parametrize(
    ("made_from", "asks"),
    [(None, "True"), ("", "True"), ("0f3a of an older one\n", "False")],
    ids=["plain-debian", "a-power-cut-left-it-empty", "from-an-image"],
)
def test_apt_asks_the_registry_but_on_hosts_that_were_made_from_an_image(
    playbook: str, tmp_path: Path, made_from: str | None, asks: str
) -> None:
    machine = tmp_path / "machine"
    for folder in ("etc/newsfabric", "var/lib"):
        (machine / folder).mkdir(parents=True)
    if made_from is not None:
        (machine / "etc/newsfabric/image").write_text(made_from)
    seen = subprocess.run(
        [sys.executable, LOOK, "/opt/newsfabric", "5.0.4", "0", machine],
        capture_output=True,
        text=True,
        check=True,
    )
    given = {"precheck_found": {"stdout": seen.stdout}}
    assert setting(playbook, tmp_path, "newsfabric_update_apt", given) == asks


def test_apt_asks_the_registry_where_an_image_is_made(playbook: str, tmp_path: Path) -> None:
    assert setting(playbook, tmp_path, "newsfabric_update_apt", {}) == "True"


def test_the_lists_are_refreshed_once_by_the_role_that_installs_first() -> None:
    asks = "update_cache:"
    installing = {path.parts[-3]: path for path in ANSIBLE.glob("roles/*/tasks/install.yml")}
    found = [role for role, path in sorted(installing.items()) if asks in path.read_text()]
    assert found == ["base"]


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        ({}, ""),
        ({"newsfabric_token_keys_from": "keys.pem"}, "/etc/newsfabric/token-keys.pem"),
    ],
    ids=["none", "a-file"],
)
def test_keys_that_are_brought_to_hosts_are_looked_for_where_they_are_put(
    playbook: str, tmp_path: Path, given: dict[str, object], keys: str
) -> None:
    assert setting(playbook, tmp_path, "newsfabric_token_keys", given) == keys


@pytest.mark.parametrize(
    ("given", "heap"),
    [
        ({"ansible_facts": {"memtotal_mb": 8000}}, "4000"),
        ({"ansible_facts": {"memtotal_mb": 64000}}, "8192"),
        # A container sees all of its machine's memory.
        (
            {"ansible_facts": {"memtotal_mb": 64000}, "newsfabric_memory_mib": {"store": 2560}},
            "1280",
        ),
    ],
    ids=["half", "no-more-than-8-gib", "of-what-the-host-may-take"],
)
def test_the_stores_heap_is_half_of_what_its_host_has(
    playbook: str, tmp_path: Path, given: dict[str, object], heap: str
) -> None:
    assert setting(playbook, tmp_path, "newsfabric_cassandra_heap_mib", given) == heap
