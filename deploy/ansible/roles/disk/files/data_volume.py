#!/usr/bin/env python3
"""The data volume of a host: the choice of its disk, and its file system.

The volume is the disk of the given model that has our label; otherwise the only empty disk of that
model, which gets a file system and the label. A disk has another name (/dev/nvme1n1) at the next
boot, so no name is stored. No data on a disk are ever lost: a disk with partitions, a signature or
any byte other than 0 in its first MiB isn't empty.

    data_volume.py look MODEL FOLDER PLACE    MiB that there are for data; changes nothing
    data_volume.py make MODEL FOLDER PLACE    the UUID to mount at FOLDER, and `new` or `known`
    data_volume.py sign MODEL FOLDER PLACE    once it is mounted: `new` or `known`

PLACE names the owner of the data ("production oregon store"). A volume is signed with it, and one
with another signature is refused: a store node that started with it would join another cluster.

On failure there is one line on stderr and exit code 1.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

LABEL: Final = "newsfabric-data"
SIGNED: Final = "newsfabric-place"
_MIB: Final = 1 << 20
_COLUMNS: Final = "PATH,TYPE,MODEL,SIZE,MOUNTPOINTS"
# Files that a package or a playbook may leave in a folder before there are data.
_NO_DATA: Final = (".erlang.cookie", ".erlang.cookie.new")


class VolumeError(Exception):
    """An error as one line for the operator."""


@dataclasses.dataclass(frozen=True)
class Disk:
    """A whole disk: ``size`` in bytes, ``mounted`` the mount points of it and of its parts."""

    path: str
    size: int
    label: str
    uuid: str
    mounted: tuple[str, ...]
    #: The contents, for people: "ext4", "partitions"; empty if none are found.
    holds: str


def disks(
    listed: dict[str, Any], model: str, probe: Callable[[str], Mapping[str, str]]
) -> list[Disk]:
    """Return the disks of ``model`` in the output of ``lsblk --json --bytes``.

    ``probe`` returns a disk's contents, by blkid's names: those that lsblk shows may be outdated.
    """
    return [
        _disk(each, probe(each["path"]))
        for each in listed["blockdevices"]
        if each["type"] == "disk" and (each["model"] or "").strip() == model
    ]


def _disk(each: dict[str, Any], probed: Mapping[str, str]) -> Disk:
    mounted = [point for point in each["mountpoints"] if point]
    parts = list(each.get("children", ()))
    holds = probed.get("TYPE", "") or ("partitions" if parts or "PTTYPE" in probed else "")
    while parts:
        part = parts.pop()
        mounted += [point for point in part["mountpoints"] if point]
        parts += part.get("children", ())
    return Disk(
        path=each["path"],
        size=int(each["size"]),
        label=probed.get("LABEL", ""),
        uuid=probed.get("UUID", ""),
        mounted=tuple(mounted),
        holds=holds or ("something that is mounted" if mounted else ""),
    )


def chosen(found: Sequence[Disk], model: str, folder: str) -> Disk:
    """Return the data volume among the disks of ``model``; VolumeError if the choice is unclear."""
    if not found:
        raise VolumeError(f"there is no disk of model {model!r}: is the volume attached?")
    for one in (
        [disk for disk in found if disk.label == LABEL],
        [disk for disk in found if not disk.holds],
    ):
        if len(one) > 1:
            names = ", ".join(disk.path for disk in one)
            what = f"have the label {LABEL}" if one[0].label == LABEL else "are empty"
            raise VolumeError(f"{names} {what}, and only one disk can be the data volume")
        if one:
            if one[0].mounted not in ((), (folder,)):
                raise VolumeError(f"{one[0].path} is mounted at {', '.join(one[0].mounted)}")
            return one[0]
    seen = ", ".join(f"{disk.path} has {disk.holds}" for disk in found)
    raise VolumeError(f"no disk of model {model!r} is empty or has the label {LABEL}: {seen}")


def clear(folder: Path) -> None:
    """Raise VolumeError if ``folder`` has data already, which a volume would hide."""
    for place, _, names in os.walk(folder):
        for name in names:
            if name not in _NO_DATA:
                raise VolumeError(
                    f"{folder} has data on the system's disk ({Path(place, name)}):"
                    " stop what writes there and move them away first"
                )


def empty(path: str) -> None:
    """Raise VolumeError if the disk ``path`` has any contents, even unknown to blkid."""
    with open(path, "rb") as disk:
        begins = disk.read(_MIB)
    found = probe(path)
    if found or begins.strip(b"\0"):
        raise VolumeError(f"{path} isn't empty: {found.get('TYPE', 'nobody knows with what')}")


def make(path: str) -> None:
    """Make the file system on the disk (or file) ``path``, which is empty."""
    empty(path)
    # No share is reserved for root: the services that write here aren't root.
    _ran(["mkfs.ext4", "-q", "-m", "0", "-L", LABEL, path], 0)


def probe(path: str) -> dict[str, str]:
    """Return the contents of the disk (or file) ``path``, by blkid's names; empty if none."""
    done = _ran(["blkid", "--probe", "--output", "export", path], 0, 2, 8)
    if done.returncode == 8:
        return {"TYPE": "more than one thing"}
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def signed(disk: Disk, folder: str) -> str:
    """Return the place that the volume ``disk`` is signed with; empty if it isn't yet."""
    if folder in disk.mounted:
        file = Path(folder, SIGNED)
        return file.read_text().strip() if file.exists() else ""
    # debugfs reports a missing file on stderr.
    return _ran(["debugfs", "-R", f"cat /{SIGNED}", disk.path], 0).stdout.strip()


