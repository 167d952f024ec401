"""Says what precheck must know of a host, as one JSON object. It changes nothing.

    look.py HOME VERSION NOW [ROOT]

HOME is newsfabric's folder, VERSION Cassandra's, NOW the Unix time of the machine that runs
Ansible. ROOT is another machine's root, for tests. A file that a power cut has left empty says no
more than one that isn't there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def read(file: Path) -> str:
    """What the file has, or nothing if there is none."""
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return ""


def found(root: Path, home: Path, version: str, now: int) -> dict[str, object]:
    """By name: MiB that are free, seconds that the clock is ahead, and what was here before."""
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
    }


def main() -> None:
    """See the module's docstring."""
    home, version, now, *root = sys.argv[1:]
    machine = Path(*root or ["/"])
    seen = found(machine, machine / home.lstrip("/"), version, int(now))
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main()
