"""A scaler with the driver ``command`` makes a box for a crowd on the fleet, and takes it back."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.fleet import Fleet
from fleet.folders import CHECKOUT
from fleet.plan import machine
from tests.fleet.fabrics import FleetCrowd, boxes, changes, on, plays, until

pytestmark = [pytest.mark.fleet, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(3600)]

#: The capacity that a box reports. 100 readers at headroom 0.3: 70 a box.
SMALL_BOXES = ("--extra-vars", "newsfabric_capacity=100")
#: A machine boots within seconds; a playbook makes it a box, on two busy cores within two minutes.
#: There is one zone instead of three, so no room for a lost zone is kept.
PLAN = (
    *("--per-box", "100", "--headroom", "0.3", "--zones", "1", "--least", "2", "--most", "3"),
    *("--boot", "5m", "--drain", "15s", "--calm", "30s"),
)


@contextlib.contextmanager
def scaler(fleet: Fleet, folder: Path) -> Iterator[Callable[[], list[str]]]:
    """Run a scaler of oregon on this machine, which can boot machines, in the fleet's network.

    The function that it yields returns the fleet's boxes while the scaler runs.
    """
    fabric = folder / "fabric.json"
    output = on(fleet, "oregon-core-1", "cat /etc/newsfabric/fabric.json")
    # Machines know each other's names; this machine doesn't.
    fabric.write_text(re.sub(r"(?<=//)[a-z]+-[a-z]+-\d+", lambda m: machine(m[0]).address, output))
    secret = fleet.folders.secret.read_text().strip()
    password = folder / "password"
    password.write_text(hashlib.sha256(f"{secret}:scaler.oregon".encode()).hexdigest())
    password.chmod(0o600)
    program = ("env", f"PYTHONPATH={CHECKOUT / 'deploy'}", sys.executable, "-m", "fleet")
    growing = ("boxes", "--scale-out", *SMALL_BOXES, "oregon")
    driver = shlex.join([*program, "--folder", str(fleet.folders.top), *growing])
    words = fleet.network.within(
        *(sys.executable, "-m", "wholesale", "scaler", "--name", "a-scaler", "--region", "oregon"),
        *("--fabric", str(fabric), "--port", "0", *PLAN, "--driver", "command"),
        *("--command", driver),
    )
    login = {
        "NEWSFABRIC_AMQP_USERNAME": "scaler.oregon",
        "NEWSFABRIC_AMQP_PASSWORD_FILE": str(password),
    }
    with (
        (folder / "scaler.log").open("w") as log,
        subprocess.Popen(words, cwd=CHECKOUT, env=os.environ | login, stderr=log) as process,
    ):

        def members() -> list[str]:
            assert process.poll() is None, (folder / "scaler.log").read_text()
            return [member.name for member in fleet.members() if member.role == "retail"]

        try:
            yield members
        finally:
            process.terminate()
            process.wait(60)


def test_a_box_is_booted_for_a_crowd_and_drained_after_it(fleet: Fleet, tmp_path: Path) -> None:
    plays(fleet, "site.yml", *SMALL_BOXES)
    assert boxes(fleet, "oregon") == 2
    with scaler(fleet, tmp_path) as members:
        # 150 readers are more than 2 · 70.
        with FleetCrowd(fleet, ("oregon", "oregon"), readers=150, per_second=5) as crowd:
            until("a machine more", lambda: "oregon-retail-3" in members())
            until("readers are sent there", lambda: boxes(fleet, "oregon") == 3)
        assert crowd.noticed_nothing, crowd.report

        # Readers are on all three boxes, so some of them have to move.
        with FleetCrowd(fleet, ("oregon", "oregon"), readers=60, per_second=5) as few:
            until("a machine less", lambda: len(members()) == 2, 600)
        assert few.missed_nothing, few.report
        assert 0 < few.report["left"] < 60
    assert boxes(fleet, "oregon") == 2
    # Now Prometheus drops the box that left, and the core's brokers delete its login.
    again = plays(fleet, "site.yml", *SMALL_BOXES)
    assert {name for name, count in changes(again).items() if count} <= {
        "oregon-client-1",
        "oregon-core-1",
    }
