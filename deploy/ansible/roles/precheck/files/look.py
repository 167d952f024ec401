"""Prints the facts of a host that precheck needs, as one JSON object. It changes nothing.

    look.py HOME VERSION NOW [ROOT]

HOME is newsfabric's folder, VERSION Cassandra's, NOW the Unix time of the machine that runs
Ansible. ROOT is another machine's root, for tests. A file that a power cut has left empty counts as
a missing file.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
from pathlib import Path

#: The plugins that brokers load (roles/rabbitmq/templates/enabled_plugins.j2), at most.
PLUGINS = (
    "rabbitmq_management",
    "rabbitmq_prometheus",
    "rabbitmq_shovel",
    "rabbitmq_shovel_management",
    "rabbitmq_auth_mechanism_ssl",
)


def read(file: Path) -> str:
    """Return the contents of the file, or nothing if there is none."""
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return ""


def found(root: Path, home: Path, version: str, now: int) -> dict[str, object]:
    """Return by name: free MiB, seconds that the clock is ahead, and earlier installations."""
    ours = root / "etc/newsfabric"
    room = os.statvfs(root / "var/lib")
    current = home / "current"
    fabric = read(ours / "fabric.json")
    return {
        "free_mib": room.f_bavail * room.f_frsize >> 20,
        "ahead_seconds": int(time.time()) - now,
        "name": read(root / "etc/hostname"),
        "place": read(ours / "place"),
        "secret_mark": read(ours / "secret-mark"),
        "image": read(ours / "image"),
        "tls": "amqps:" in fabric if fabric else None,
        # An image has a release, too, but none runs there.
        "release": current.readlink().name if current.is_symlink() else "",
        "serves": (home / "running").exists(),
        "cassandra": (root / "opt/cassandra" / version / "complete").exists(),
        "localhost": address_of("localhost"),
        **broker(root),
    }


def broker(root: Path) -> dict[str, object]:
    """Return RabbitMQ's version ("" without one), missing plugins, its name, its data's version.

    The data's version is MAJOR.MINOR of the RabbitMQ that wrote them, as roles/rabbitmq records it.
    """
    # One at most is whole: a package that is replaced leaves empty folders at worst.
    homes = sorted((root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/plugins"))
    settings = read(root / "etc/rabbitmq/rabbitmq-env.conf")
    name = re.search(r"^NODENAME=(\S+)$", settings, re.MULTILINE)
    return {
        "rabbitmq": homes[-1].parent.name.removeprefix("rabbitmq_server-") if homes else "",
        "rabbitmq_lacks": [each for each in PLUGINS if homes and not has(homes[-1], each)],
        "rabbitmq_name": name[1] if name else "",
        "rabbitmq_data": read(root / "var/lib/rabbitmq/mnesia/newsfabric-version"),
    }


def has(plugins: Path, name: str) -> bool:
    """Return whether a plugin is there, as a folder or a file of NAME-VERSION."""
    return any(plugins.glob(f"{name}-[0-9]*"))


def address_of(name: str) -> str:
    """Return the IPv4 address, or nothing if the host knows none."""
    try:
        return socket.gethostbyname(name)
    except OSError:
        return ""


def main() -> None:
    """Run; see the module's docstring."""
    home, version, now, *root = sys.argv[1:]
    machine = Path(*root or ["/"])
    seen = found(machine, machine / home.lstrip("/"), version, int(now))
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main()
