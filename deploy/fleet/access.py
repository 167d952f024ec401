"""Access to the machines: ssh's configuration, the inventory for Ansible, tokens, hosts.json.

``ssh -F .fleet/ssh_config NAME`` works from the host, and so do all programs that use ssh.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from fleet.errors import FleetError
from fleet.folders import CHECKOUT, Folders
from fleet.network import Network
from fleet.plan import REGIONS, ROLES, Machine, possible_machines
from fleet.run import end_of, run
from localfabric.world.issuer import issue, make_keys
from localfabric.world.paths import Paths
from localfabric.world.state import write_private
from operations.certificates.folder import opened

_CONNECT: Final = Path(__file__).with_name("connect.py")
#: The publisher on the fleet, of all topics: a user of client nodes, and owner of the API key.
PUBLISHER: Final = "wire"
_POLL: Final = 0.3
_LIFETIME: Final = datetime.timedelta(days=90)
_RENEW_BEFORE: Final = datetime.timedelta(days=30)
_ASK_SECONDS: Final = 10.0
# Until then a machine that was started may not be visible yet.
_APPEARS_SECONDS: Final = 5.0


def make_key(folders: Folders) -> None:
    """Make the ssh key that opens all machines, if there is none yet."""
    if not folders.key.exists():
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "fleet", "-f", folders.key)


def write_ssh_config(folders: Folders, network: Network, host_keys: Mapping[str, str]) -> None:
    """Write ssh's configuration, and the known host keys of the machines."""
    connect = shlex.join([sys.executable, str(_CONNECT), str(network.path)])
    hosts = "".join(
        f"Host {machine.name}\n    HostName {machine.address}\n    HostKeyAlias {machine.name}\n"
        for machine in possible_machines()
    )
    folders.ssh_config.write_text(
        f"# Written by the fleet.\n{hosts}Host *\n"
        f"    User root\n"
        f'    IdentityFile "{folders.key}"\n'
        f"    IdentitiesOnly yes\n"
        f'    UserKnownHostsFile "{folders.known_hosts}"\n'
        f"    StrictHostKeyChecking yes\n"
        f"    ConnectTimeout 10\n"
        f"    ServerAliveInterval 5\n"
        f"    ProxyUseFdpass yes\n"
        f"    ProxyCommand {connect} %h %p\n"
    )
    lines = [f"{name} {' '.join(key.split()[:2])}\n" for name, key in sorted(host_keys.items())]
    folders.known_hosts.write_text("".join(lines))


def ssh(folders: Folders, name: str, *command: str) -> list[str]:
    """Return the command line that runs ``command`` on a machine, or a shell."""
    return ["ssh", "-F", str(folders.ssh_config), name, *command]


def wait_until_up(
    folders: Folders, machine: Machine, seconds: float, runs: Callable[[], bool]
) -> str:
    """Wait until a machine has booted; return systemd's state then: "running" or "degraded".

    FleetError if it isn't reached in time, or if ``runs`` returns False: it has ended.
    """
    began = time.monotonic()
    while (state := _state(folders, machine)) not in ("running", "degraded"):
        waited = time.monotonic() - began
        if waited >= seconds:
            raise FleetError(
                f"{machine.name} has not booted within {seconds:g} s ({state})\n"
                f"{_asked(folders, machine, 'systemctl', 'list-jobs')}\n"
                f"{end_of(folders.console(machine.name))}"
            )
        if waited >= _APPEARS_SECONDS and not runs():
            raise FleetError(
                f"{machine.name} ended while it booted\n{end_of(folders.console(machine.name))}"
            )
        time.sleep(_POLL)
    return state


def _state(folders: Folders, machine: Machine) -> str:
    """Return the present state of a machine's systemd, or the reason why it can't be asked."""
    return _asked(folders, machine, "systemctl", "is-system-running")


