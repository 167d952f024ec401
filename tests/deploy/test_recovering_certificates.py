"""A folder of certificates that is lost begins anew with what hosts have of it."""

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
from tests.deploy.unit_templates import ROLES

PLAYBOOK: Final = ROLES.parent / "playbooks" / "recover-certificates.yml"
HOSTS: Final = ("oregon-core-1", "oregon-store-1")
DAY: Final = datetime.timedelta(days=1)


class Fabric:
    """Two hosts, each with its files in a folder of this machine, and the lost folder beside it."""

    def __init__(self, playbook: str, folder: Path) -> None:
        self._playbook = playbook
        self._folder = folder
        self.lost = folder / "lost"
        self.certs = folder / "certs"
        made(self.lost, *HOSTS, "router.oregon")
        for host in HOSTS:
            self.give(host, host, "")
        self.give(HOSTS[0], "router.oregon", "router.oregon.")

    def host(self, name: str) -> Path:
        return self._folder / "hosts" / name

    def give(self, host: str, certificate: str, prefix: str, of: Path | None = None) -> None:
        """What role ``base`` has put onto a host; of another folder if that is said."""
        there = self.host(host)
        there.mkdir(parents=True, exist_ok=True)
        source = of or self.lost
        if not prefix:
            shutil.copy(source / "ca.pem", there / "ca.pem")
        for kind in ("cert", "key"):
            shutil.copy(
                source / "issued" / certificate / f"{kind}.pem", there / f"{prefix}{kind}.pem"
            )

    def recover(self) -> subprocess.CompletedProcess[str]:
        hosts = {name: {"newsfabric_tls_folder": str(self.host(name))} for name in HOSTS}
        inventory = self._folder / "hosts.yml"
        inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
        told = {
            "ansible_connection": "local",
            "ansible_become": False,
            "ansible_python_interpreter": sys.executable,
            "newsfabric_command": str(Path(sys.executable).with_name("newsfabric")),
            "newsfabric_certs": str(self.certs),
        }
        done = subprocess.run(
            [self._playbook, "-i", str(inventory), str(PLAYBOOK), "-e", json.dumps(told)],
            cwd=ROLES.parent,
            capture_output=True,
            text=True,
        )
        done.stdout = " ".join(done.stdout.replace("''", "'").split())
        return done


def made(path: Path, *names: str) -> None:
    """A folder with an authority and certificates."""
    now = datetime.datetime.now(datetime.UTC)
    with opened(path) as folder:
        folder.init("ours", now=now, lifetime=3650 * DAY)
        for name in names:
            folder.issue([name], ["server"], now=now, lifetime=90 * DAY, before=30 * DAY)


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Each file with what is in it and who may read it, but for the authority's key."""
    return {
        str(file.relative_to(folder)): (file.read_bytes(), file.stat().st_mode & 0o777)
        for file in folder.rglob("*")
        if file.is_file() and (file.name, file.parents[1].name) != ("key.pem", "authorities")
    }


@pytest.fixture
def fabric(playbook: str, tmp_path: Path) -> Fabric:
    return Fabric(playbook, tmp_path)


def test_all_comes_back_but_the_authoritys_key(fabric: Fabric) -> None:
    done = fabric.recover()
    assert done.returncode == 0, done.stdout
    assert files(fabric.certs) == files(fabric.lost)
    assert not [*fabric.certs.glob("authorities/*/key.pem")]
    again = fabric.recover()
    assert again.returncode != 0
    assert "has an authority: nothing is brought there" in again.stdout


def test_a_host_that_trusts_somebody_else_is_named_and_nothing_is_brought(
    fabric: Fabric, tmp_path: Path
) -> None:
    made(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "ca.pem", fabric.host(HOSTS[1]) / "ca.pem")
    done = fabric.recover()
    assert done.returncode != 0
    assert "hosts don't trust the same authorities" in done.stdout
    assert all(name in done.stdout for name in HOSTS)
    assert not fabric.certs.exists()


def test_a_host_brings_no_certificate_that_the_authority_has_not_signed(
    fabric: Fabric, tmp_path: Path
) -> None:
    made(tmp_path / "other", "frontdesk.oregon", HOSTS[1])
    fabric.give(HOSTS[0], HOSTS[1], f"{HOSTS[1]}.", of=tmp_path / "other")
    done = fabric.recover()
    assert done.returncode == 0, done.stdout
    assert files(fabric.certs) == files(fabric.lost)

    shutil.rmtree(fabric.certs)
    fabric.give(HOSTS[0], "frontdesk.oregon", "frontdesk.oregon.", of=tmp_path / "other")
    done = fabric.recover()
    assert done.returncode != 0
    assert "issued/frontdesk.oregon/cert.pem: " in done.stdout
