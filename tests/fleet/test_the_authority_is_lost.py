"""The page of docs/operations about an authority that is lost, followed step by step."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509

from fleet import access
from fleet.fleet import Fleet
from fleet.plan import machines_of
from tests.fleet.conftest import SUITE, fleet_in
from tests.fleet.fabrics import FleetCrowd, changes, on, played, plays, publish

pytestmark = [pytest.mark.fleet, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(3600)]


def certs(fleet: Fleet, *words: str) -> None:
    """Run a command of ``newsfabric certs`` in the fleet's folder."""
    program = Path(sys.executable).with_name("newsfabric")
    subprocess.run([program, "certs", *words, "--folder", fleet.folders.certs], check=True)


def trusted(fleet: Fleet, name: str) -> list[x509.Certificate]:
    """Return the authorities that a machine trusts."""
    output = on(fleet, name, "cat /etc/newsfabric/tls/ca.pem")
    return x509.load_pem_x509_certificates(output.encode())


def look_again(fleet: Fleet) -> None:
    """Have brokers and store nodes read their certificates now."""
    for machine in fleet.members():
        if machine.role == "store":
            on(fleet, machine.name, "nodetool reloadssl")
        else:
            on(fleet, machine.name, "rabbitmqctl --quiet eval 'ssl:clear_pem_cache().'")


def test_another_authority_takes_the_place_of_one_that_is_lost_with_its_folder(
    layers: Path, tmp_path: Path, port_base: int
) -> None:
    with fleet_in(tmp_path / "a fleet's folder", layers) as fleet:
        fleet.up(6, suite=SUITE, port_base=port_base)
        access.issue_certificates(fleet.folders, fleet.members())
        plays(fleet, "site.yml")
        refused = played(fleet, "recover-certificates.yml")
        assert "has an authority: nothing is brought there" in refused.stdout
        [lost] = trusted(fleet, "oregon-core-1")

        shutil.rmtree(fleet.folders.certs)
        plays(fleet, "recover-certificates.yml")
        assert [lost] == x509.load_pem_x509_certificates(
            (fleet.folders.certs / "ca.pem").read_bytes()
        )
        certs(fleet, "rotate", "trust")
        plays(fleet, "site.yml")
        look_again(fleet)
        assert len(trusted(fleet, "oregon-store-1")) == 2
        # Its publisher trusts both from the start, as all have to before the next step.
        with FleetCrowd(fleet, ("oregon",), readers=200, per_second=5) as crowd:
            certs(fleet, "rotate", "sign")
            certs(fleet, "renew")
            plays(fleet, "site.yml")
            look_again(fleet)
            certs(fleet, "rotate", "drop")
            plays(fleet, "site.yml")
            look_again(fleet)
            plays(fleet, "rolling-restart.yml")
        assert crowd.noticed_nothing, crowd.report
        for machine in machines_of(6):
            assert lost not in trusted(fleet, machine.name)
        assert publish(fleet, "by another authority") == 201
        assert set(changes(plays(fleet, "site.yml")).values()) == {0}