def check(disk: Disk, folder: str, place: str) -> None:
    """Raise VolumeError if the volume ``disk`` is signed with another place."""
    found = signed(disk, folder) if disk.label == LABEL else ""
    if found not in ("", place):
        raise VolumeError(
            f"{disk.path} has the data of {found[:100]!r}, and this host is {place!r}"
        )


def sign(disk: Disk, folder: str, place: str) -> str:
    """Sign the volume that is mounted at ``folder``; return `new`, or `known` if it was signed.

    VolumeError if it isn't mounted there.
    """
    if folder not in disk.mounted:
        raise VolumeError(f"{disk.path} isn't mounted at {folder}")
    if signed(disk, folder):
        return "known"
    file = Path(folder, SIGNED)
    file.unlink(missing_ok=True)
    # Another user owns the folder and could put a link there: "x" follows none.
    with file.open("x") as opened:
        opened.write(f"{place}\n")
    return "new"


def _ran(command: list[str], *fine: int) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode not in fine:
        raise VolumeError(f"{' '.join(command)}: {' '.join(done.stderr.split())[:300]}")
    return done


def read_disks(model: str) -> list[Disk]:
    """Return the disks of ``model`` that this host has."""
    command = ["lsblk", "--json", "--bytes", "--output", _COLUMNS]
    return disks(json.loads(_ran(command, 0).stdout), model, probe)


def answer(what: str, disk: Disk, folder: str, place: str) -> str:
    """Return the output of the verb ``what`` for ``disk``, which is the data volume."""
    check(disk, folder, place)
    if what == "sign":
        return sign(disk, folder, place)
    if folder in disk.mounted:
        room = os.statvfs(folder)
        return (
            str(room.f_bavail * room.f_frsize // _MIB) if what == "look" else f"{disk.uuid} known"
        )
    if os.path.ismount(folder):
        raise VolumeError(f"another disk than {disk.path} is mounted at {folder}")
    clear(Path(folder))
    known = disk.label == LABEL
    if what == "look":
        if not known:
            empty(disk.path)
        return str(disk.size // _MIB)
    if known:
        return f"{disk.uuid} known"
    make(disk.path)
    return f"{probe(disk.path)['UUID']} new"


def main(words: Sequence[str]) -> int:
    """Run; return the exit code."""
    try:
        what, model, folder, place = words
        output = answer(what, chosen(read_disks(model), model, folder), folder, place)
    except (OSError, VolumeError) as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    sys.stdout.write(f"{output}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
