"""Playbooks on six machines: a first deployment, a second one, and prechecks that stop it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.request
from pathlib import Path

import pytest

from fleet import access
from fleet.fleet import Fleet
from fleet.plan import machines_of
from tests.fleet.fabrics import changes, played

pytestmark = [pytest.mark.fleet, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(1800)]


def installed(fleet: Fleet, name: str) -> bool:
    """Whether a playbook has told the machine what it is: the first thing that site.yml does."""
    words = access.ssh(fleet.folders, name, "test -e /etc/newsfabric/place")
    return subprocess.run(words, timeout=60, check=False).returncode == 0


def test_a_fabric_is_made_of_six_machines_and_a_second_run_changes_nothing(fleet: Fleet) -> None:
    first = played(fleet, "site.yml")
    assert first.returncode == 0, first.stdout[-3000:]

    token = access.operator_token(fleet.folders, "tester", 600.0)
    url = next(iter(fleet.boards().values())) + ".json"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200

    second = played(fleet, "site.yml")
    assert second.returncode == 0, second.stdout[-3000:]
    assert changes(second) == {machine.name: 0 for machine in machines_of(6)}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"expect": "production"}, "this inventory is fleet, not production"),
        ({"newsfabric_secret": ""}, "newsfabric_secret is missing or short"),
        ({"newsfabric_secret": "guessable"}, "newsfabric_secret is missing or short"),
        ({"newsfabric_bundle": "/nowhere.tar"}, "`make bundle` writes it"),
        ({"newsfabric_distributions": ["trixie"]}, "supported: trixie"),
        (
            {"newsfabric_least_disk_mib": dict.fromkeys(
                ("client", "core", "store", "retail", "proxy"), 10**9
            )},
            "MiB free below /var/lib",
        ),
    ],
)  # fmt: skip
def test_a_precheck_names_what_is_wrong_and_changes_nothing(
    fleet: Fleet, wrong: dict[str, object], said: str
) -> None:
    done = played(fleet, "site.yml", "--extra-vars", json.dumps(wrong))

    assert done.returncode != 0
    assert said in done.stdout
    assert sum(changes(done).values()) == 0
    assert not any(installed(fleet, machine.name) for machine in machines_of(6))


def test_a_clock_that_is_a_minute_off_stops_it_before_anything_is_changed(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Machines have this one's clock, so it is this one that says another time.
    ahead = tmp_path / "date"
    ahead.write_text("#!/bin/sh\nexec /bin/date --date '60 seconds' \"$@\"\n")
    ahead.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    done = played(fleet, "site.yml")

    assert done.returncode != 0
    # Less what it took to ask.
    assert re.search(r"the clock of oregon-core-1 is -(60|[345]\d) s off", done.stdout)
    assert sum(changes(done).values()) == 0
    assert not any(installed(fleet, machine.name) for machine in machines_of(6))
