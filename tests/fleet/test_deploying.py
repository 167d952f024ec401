"""A first deployment on six machines, a second one, and another build in its place under load.

The tests share the machines, in their order. `.ci/run` runs the first of them.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet import access
from fleet.fleet import Fleet
from fleet.folders import CHECKOUT
from fleet.plan import machines_of
from newsfabric.kinds import CORE
from tests.fleet.conftest import fabric_in
from tests.fleet.fabrics import FleetCrowd, changes, newsfabric, on, plays, until

pytestmark = [pytest.mark.fleet, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def fleet(
    layers: Path, tmp_path_factory: pytest.TempPathFactory, port_base: int
) -> Iterator[Fleet]:
    with fabric_in(tmp_path_factory, layers, port_base, []) as made:
        yield made


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def another_build(bundle: Path, folder: Path) -> Path:
    """Return a copy of ``bundle`` as another build: its wheel has one more file."""
    inside = folder / "inside"
    inside.mkdir()
    subprocess.run(["tar", "--extract", "--file", bundle, "-C", inside], check=True)
    (wheel,) = inside.glob("newsfabric-*.whl")
    before = sha256(wheel)
    with zipfile.ZipFile(wheel, "a") as packed:
        packed.writestr("newsfabric/another_build", "")
    requirements = inside / "requirements.txt"
    text = requirements.read_text()
    assert text.count(before) == 1
    requirements.write_text(text.replace(before, sha256(wheel)))
    made = folder / f"newsfabric-{wheel.name.split('-')[1]}-{sha256(wheel)[:12]}.tar"
    subprocess.run(["tar", "--create", "--file", made, "-C", inside, "."], check=True)
    made.with_name(f"{made.name}.sha256").write_text(f"{sha256(made)}  {made.name}\n")
    return made


def running(fleet: Fleet) -> set[str]:
    """Return the releases that the fleet's machines run."""
    return {
        on(fleet, machine.name, "cat /opt/newsfabric/running").strip() for machine in machines_of(6)
    }


def test_an_operator_sees_the_board_and_a_second_run_changes_nothing(fleet: Fleet) -> None:
    token = access.operator_token(fleet.folders, "tester", 600.0)
    url = next(iter(fleet.boards().values())) + ".json"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200
    assert json.loads(newsfabric(fleet, "status", "--json"))["ready"]
    assert set(changes(plays(fleet, "site.yml")).values()) == {0}


# Each command reads the passwords as lines: it finds files with one, and log lines with one.
KEPT = "grep --recursive --fixed-strings --file=/dev/stdin --files-with-matches /etc"
LOGGED = (
    "cat >/run/searched; "
    "{ journalctl --no-pager --output=export; "
    "find /var/log -type f ! -path '/var/log/journal/*' -exec cat {} +; } "
    "| grep --text --fixed-strings --file=/run/searched; rm /run/searched"
)


def passwords(fleet: Fleet) -> dict[str, str]:
    """Return all passwords, and the secret, by their users (``shovel.oregon``, or ``secret``)."""
    secret = fleet.folders.secret.read_text().strip()
    users = [f"{role}.oregon" for role in (*CORE, "shovel")]
    users += [f"box.{each.name}" for each in machines_of(6) if "retail" in each.name]
    derived = {user: hashlib.sha256(f"{secret}:{user}".encode()).hexdigest() for user in users}
    return {"secret": secret, **derived}


def searched(fleet: Fleet, name: str, command: str) -> list[str]:
    """Return the output lines of ``command`` on a machine; it reads each password as a line."""
    words = access.ssh(fleet.folders, name, command)
    lines = "\n".join(passwords(fleet).values())
    done = subprocess.run(
        words, input=lines, capture_output=True, text=True, errors="replace", timeout=120
    )
    return done.stdout.splitlines()


def test_nothing_that_a_machine_logs_has_a_password_after_a_broker_was_killed_under_load(
    fleet: Fleet,
) -> None:
    process = "systemctl show --property=MainPID rabbitmq-server"
    killed = on(fleet, "oregon-core-1", process)
    with FleetCrowd(fleet, ("oregon",), readers=100, per_second=50, topics=25):
        on(fleet, "oregon-core-1", "systemctl kill --signal=SIGKILL rabbitmq-server")
        until("the broker starts again", lambda: on(fleet, "oregon-core-1", process) != killed)
        until("all is ready", lambda: json.loads(newsfabric(fleet, "status", "--json"))["ready"])
    machines = [each.name for each in machines_of(6)]
    assert {name: searched(fleet, name, LOGGED) for name in machines} == {
        name: [] for name in machines
    }
    # The search finds passwords where they are: on a core node, and in a journal.
    assert searched(fleet, "oregon-core-1", KEPT)
    on(fleet, "oregon-core-1", "logger", passwords(fleet)["shovel.oregon"])
    assert searched(fleet, "oregon-core-1", LOGGED)


def test_another_build_is_deployed_and_taken_back_and_no_reader_notices(
    fleet: Fleet, tmp_path: Path
) -> None:
    (first,) = (CHECKOUT / "dist").glob("newsfabric-*.tar")
    second = another_build(first, tmp_path)
    to_second = ("--extra-vars", f"newsfabric_bundle={second}")
    with FleetCrowd(fleet, ("oregon",), readers=2000, per_second=50, topics=25) as crowd:
        plays(fleet, "deploy.yml", *to_second)
        assert running(fleet) == {second.stem.removeprefix("newsfabric-")}
        assert set(changes(plays(fleet, "deploy.yml", *to_second)).values()) == {0}
        plays(fleet, "deploy.yml")
        assert running(fleet) == {first.stem.removeprefix("newsfabric-")}
    assert crowd.noticed_nothing, crowd.report
    assert crowd.report["messages"] > 50 * 60
