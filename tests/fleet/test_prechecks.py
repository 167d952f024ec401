"""Prechecks on six machines: errors are named, and nothing is changed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from fleet import access
from fleet.fleet import Fleet
from fleet.plan import machines_of
from tests.fleet.fabrics import changes, on, played

pytestmark = [pytest.mark.fleet, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(1800)]


def installed(fleet: Fleet, name: str) -> bool:
    """Return whether a playbook has named the machine's place: the first action of site.yml."""
    words = access.ssh(fleet.folders, name, "test -e /etc/newsfabric/place")
    return subprocess.run(words, timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"expect": "production"}, "this inventory is fleet, not production"),
        ({"newsfabric_secret": ""}, "newsfabric_secret is missing or short"),
        ({"newsfabric_secret": "guessable"}, "newsfabric_secret is missing or short"),
        ({"newsfabric_bundle": "/nowhere.tar"}, "`make bundle` writes it"),
        ({"newsfabric_distributions": ["buster"]}, "supported: buster"),
        (
            {"newsfabric_least_disk_mib": dict.fromkeys(
                ("client", "core", "store", "retail", "proxy"), 10**9
            )},
            "MiB free below /var/lib",
        ),
    ],
)  # fmt: skip
def test_a_precheck_names_what_is_wrong_and_changes_nothing(
    fleet: Fleet, wrong: dict[str, object], error: str
) -> None:
    done = played(fleet, "site.yml", "--extra-vars", json.dumps(wrong))

    assert done.returncode != 0
    assert error in done.stdout
    assert sum(changes(done).values()) == 0
    assert not any(installed(fleet, machine.name) for machine in machines_of(6))


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        (
            "echo 'production oregon core' > /etc/newsfabric/place",
            'oregon-core-1 is already "production oregon core"',
        ),
        (
            "ln -sfn releases/9.0.0-0123456789ab /opt/newsfabric/current",
            "oregon-core-1 runs 9.0.0, from which there is no way to",
        ),
    ],
)
def test_a_machine_of_another_fabric_or_of_a_later_release_is_left_alone(
    fleet: Fleet, facts: str, error: str
) -> None:
    on(fleet, "oregon-core-1", f"mkdir -p /etc/newsfabric /opt/newsfabric && {facts}")

    done = played(fleet, "site.yml", "--extra-vars", "go_back=true")

    assert done.returncode != 0
    assert error in done.stdout
    assert sum(changes(done).values()) == 0


def test_one_run_names_all_that_is_wrong_on_all_machines(fleet: Fleet) -> None:
    other = "mkdir -p /etc/newsfabric && echo 'staging oregon core' > /etc/newsfabric/place"
    on(fleet, "oregon-core-1", other)
    on(fleet, "oregon-core-1", "sed -i s/localhost/nowhere/ /etc/hosts")
    on(fleet, "oregon-retail-2", "sed -i s/localhost/nowhere/ /etc/hosts")

    done = played(fleet, "precheck.yml")

    assert done.returncode != 0
    for name in (
        'oregon-core-1 is already "staging oregon core"',
        "on oregon-core-1 localhost is no name that resolves",
        "on oregon-retail-2 localhost is no name that resolves",
    ):
        assert done.stdout.count(name) == 1
    assert "on oregon-retail-1 localhost" not in done.stdout
    assert sum(changes(done).values()) == 0


def test_a_clock_that_is_a_minute_off_stops_it_before_anything_is_changed(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Machines have this machine's clock, so this one pretends another time.
    ahead = tmp_path / "date"
    ahead.write_text("#!/bin/sh\nexec /bin/date --date '60 seconds' \"$@\"\n")
    ahead.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    done = played(fleet, "site.yml")

    assert done.returncode != 0
    # Less the duration of the call.
    assert re.search(r"the clock of oregon-core-1 is -(60|[345]\d) s off", done.stdout)
    assert sum(changes(done).values()) == 0
    assert not any(installed(fleet, machine.name) for machine in machines_of(6))
