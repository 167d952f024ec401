"""The requirements of this machine; all missing ones are named at once, with the remedy."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Final

_PROGRAMS: Final = {
    "systemd-nspawn": "systemd-container",
    "debootstrap": "debootstrap",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "setsid": "util-linux",
    "sysctl": "procps",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "mount": "mount",
}


def missing() -> list[str]:
    """Return all obstacles to a fleet, a line each; empty if there are none."""
    if sys.platform != "linux":
        return ["a fleet needs Linux: its machines share this machine's kernel"]
    found = []
    if os.geteuid() != 0:
        found.append("a fleet needs root, to mount disks and make networks: sudo make fleet")
    packages = {package for program, package in _PROGRAMS.items() if shutil.which(program) is None}
    if packages:
        found.append(f"missing programs: apt-get install {' '.join(sorted(packages))}")
    with open("/proc/filesystems") as kinds:
        if "\toverlay\n" not in kinds.read():
            found.append("the kernel has no overlay file system: modprobe overlay")
    return found
