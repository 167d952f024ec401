"""Six machines with certificates: all speak TLS only, also while the authority is replaced."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from fleet import access
from fleet.fleet import Fleet
from fleet.plan import machines_of
from tests.fleet.fabrics import FleetCrowd, changes, headlines, on, plays, publish, until

pytestmark = [pytest.mark.fleet, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(3600)]

#: A machine, a TLS port, and the port that would be plain without certificates.
PORTS = (
    ("oregon-client-1", 5671, 5672),
    ("oregon-core-1", 5671, 5672),
    ("tokyo-proxy-1", 5671, 5672),
    # The management API.
    ("oregon-core-1", 15671, 15672),
    # The frontdesk.
    ("oregon-core-1", 8080, 8080),
    # The relay of metrics.
    ("oregon-core-1", 9106, 9106),
    ("oregon-store-1", 9042, 9042),
)


def shown(fleet: Fleet, name: str, port: int) -> str:
    """Return the fingerprint of the certificate that a port shows."""
    words = f"openssl s_client -connect {name}:{port} </dev/null 2>/dev/null"
    output = on(fleet, "oregon-core-1", f"{words} | openssl x509 -noout -fingerprint -sha256")
    return output.strip().rpartition("=")[2].replace(":", "").lower()


def issued(fleet: Fleet, name: str) -> str:
    """Return the fingerprint of the certificate that a machine should have."""
    file = fleet.folders.certs / "issued" / name / "cert.pem"
    return x509.load_pem_x509_certificate(file.read_bytes()).fingerprint(hashes.SHA256()).hex()


def speaks_plainly(fleet: Fleet, name: str, port: int) -> bool:
    """Return whether the port replies without TLS: AMQP, HTTP, or Cassandra's protocol."""
    text = r"AMQP\0\0\11\1" if port == 5672 else r"GET /overview HTTP/1.0\r\n\r\n"
    if port == 9042:
        # OPTIONS of protocol v5.
        text = r"\5\0\0\0\5\0\0\0\0"
    ask = f"exec 3<>/dev/tcp/{name}/{port}; printf '{text}' >&3"
    probe = f"{ask}; timeout 5 head -c 4 <&3 | od -An -tx1"
    output = on(fleet, "oregon-core-1", f'bash -c "{probe}" 2>/dev/null').strip()
    # A TLS alert begins with 15.
    return output != "" and not output.startswith("15")


def rotate_authority(fleet: Fleet, step: str) -> None:
    """Take a step of docs/certificates.md."""
    words = [Path(sys.executable).with_name("newsfabric"), "certs", "rotate", step]
    subprocess.run([*words, "--folder", fleet.folders.certs], check=True)


def test_a_fabric_with_certificates_speaks_tls_alone_and_gets_another_authority(
    fleet: Fleet,
) -> None:
    access.issue_certificates(fleet.folders, fleet.members())
    plays(fleet, "site.yml")
    assert set(changes(plays(fleet, "site.yml")).values()) == {0}
    assert publish(fleet, "over TLS") == 201
    until("it is in the store", lambda: "over TLS" in headlines(fleet, "oregon"), 20)
    assert speaks_plainly(fleet, "oregon-store-1", 22), "sshd says its name first"
    for name, port, plain in PORTS:
        assert shown(fleet, name, port) == issued(fleet, name)
        assert not speaks_plainly(fleet, name, plain), (name, plain)

    before = {machine.name: issued(fleet, machine.name) for machine in machines_of(6)}
    rotate_authority(fleet, "trust")
    plays(fleet, "site.yml")
    # The crowd's publisher trusts both from the start, as all must before the next step.
    with FleetCrowd(fleet, ("oregon",), readers=200, per_second=5) as crowd:
        rotate_authority(fleet, "sign")
        access.renew_secret(fleet.folders)
        # Each certificate is due, since the former authority signed it.
        plays(fleet, "rotate-secrets.yml")
    assert crowd.noticed_nothing, crowd.report
    after = {machine.name: issued(fleet, machine.name) for machine in machines_of(6)}
    assert not {*before.values()} & {*after.values()}
    for name, port, _plain in PORTS:
        # Cassandra reads its files every ten minutes.
        wait = 700 if port == 9042 else 0
        until(
            f"{name} shows its new one at {port}",
            lambda name=name, port=port: shown(fleet, name, port) == after[name],
            wait,
        )
