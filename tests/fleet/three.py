"""Machines that carry several hosts each, as in ``inventories/three-machines``: a fabric of twelve
hosts on three of the fleet's machines, and the requests of its tests."""

from __future__ import annotations

import dataclasses
import datetime
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from fleet import access
from fleet.fleet import Fleet
from fleet.image import mount_overlay, unmount
from fleet.plan import machine
from fleet.playbooks import ANSIBLE, PLAYBOOKS, command, environment
from operations.certificates.folder import opened
from tests.fleet.fabrics import TOPIC, FleetCrowd, played_on, plays_on, trusting

EXAMPLE: Final = ANSIBLE / "inventories/three-machines"
SITE: Final = "news.example.com"
MACHINES: Final = ("a", "b", "c", "d")
CARRIED: Final = ("a", "b", "c")
_LIFETIME: Final = datetime.timedelta(days=9)
_RENEW_BEFORE: Final = datetime.timedelta(days=1)
# As in inventories/fleet: all are on one machine, and small.
_SMALL: Final[dict[str, Any]] = {
    "newsfabric_least_disk_mib": dict.fromkeys(("store", "client", "core", "retail"), 512),
    "newsfabric_tolerate_missing_sysctls": True,
    "newsfabric_rabbitmq_disk_free": "50MB",
    "newsfabric_cassandra_heap_mib": 384,
    "newsfabric_cassandra_ring_delay_ms": 1000,
    "newsfabric_drain_seconds": 10,
    "newsfabric_prometheus_disk": "256MB",
}


def name_of(letter: str) -> str:
    """Return the fleet's name of the machine that the inventory calls ``letter``."""
    return f"oregon-machine-{MACHINES.index(letter) + 1}"


