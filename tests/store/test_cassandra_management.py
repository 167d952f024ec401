"""The management port of a store node (JMX), with the settings and the command of the playbooks."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from localfabric.nodes.cassandra import LocalCassandra
from localfabric.nodes.ports import free_ports
from localfabric.world.cassandra_home import CassandraHome

pytestmark = [pytest.mark.slow, pytest.mark.cassandra]

ROLE: Final = Path(__file__).parents[2] / "deploy" / "ansible" / "roles" / "cassandra"


@dataclasses.dataclass(frozen=True, slots=True)
class Managed:
    """A node, the folder of its login, and the command that sends it requests."""

    port: int
    login: Path
    nodetool: Path
    written: Path
    home: CassandraHome
    access: tuple[str, ...]

    def run_nodetool(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the playbooks' command."""
        return subprocess.run(
            [self.nodetool, *words], capture_output=True, text=True, timeout=120, check=False
        )

    def run_nodetool_as(self, *login: str) -> subprocess.CompletedProcess[str]:
        """Run Cassandra's own nodetool, as any user of the host can, with this login or none."""
        java = [str(self.home.java), *self.access, "-cp", f"{self.home.lib}/*"]
        name = "org.apache.cassandra.tools.NodeTool"
        folder = f"-Duser.home={self.written}"
        words = [*java, folder, name, "-p", str(self.port), *login, "status"]
        return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


def made_password(folder: Path) -> None:
    """Run the role's command, except the change of the file's owner."""
    tasks: list[dict[str, Any]] = yaml.safe_load((ROLE / "tasks" / "jmx.yml").read_text())
    [shell] = [t["ansible.builtin.shell"]["cmd"] for t in tasks if t["name"] == "Make the password"]
    assert "\nchown root:cassandra password.new\n" in shell
    shell = shell.replace("\nchown root:cassandra password.new\n", "\n")
    subprocess.run(["bash", "-c", shell], cwd=folder, check=True)


@pytest.fixture(scope="module")
def managed(
    cassandra_home: CassandraHome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Managed]:
    folder = tmp_path_factory.mktemp("managed")
    login, written = folder / "jmx", folder / "written"
    login.mkdir()
    written.mkdir()
    (port,) = free_ports(1)
    made_password(login)
    tasks: list[dict[str, Any]] = yaml.safe_load((ROLE / "tasks" / "jmx.yml").read_text())
    [access] = [t["ansible.builtin.copy"]["content"] for t in tasks if "ansible.builtin.copy" in t]
    (login / "access").write_text(access)

    template = (ROLE / "templates" / "jvm.options.j2").read_text()
    options = [
        line.replace("/etc/cassandra/jmx", str(login)).replace("=7199", f"={port}")
        for line in template.splitlines()
        if re.match(r"-D(cassandra\.jmx|com\.sun\.management)\.|--add-", line)
    ]
    assert len([option for option in options if option.startswith("-D")]) == 4
    java_options = folder / "jvm.options"
    java_options.write_text(template)
    nodetool = folder / "nodetool"
    script = (ROLE / "templates" / "nodetool.j2").read_text()
    for here, there in (
        ("/usr/bin/java", str(cassandra_home.java)),
        ("/opt/cassandra/{{ newsfabric_cassandra_version }}", str(cassandra_home.lib)),
        ("/etc/cassandra/jvm.options", str(java_options)),
        ("/etc/cassandra/jmx", str(login)),
        ("/var/lib/newsfabric-nodetool", str(written)),
        ("-p 7199", f"-p {port}"),
    ):
        assert here in script
        script = script.replace(here, there)
    nodetool.write_text(script)
    nodetool.chmod(0o755)
    with LocalCassandra(folder / "nodes", cassandra_home, options=options):
        access = tuple(option for option in options if option.startswith("--add-"))
        yield Managed(port, login, nodetool, written, cassandra_home, access)


def test_the_playbooks_command_asks_it(managed: Managed) -> None:
    done = managed.run_nodetool("status")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^UN +127\.0\.0\.1 ", done.stdout, re.MULTILINE)


def test_what_changes_the_node_may_be_asked_for(managed: Managed) -> None:
    for words in (
        ("snapshot", "-t", "taken", "--", "system_auth"),
        ("clearsnapshot", "-t", "taken", "--", "system_auth"),
        ("cleanup", "--", "system_auth"),
    ):
        done = managed.run_nodetool(*words)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"


def test_a_repair_is_begun_and_says_how_it_goes(managed: Managed) -> None:
    # The node itself reports that it has no other node to compare with. Its first line, that the
    # repair starts, is sometimes sent before nodetool listens.
    done = managed.run_nodetool("repair", "--full", "system_traces")
    assert re.search(r"Repair command #1 .*Nothing to repair for .* system_traces", done.stdout)
    assert "Repair command #1 finished" in done.stdout


@pytest.mark.parametrize("login", [(), ("-u", "newsfabric", "-pw", "guessed")])
def test_whoever_is_on_the_host_rules_nothing(managed: Managed, login: tuple[str, ...]) -> None:
    done = managed.run_nodetool_as(*login)
    assert done.returncode != 0
    assert "127.0.0.1  " not in done.stdout
    assert re.search(
        r"Credentials required|Invalid username or password", done.stdout + done.stderr
    )


def test_the_password_is_its_own_and_for_no_other_user(managed: Managed) -> None:
    file = managed.login / "password"
    assert file.stat().st_mode & 0o777 == 0o640
    assert re.fullmatch(r"newsfabric [0-9a-f]{64}\n", file.read_text())
    assert [path.name for path in managed.login.glob("*.new")] == []


def test_the_command_leaves_nothing_in_tmp_and_shows_no_password(managed: Managed) -> None:
    password = (managed.login / "password").read_text().split()[1]
    before = set(os.listdir("/tmp"))
    assert managed.run_nodetool("status").returncode == 0
    assert {name for name in set(os.listdir("/tmp")) - before if "hsperf" in name} == set()
    history = managed.written / ".cassandra" / "nodetool.history"
    assert "status" in history.read_text()
    assert password not in history.read_text() + managed.nodetool.read_text()
