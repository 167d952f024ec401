"""The Cassandra that a store node gets: the version that was asked for, or none."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.deploy.unit_templates import ROLES

ROOT: Final = ROLES.parents[2]
POM: Final = ROOT / "scripts" / "cassandra" / "pom.xml"


def wanted() -> str:
    """Return the version that hosts get."""
    settings = yaml.safe_load((ROLES.parent / "group_vars" / "all.yml").read_text())
    found: str = settings["newsfabric_cassandra_version"]
    return found


def test_the_version_that_is_fetched_is_the_one_that_hosts_get() -> None:
    assert re.findall(r"<version>([0-9.]{3,})</version>", POM.read_text()) == [wanted()]


def test_scripts_setup_knows_the_version_that_it_is_to_have() -> None:
    script = (ROOT / "scripts" / "setup").read_text()
    [line] = re.findall(r"^cassandra_version\(\) .*$", script, re.MULTILINE)
    asked = ["bash", "-c", f"{line}\ncassandra_version"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == f"{wanted()}\n"


@pytest.mark.parametrize(("jar", "refused"), [("5.0.4", False), ("5.0.5", True)])
def test_jars_of_another_version_are_refused(
    playbook: str, tmp_path: Path, jar: str, refused: bool
) -> None:
    (tmp_path / f"cassandra-all-{jar}.jar").touch()
    given = {"newsfabric_cassandra_jars": str(tmp_path), "newsfabric_cassandra_version": "5.0.4"}
    tasks = yaml.safe_load((ROLES / "cassandra" / "tasks" / "jars.yml").read_text())
    file = tmp_path / "play.yml"
    file.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    done = subprocess.run(
        [playbook, "-i", "localhost,", str(file), "--extra-vars", json.dumps(given)],
        cwd=ROLES.parent,
        capture_output=True,
        text=True,
    )
    text = "has no Cassandra 5.0.4: scripts/cassandra/pom.xml names the version"
    assert (done.returncode, text in " ".join(done.stdout.split())) == (
        (2, True) if refused else (0, False)
    )