@dataclasses.dataclass
class Three:
    """The fabric on ``fleet``'s machines; ``inventory`` is a copy of the example's."""

    fleet: Fleet
    inventory: Path

    @property
    def _folder(self) -> Path:
        return self.inventory.parent

    def begin(self, suite: str, layers: Sequence[Path]) -> None:
        """Boot three machines, and write the playbooks' variables."""
        folders = self.fleet.folders
        # The machines aren't hosts of a fabric, so none of a fleet's sizes applies.
        notes = {"machines": [name_of("a")], "suite": suite, "port_base": 0}
        folders.notes.write_text(json.dumps(notes))
        self.fleet.boot([name_of(letter) for letter in CARRIED], new=False, suite=suite)
        self.inventory.parent.mkdir()
        self.inventory.write_text((EXAMPLE / "hosts.yml").read_text())
        (self._folder / "group_vars").symlink_to(EXAMPLE / "group_vars")
        self._certify()
        _pack(layers, self._folder / "debian.tar", self._folder / "packing")
        (self._folder / "hosts").write_text(
            "127.0.0.1 localhost\n"
            + "".join(
                f"{machine(name_of(letter)).address} {letter}.{SITE} readers-{letter}.{SITE}\n"
                for letter in MACHINES
            )
        )
        (self._folder / "ssh_config").write_text(
            "Host 10.*\n    StrictHostKeyChecking accept-new\n"
            f'    UserKnownHostsFile "{self._folder / "known_hosts"}"\n'
            + folders.ssh_config.read_text()
        )
        self.set_machines(CARRIED)

    def set_machines(self, letters: Sequence[str]) -> None:
        """Write the machines, and all else that the example leaves open."""
        folders = self.fleet.folders
        secret = folders.secret.read_text().strip()
        own = f"-F {self._folder / 'ssh_config'}"
        variables = _SMALL | {
            "newsfabric_machines": {
                letter: {
                    "address": machine(name_of(letter)).address,
                    "inside": f"10.9.0.{MACHINES.index(letter) + 1}",
                }
                for letter in letters
            },
            "machine_debian": str(self._folder / "debian.tar"),
            "newsfabric_certs": str(folders.certs),
            "newsfabric_site_certificate": str(folders.certs / f"issued/{SITE}/both.pem"),
            # There are no name servers.
            "newsfabric_frontdesk_urls": {},
            "newsfabric_secret": secret,
            "newsfabric_topics_file": str(folders.topics),
            "newsfabric_publisher_passwords": {access.PUBLISHER: self._password},
            "newsfabric_api_keys": [f"{access.PUBLISHER} {access.api_key(folders)}"],
            "newsfabric_token_keys_from": str(folders.top / "token-keys.pem"),
            "newsfabric_token_audience": "newsfabric",
            "newsfabric_token_issuer": "newsfabric-world",
            # The example's arguments, with the fleet's way to its machines.
            "ansible_ssh_common_args": (
                f"{own} {{{{ '-o ProxyUseFdpass=no -J root@' ~ newsfabric_machines[machine].address"
                " if machine is defined else '' }}"
            ),
            # Hosts of two fleets have the same addresses.
            "ansible_control_path": f"%(directory)s/{folders.namespace}-%%h",
        }
        (self._folder / "variables.yml").write_text(yaml.safe_dump(variables))

    def move(self, host: str, letter: str) -> None:
        """Name another machine for a host in the inventory."""
        before = self.inventory.read_text()
        line = next(line for line in before.splitlines() if f" {host}: {{" in line)
        after = before.replace(line, line.partition(", machine:")[0] + f", machine: {letter}}}")
        self.inventory.write_text(after)

    def plays(self, name: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run a playbook, which must succeed."""
        return plays_on(self._words(name, *options), environment(self.fleet.folders))

    def played(self, name: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run a playbook, and return its result."""
        return played_on(self._words(name, *options), environment(self.fleet.folders))

    def on(self, host: str, words: str) -> str:
        """Return the output of a command on a host, whether it fails or not; empty after 60 s."""
        inventory: dict[str, Any] = yaml.safe_load(self.inventory.read_text())
        variables = inventory["all"]["children"]["oregon"]["hosts"][host]
        jump = machine(name_of(variables["machine"])).address
        line = (
            *("ssh", "-F", str(self._folder / "ssh_config"), "-o", "ProxyUseFdpass=no"),
            *("-J", f"root@{jump}", f"root@{variables['ansible_host']}", words),
        )
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        except subprocess.TimeoutExpired:
            return ""
        return done.stdout

    def within(self, *words: str) -> tuple[str, ...]:
        """Return a command line that runs in the machines' network, and knows the site's names."""
        script = 'mount --bind "$0" /etc/hosts && exec "$@"'
        named = ("unshare", "--mount", "sh", "-c", script, str(self._folder / "hosts"))
        return self.fleet.network.within(*named, *words)

    def fetch(self, letter: str, path: str, *options: str, headers: str = "") -> str:
        """Return the https reply of one machine to a path of the site; empty without a reply.

        ``headers`` are their lines, which aren't in the command line.
        """
        words = ("curl", "--silent", "--max-time", "20", "--header", "@-", *options)
        done = subprocess.run(
            self.within(*words, f"https://{letter}.{SITE}{path}"),
            input=headers,
            env=trusting(self.fleet),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout

    def boxes(self, letter: str) -> int:
        """Return the number of boxes that the machine's frontdesk sends readers to."""
        document = self.fetch(letter, "/endpoints.json")
        return len(json.loads(document)["gateways"]) if document.startswith("{") else 0

    def headlines(self, letter: str) -> list[str]:
        """Return the last messages' headlines that a machine's frontdesk finds in the store."""
        found = json.loads(self.fetch(letter, f"/history?topic={TOPIC}&limit=100"))
        return [message["body"].get("headline", "") for message in found["messages"]]

    def published(self, letter: str, headline: str) -> int:
        """Publish over HTTP at a machine; return the status: 201 is a receipt."""
        headers = f"X-API-Key: {access.api_key(self.fleet.folders)}\nContent-Type: application/json"
        message = json.dumps({"topic": TOPIC, "body": {"headline": headline}})
        only = ("--output", "/dev/null", "--write-out", "%{http_code}")
        return int(self.fetch(letter, "/publish", *only, "--data", message, headers=headers))

    def disks(self, letter: str) -> set[str]:
        """Return the hosts whose disks a machine has."""
        words = access.ssh(self.fleet.folders, name_of(letter), "ls", "-A", "/var/lib/machines")
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        return set(done.stdout.split())

    def crowd(self, *, readers: int, per_second: float, first: str = "a") -> FleetCrowd:
        """Return readers over https, which reconnect elsewhere, and a publisher over AMQP that
        waits for each receipt; both begin at the machine ``first``."""
        letters = sorted(CARRIED, key=lambda letter: letter != first)
        user = f"{access.PUBLISHER}:{self._password}"
        urls = ",".join(f"amqps://{user}@{letter}.{SITE}:5671/%2F" for letter in letters)
        return FleetCrowd(
            self.fleet,
            ("oregon",),
            readers=readers,
            per_second=per_second,
            amqp=True,
            frontdesks=tuple(f"https://{letter}.{SITE}" for letter in letters),
            amqp_urls=urls,
            within=self.within,
        )

    @property
    def _password(self) -> str:
        (urls,) = access.amqp_urls(self.fleet.folders, [machine("oregon-client-1")]).values()
        return urls[0].partition("://")[2].partition("@")[0].partition(":")[2]

    def _words(self, name: str, *options: str) -> list[str]:
        variables = ("--extra-vars", f"@{self._folder / 'variables.yml'}", *options)
        return command(PLAYBOOKS / name, self.inventory, variables)

    def _certify(self) -> None:
        now = datetime.datetime.now(datetime.UTC)
        inventory: dict[str, Any] = yaml.safe_load(self.inventory.read_text())
        hosts = inventory["all"]["children"]["oregon"]["hosts"]
        frontdesks = [f"{letter}.{SITE}" for letter in MACHINES]
        of_site = [SITE, *frontdesks, *(f"readers-{frontdesk}" for frontdesk in frontdesks)]
        with opened(self.fleet.folders.certs) as certificates:
            certificates.init("fleet", now=now, lifetime=_LIFETIME)
            for names in (
                of_site,
                # Publishers reach client nodes by the machines' names.
                *(
                    [host, variables["ansible_host"], *(frontdesks if "-client-" in host else [])]
                    for host, variables in hosts.items()
                ),
            ):
                both = "-store-" in names[0]
                certificates.issue(
                    names,
                    ("server", "client") if both else ("server",),
                    now=now,
                    lifetime=_LIFETIME,
                    before=_RENEW_BEFORE,
                )


def _pack(layers: Sequence[Path], archive: Path, folder: Path) -> None:
    """Pack the image into one file, for machines that reach no mirror."""
    for part in ("upper", "work", "root"):
        (folder / part).mkdir(parents=True)
    mount_overlay(layers, folder / "upper", folder / "work", folder / "root")
    try:
        done = subprocess.run(
            ("tar", "--create", "--numeric-owner", "--file", archive, "-C", folder / "root", "."),
            check=False,
        )
        # 1: a file of the overlay changed while it was read; only its number of links did.
        assert done.returncode in (0, 1)
    finally:
        unmount(folder)
