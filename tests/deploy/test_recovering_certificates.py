"""A lost folder of certificates is made again from the hosts' files."""

from __future__ import annotations

import datetime
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml

from operations.certificates.folder import opened
from operations.certificates.making import Role
from tests.deploy.unit_templates import ROLES

pytestmark = pytest.mark.slow

PLAYBOOK: Final = ROLES.parent / "playbooks" / "recover-certificates.yml"
HOSTS: Final = ("oregon-core-1", "oregon-store-1")
DAY: Final = datetime.timedelta(days=1)


class CertificateHosts:
    """Two hosts, each with its files in a folder of this machine, and the lost folder."""

    def __init__(self, playbook: str, folder: Path) -> None:
        self._playbook = playbook
        self._folder = folder
        self.lost = folder / "lost"
        self.certs = folder / "certs"
        self.names: dict[str, list[str]] = {}
        made(self.lost, *HOSTS, "router.oregon")
        for host in HOSTS:
            self.give(host, host, "")
        self.give(HOSTS[0], "router.oregon", "router.oregon.")

    def host(self, name: str) -> Path:
        return self._folder / "hosts" / name

    def give(self, host: str, certificate: str, prefix: str, of: Path | None = None) -> None:
        """Copy the files that role ``base`` copies to a host, from the lost folder or ``of``."""
        there = self.host(host)
        there.mkdir(parents=True, exist_ok=True)
        source = of or self.lost
        if not prefix:
            shutil.copy(source / "ca.pem", there / "ca.pem")
        for kind in ("cert", "key"):
            shutil.copy(
                source / "issued" / certificate / f"{kind}.pem", there / f"{prefix}{kind}.pem"
            )

    def recover(self, *more: str, **text: str) -> subprocess.CompletedProcess[str]:
        hosts = {
            name: {
                "newsfabric_tls_folder": str(self.host(name)),
                "newsfabric_certificate_names": self.names.get(name, []),
            }
            for name in HOSTS
        }
        groups = {
            "oregon": dict.fromkeys(HOSTS),
            "core": {HOSTS[0]: None},
            "store": {HOSTS[1]: None},
        }
        children = {name: {"hosts": members} for name, members in groups.items()}
        inventory = self._folder / "hosts.yml"
        inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts, "children": children}}))
        defaults = self._folder / "group_vars" / "all.yml"
        defaults.parent.mkdir(exist_ok=True)
        if not defaults.exists():
            defaults.symlink_to(ROLES.parent / "group_vars" / "all.yml")
        variables = {
            "ansible_connection": "local",
            "ansible_become": False,
            "ansible_python_interpreter": sys.executable,
            "newsfabric_command": str(Path(sys.executable).with_name("newsfabric")),
            "newsfabric_certs": str(self.certs),
            "newsfabric_regions": ["oregon"],
            **text,
        }
        done = subprocess.run(
            [
                self._playbook,
                "-i",
                str(inventory),
                str(PLAYBOOK),
                "-e",
                json.dumps(variables),
                *more,
            ],
            cwd=ROLES.parent,
            capture_output=True,
            text=True,
        )
        done.stdout = " ".join(done.stdout.replace("''", "'").split())
        return done


def made(path: Path, *names: str) -> None:
    """Make a folder with an authority and certificates."""
    now = datetime.datetime.now(datetime.UTC)
    with opened(path) as folder:
        folder.init("ours", now=now, lifetime=3650 * DAY)
    for name in names:
        issued(path, name)


def issued(path: Path, *names: str) -> None:
    """Issue one certificate; a user's name has a dot."""
    now = datetime.datetime.now(datetime.UTC)
    role: Role = "client" if "." in names[0] else "server"
    with opened(path) as folder:
        folder.issue(names, [role], now=now, lifetime=90 * DAY, before=30 * DAY)


