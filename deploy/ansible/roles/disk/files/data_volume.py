#!/usr/bin/env python3
"""The data volume of a host: which disk it is, and its file system.

It is the disk of the given model that has our label; else, of the disks of that model, the only one
without anything on it, which gets a file system and the label. A disk has another name
(/dev/nvme1n1) at the next boot, so none is remembered. Nothing that is on a disk is lost by this:
what has partitions, a signature or any byte at its beginning isn't empty.

    data_volume.py look MODEL FOLDER    MiB that there are for data; changes nothing
    data_volume.py make MODEL FOLDER    the UUID to mount at FOLDER, and `new` or `known`

One line on stderr and exit code 1 if that can't be.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

LABEL: Final = "newsfabric-data"
_MIB: Final = 1 << 20
_COLUMNS: Final = "PATH,TYPE,MODEL,FSTYPE,PTTYPE,LABEL,UUID,SIZE,MOUNTPOINTS"
# What a package or a playbook may leave in a folder before there are data.
_NO_DATA: Final = (".erlang.cookie", ".erlang.cookie.new")


class VolumeError(Exception):
    """One line for the operator."""


@dataclasses.dataclass(frozen=True)
class Disk:
    """A whole disk, as lsblk has it: ``size`` in bytes, ``mounted`` where it or a part of it is."""

    path: str
    model: str
    size: int
    label: str
    uuid: str
    mounted: tuple[str, ...]
    #: What is on it, for people: "ext4", "partitions"; empty if nothing is seen.
    holds: str


def disks(listed: dict[str, Any]) -> list[Disk]:
    """Disks in what ``lsblk --json --bytes`` prints."""
    return [_disk(each) for each in listed["blockdevices"] if each["type"] == "disk"]


def _disk(each: dict[str, Any]) -> Disk:
    mounted = [point for point in each["mountpoints"] if point]
    parts = list(each.get("children", ()))
    holds = each["fstype"] or ("partitions" if parts or each["pttype"] else "")
    while parts:
        part = parts.pop()
        mounted += [point for point in part["mountpoints"] if point]
        parts += part.get("children", ())
    return Disk(
        path=each["path"],
        model=(each["model"] or "").strip(),
        size=int(each["size"]),
        label=each["label"] or "",
        uuid=each["uuid"] or "",
        mounted=tuple(mounted),
        holds=holds or ("something that is mounted" if mounted else ""),
    )


def chosen(found: Sequence[Disk], model: str, folder: str) -> Disk:
    """The data volume; VolumeError if there is none, or more than one might be it."""
    ours = [disk for disk in found if disk.model == model]
    if not ours:
        raise VolumeError(f"there is no disk of model {model!r}: is the volume attached?")
    for one in (
        [disk for disk in ours if disk.label == LABEL],
        [disk for disk in ours if not disk.holds],
    ):
        if len(one) > 1:
            names = ", ".join(disk.path for disk in one)
            what = f"have the label {LABEL}" if one[0].label == LABEL else "are empty"
            raise VolumeError(f"{names} {what}, and only one disk can be the data volume")
        if one:
            if one[0].mounted not in ((), (folder,)):
                raise VolumeError(f"{one[0].path} is mounted at {', '.join(one[0].mounted)}")
            return one[0]
    seen = ", ".join(f"{disk.path} has {disk.holds}" for disk in ours)
    raise VolumeError(f"no disk of model {model!r} is empty or has the label {LABEL}: {seen}")


def clear(folder: Path) -> None:
    """VolumeError if ``folder`` has data already, which a volume would hide."""
    for place, _, names in os.walk(folder):
        for name in names:
            if name not in _NO_DATA:
                raise VolumeError(
                    f"{folder} has data on the system's disk ({Path(place, name)}):"
                    " stop what writes there and move them away first"
                )


def empty(path: str) -> None:
    """VolumeError if there is anything on the disk ``path``, whatever lsblk believes."""
    probed = _ran(["blkid", "--probe", path], 0, 2, 8)
    with open(path, "rb") as disk:
        begins = disk.read(_MIB)
    if probed.returncode != 2 or begins.strip(b"\0"):
        raise VolumeError(
            f"{path} isn't empty: {probed.stdout.strip() or 'nobody knows with what'}"
        )


def make(path: str) -> None:
    """Make the file system on the disk (or file) ``path``, which is empty."""
    empty(path)
    # No share of it is kept for root: who writes here isn't.
    _ran(["mkfs.ext4", "-q", "-m", "0", "-L", LABEL, path], 0)


def uuid(path: str) -> str:
    """The UUID of the file system on ``path``, asked of itself."""
    return _ran(
        ["blkid", "--probe", "--output", "value", "--match-tag", "UUID", path], 0
    ).stdout.strip()


def _ran(command: list[str], *fine: int) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode not in fine:
        raise VolumeError(f"{' '.join(command)}: {' '.join(done.stderr.split())[:300]}")
    return done


def _listed() -> list[Disk]:
    command = ["lsblk", "--json", "--bytes", "--output", _COLUMNS]
    return disks(json.loads(_ran(command, 0).stdout))


def answer(what: str, disk: Disk, folder: str) -> str:
    """What is asked for of ``disk``, which is the data volume."""
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
    return f"{uuid(disk.path)} new"


def main(words: Sequence[str]) -> int:
    """The exit code."""
    try:
        what, model, folder = words
        said = answer(what, chosen(_listed(), model, folder), folder)
    except (OSError, VolumeError) as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    sys.stdout.write(f"{said}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