def _asked(folders: Folders, machine: Machine, *command: str) -> str:
    """Return the output of a command on a machine, or the reason why it can't be run there."""
    try:
        done = subprocess.run(
            ssh(folders, machine.name, *command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ASK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_ASK_SECONDS:g} s"
    return done.stdout.strip() or done.stderr.strip()[-300:]


def inventory(folders: Folders, machines: Iterable[Machine]) -> dict[str, Any]:
    """Return the machines as an Ansible inventory script does: a group a role, a group a region."""
    listed = list(machines)
    groups: dict[str, Any] = {
        role: {"hosts": [m.name for m in listed if m.role == role]} for role in ROLES
    }
    for region in REGIONS:
        groups[region] = {"hosts": [m.name for m in listed if m.region == region]}
    groups["_meta"] = {"hostvars": {m.name: _host_variables(folders, m) for m in listed}}
    return groups


def write_hosts(
    folders: Folders, machines: Iterable[Machine], frontdesks: Mapping[str, str]
) -> None:
    """Write ``hosts.json``, by which `newsfabric status`, `chaos`, `top`, `tail` know the fleet."""
    environment = ["env", f"PYTHONPATH={CHECKOUT / 'deploy'}"]
    fleet = [*environment, sys.executable, "-m", "fleet", "--folder", str(folders.top)]
    verbs = {"cut": "cut", "heal": "heal", "kill": "pull-plug", "boot": "boot"}
    document = {
        "ssh": ["ssh", "-F", str(folders.ssh_config)],
        "hosts": [{"name": m.name, "place": m.region, "part": m.role} for m in machines],
        "frontdesks": frontdesks,
        "commands": {verb: [*fleet, word] for verb, word in verbs.items()},
    }
    new = folders.hosts.with_suffix(".new")
    new.write_text(json.dumps(document, indent=1) + "\n")
    new.rename(folders.hosts)


def make_token_keys(folders: Folders) -> None:
    """Make the key pair of the fleet's own tokens, if there is none yet."""
    paths = Paths(state=folders.top)
    if not paths.token_keys.exists():
        make_keys(paths)


def make_secret(folders: Folders) -> None:
    """Make the secret that the fabric's passwords are derived from, if there is none yet."""
    if not folders.secret.exists():
        write_private(folders.secret, secrets.token_hex(32))


def write_topics(folders: Folders) -> None:
    """Write the checkout's feeds, to which only :data:`PUBLISHER` may publish."""
    feeds = (CHECKOUT / "topics.toml").read_text()
    folders.topics.write_text(f'{feeds}\n[[publisher]]\napp_id = "{PUBLISHER}"\ntopics = ["#"]\n')


def renew_secret(folders: Folders) -> None:
    """Make another secret; the present one is kept beside it, for rotate-secrets.yml.

    FleetError if no fleet is up, or if the last rotation hasn't ended: two former secrets would be
    one too many.
    """
    if not folders.secret.exists():
        raise FleetError("no fleet is up: `make fleet` starts one")
    if folders.former_secret.exists():
        raise FleetError(
            "a former secret is still good: end that rotation with rotate-secrets.yml, then "
            "`fleet forget-secret`"
        )
    write_private(folders.former_secret, folders.secret.read_text().strip())
    write_private(folders.secret, secrets.token_hex(32))


def forget_secret(folders: Folders) -> None:
    """Delete the former secret: passwords derived from it stop working after site.yml."""
    folders.former_secret.unlink(missing_ok=True)


def issue_certificates(folders: Folders, machines: Iterable[Machine]) -> None:
    """Make an authority, and a certificate for each machine without one: TLS from now on."""
    now = datetime.datetime.now(datetime.UTC)
    with opened(folders.certs) as certificates:
        certificates.init("fleet", now=now, lifetime=_LIFETIME)
        for machine in machines:
            certificates.issue(
                # A board's forward is a port of this machine.
                [machine.name, machine.address, *(["127.0.0.1"] if machine.role == "core" else [])],
                # Store nodes authenticate to each other with theirs.
                ("server", "client") if machine.role == "store" else ("server",),
                now=now,
                lifetime=_LIFETIME,
                before=_RENEW_BEFORE,
            )


def operator_token(folders: Folders, user: str, seconds: float) -> str:
    """Return a token that opens the boards. FleetError if no fleet is up."""
    if not folders.secret.exists():
        raise FleetError("no fleet is up: `make fleet` starts one")
    return issue(Paths(state=folders.top), user, (), seconds, operator=True)


def api_key(folders: Folders, *, former: bool = False) -> str:
    """Return the key of `newsfabric_api_keys`, with which frontdesks accept messages over HTTP.

    ``former``: the key before :func:`renew_secret`. FleetError if there is none.
    """
    kept = folders.former_secret if former else folders.secret
    if not kept.exists():
        raise FleetError(
            "there is no former secret" if former else "no fleet is up: `make fleet` starts one"
        )
    secret = kept.read_text().strip()
    return hashlib.sha256(f"{secret}:api-key".encode()).hexdigest()


def amqp_urls(folders: Folders, machines: Iterable[Machine]) -> dict[str, list[str]]:
    """Return the AMQP URLs for :data:`PUBLISHER`, with its login: the client nodes of each region.

    FleetError if no fleet is up.
    """
    if not folders.secret.exists():
        raise FleetError("no fleet is up: `make fleet` starts one")
    secret = folders.secret.read_text().strip()
    password = hashlib.sha256(f"{secret}:publisher.{PUBLISHER}".encode()).hexdigest()
    scheme, port = ("amqps", 5671) if folders.certs.exists() else ("amqp", 5672)
    urls: dict[str, list[str]] = {}
    for machine in machines:
        if machine.role == "client":
            url = f"{scheme}://{PUBLISHER}:{password}@{machine.address}:{port}/%2F"
            urls.setdefault(machine.region, []).append(url)
    return urls


def _host_variables(folders: Folders, machine: Machine) -> dict[str, str]:
    return {
        "ansible_host": machine.name,
        "ansible_ssh_common_args": f"-F {shlex.quote(str(folders.ssh_config))}",
        # Machines of two fleets have the same names: a kept connection must belong to one fleet.
        "ansible_control_path": f"%(directory)s/{folders.namespace}-%%h",
        "ansible_python_interpreter": "/usr/bin/python3",
        "newsfabric_address": machine.address,
        "zone": machine.zone,
    }