def fingerprint(folder: Path) -> str:
    """Return the fingerprint of the folder's authority, by openssl."""
    command = [
        "openssl",
        "x509",
        "-in",
        str(folder / "ca.pem"),
        "-noout",
        "-fingerprint",
        "-sha256",
    ]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return output.strip().partition("=")[2].replace(":", "").lower()


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return each file's content and mode, except the authority's key."""
    return {
        str(file.relative_to(folder)): (file.read_bytes(), file.stat().st_mode & 0o777)
        for file in folder.rglob("*")
        if file.is_file() and (file.name, file.parents[1].name) != ("key.pem", "authorities")
    }


@pytest.fixture
def fabric(playbook: str, tmp_path: Path) -> CertificateHosts:
    return CertificateHosts(playbook, tmp_path)


def test_all_comes_back_but_the_authoritys_key(fabric: CertificateHosts) -> None:
    done = fabric.recover()
    assert done.returncode == 0, done.stdout
    assert files(fabric.certs) == files(fabric.lost)
    assert not [*fabric.certs.glob("authorities/*/key.pem")]
    again = fabric.recover()
    assert again.returncode != 0
    assert "has an authority: nothing is brought there" in again.stdout


def test_a_host_that_trusts_somebody_else_is_named_and_nothing_is_brought(
    fabric: CertificateHosts, tmp_path: Path
) -> None:
    made(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "ca.pem", fabric.host(HOSTS[1]) / "ca.pem")
    done = fabric.recover()
    assert done.returncode != 0
    ours, theirs = fingerprint(fabric.lost), fingerprint(tmp_path / "other")
    assert (
        "hosts don't trust the same authorities, so it isn't known which to believe: "
        f"{ours} by {HOSTS[0]}; {theirs} by {HOSTS[1]} (SHA-256)"
    ) in done.stdout
    assert not fabric.certs.exists()
    assert "PRIVATE KEY" not in done.stdout


def test_another_authority_than_the_one_named_is_refused(fabric: CertificateHosts) -> None:
    ours = fingerprint(fabric.lost)
    done = fabric.recover(authority="0" * 64)
    assert done.returncode != 0
    assert f"it has the authorities {ours}, and {'0' * 64} were named" in done.stdout
    assert not fabric.certs.exists()


def test_a_part_of_the_hosts_is_asked_only_if_the_authority_is_named(
    fabric: CertificateHosts,
) -> None:
    limited = ("--limit", HOSTS[0])
    done = fabric.recover(*limited)
    assert done.returncode != 0
    assert f"{HOSTS[1]} isn't asked, so it isn't known whether all trust" in done.stdout
    ours = fingerprint(fabric.lost)
    done = fabric.recover(*limited, authority=ours)
    assert done.returncode == 0, done.stdout
    assert f"SHA-256 {ours}" in done.stdout
    issued = {path.name for path in (fabric.certs / "issued").iterdir()}
    assert issued == {HOSTS[0], "router.oregon"}


def test_certificates_that_the_inventory_does_not_give_a_host_stay_there(
    fabric: CertificateHosts, tmp_path: Path
) -> None:
    made(tmp_path / "other", HOSTS[1], "cms")
    for name in (HOSTS[1], "cms"):
        fabric.give(HOSTS[0], name, f"{name}.", of=tmp_path / "other")
    fabric.give(HOSTS[1], "router.oregon", "router.oregon.")
    done = fabric.recover()
    assert done.returncode == 0, done.stdout
    assert files(fabric.certs) == files(fabric.lost)


def test_a_host_brings_no_name_that_it_has_not_by_the_inventory(fabric: CertificateHosts) -> None:
    """As a host would that an attacker with the authority's key has taken."""
    issued(fabric.lost, "oregon-store-1", "10.0.0.31", "oregon-core-1")
    fabric.give(HOSTS[1], HOSTS[1], "")
    done = fabric.recover()
    assert done.returncode != 0
    assert (
        f"{HOSTS[1]} shows as {HOSTS[1]}'s a certificate that isn't: it names 10.0.0.31, "
        "oregon-core-1, which it isn't by the inventory"
    ) in done.stdout
    assert not fabric.certs.exists()

    fabric.names = {HOSTS[1]: ["10.0.0.31", "oregon-core-1"]}
    done = fabric.recover()
    assert done.returncode == 0, done.stdout
    assert files(fabric.certs) == files(fabric.lost)


def test_a_host_brings_no_certificate_that_the_authority_has_not_signed(
    fabric: CertificateHosts, tmp_path: Path
) -> None:
    made(tmp_path / "other", "frontdesk.oregon")
    fabric.give(HOSTS[0], "frontdesk.oregon", "frontdesk.oregon.", of=tmp_path / "other")
    done = fabric.recover()
    assert done.returncode != 0
    assert f"{HOSTS[0]} shows as frontdesk.oregon's a certificate that isn't: " in done.stdout
    assert "no trusted authority stands behind it" in done.stdout
    assert not fabric.certs.exists()
