"""How much memory new programs can have here: what the machine has left, or the control groups that
this process is in, if that is less.

A container, a service with ``MemoryMax`` and a CI runner see all of the machine's memory in
``/proc/meminfo``, and are ended for what exceeds their group's limit. Each group from this
process's up to the mounted tree's root may have one, so all are looked at. There are two versions
of control groups (cgroups(7)), and a machine may have both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryLeft:
    """In bytes. ``group`` is the control group whose limit that is; empty: it is the machine's."""

    available: int
    group: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class _Files:
    """What a version calls the files of a group. ``cache`` is a line of its ``memory.stat``."""

    limit: str
    used: str
    cache: str


_VERSION_1: Final = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2: Final = _Files("memory.max", "memory.current", "inactive_file")


def memory_left(proc: Path = Path("/proc")) -> MemoryLeft:
    """The smallest of all that bound it. ``proc`` is where procfs is mounted."""
    # proc(5): what new programs can have without swapping.
    lines = (proc / "meminfo").read_text("ascii").splitlines()
    found = {name: value for name, _, value in (line.partition(":") for line in lines)}
    machine = MemoryLeft(int(found["MemAvailable"].split()[0]) << 10)
    rooms = (_room(group, files) for group, files in _groups(proc))
    return min([machine, *filter(None, rooms)], key=lambda one: one.available)


def _groups(proc: Path) -> Iterator[tuple[Path, _Files]]:
    """The groups that this process is in, innermost first, in each tree that bounds memory."""
    own = _own_groups(proc)
    for mount in (proc / "self/mountinfo").read_text(errors="replace").splitlines():
        # proc(5): …, what of the tree is mounted, where, … - type, source, the tree's options.
        before, _, after = mount.partition(" - ")
        (root, where), (kind, _, options) = before.split()[3:5], after.split()[:3]
        if kind == "cgroup2":
            files, group = _VERSION_2, own.get("")
        elif kind == "cgroup" and "memory" in options.split(","):
            files, group = _VERSION_1, own.get("memory")
        else:
            continue
        top = Path(where)
        inner = top
        # A container's mount may show no more than its own group, whatever that is called.
        if group is not None and PurePosixPath(group).is_relative_to(root):
            inner = top / PurePosixPath(group).relative_to(root)
        yield from ((one, files) for one in (inner, *inner.parents) if one.is_relative_to(top))


def _own_groups(proc: Path) -> dict[str, str]:
    """By controller, and of version 2 by "": cgroups(7)."""
    found: dict[str, str] = {}
    for line in (proc / "self/cgroup").read_text(errors="replace").splitlines():
        _, controllers, group = line.split(":", 2)
        found |= dict.fromkeys(controllers.split(","), group)
    return found


def _room(group: Path, files: _Files) -> MemoryLeft | None:
    """What may still be taken; None if the group sets no limit, or can't be read."""
    try:
        limit, used = ((group / name).read_text().strip() for name in (files.limit, files.used))
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        if limit == "max":
            return None
        # Files that were read and may be forgotten count as used.
        room = int(limit) - int(used) + int(stat.get(files.cache, 0))
    except (OSError, ValueError):
        return None
    return MemoryLeft(max(0, room), str(group))
