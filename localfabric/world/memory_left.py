"""The memory that new programs can have here: that of the machine, or less by a control group.

A container, a service with ``MemoryMax`` and a CI runner see all of the machine's memory in
``/proc/meminfo``, but are killed above the limit of their control group. Each group from this
process's up to the root of the mounted tree may have a limit, so all are read. There are two
versions of control groups (cgroups(7)), and a machine may have both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryLeft:
    """The bytes left. ``group`` is the control group that sets the limit; empty: the machine."""

    available: int
    group: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class _Files:
    """Names of a group's files in one version. ``cache`` is a line of its ``memory.stat``."""

    limit: str
    used: str
    cache: str


_VERSION_1: Final = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2: Final = _Files("memory.max", "memory.current", "inactive_file")


def memory_left(proc: Path = Path("/proc")) -> MemoryLeft:
    """Return the smallest of all limits that apply. ``proc`` is where procfs is mounted."""
    # proc(5): MemAvailable is the memory that new programs can have without swapping.
    lines = (proc / "meminfo").read_text("ascii").splitlines()
    found = {name: value for name, _, value in (line.partition(":") for line in lines)}
    machine = MemoryLeft(int(found["MemAvailable"].split()[0]) << 10)
    rooms = (_room(group, files) for group, files in _groups(proc))
    return min([machine, *filter(None, rooms)], key=lambda one: one.available)


def _groups(proc: Path) -> Iterator[tuple[Path, _Files]]:
    """Yield the groups of this process, innermost first, in each tree that bounds memory."""
    own = _own_groups(proc)
    for mount in (proc / "self/mountinfo").read_text(errors="replace").splitlines():
        # proc(5): …, root in the tree, mount point, … - type, source (may be empty), options.
        before, _, after = mount.partition(" - ")
        (root, where), (kind, *_, options) = before.split()[3:5], after.split(" ")
        if kind == "cgroup2":
            files, group = _VERSION_2, own.get("")
        elif kind == "cgroup" and "memory" in options.split(","):
            files, group = _VERSION_1, own.get("memory")
        else:
            continue
        top = Path(where)
        inner = top
        # The mount in a container may show only the container's own group, under any name.
        if group is not None and PurePosixPath(group).is_relative_to(root):
            inner = top / PurePosixPath(group).relative_to(root)
        yield from ((one, files) for one in (inner, *inner.parents) if one.is_relative_to(top))


def _own_groups(proc: Path) -> dict[str, str]:
    """Return this process's group by controller, and that of version 2 by "": cgroups(7)."""
    found: dict[str, str] = {}
    for line in (proc / "self/cgroup").read_text(errors="replace").splitlines():
        _, controllers, group = line.split(":", 2)
        found |= dict.fromkeys(controllers.split(","), group)
    return found


def _room(group: Path, files: _Files) -> MemoryLeft | None:
    """Return the memory left in ``group``; None if it sets no limit, or can't be read."""
    try:
        limit, used = ((group / name).read_text().strip() for name in (files.limit, files.used))
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        if limit == "max":
            return None
        # Cached files that may be dropped count as used.
        room = int(limit) - int(used) + int(stat.get(files.cache, 0))
    except (OSError, ValueError):
        return None
    return MemoryLeft(max(0, room), str(group))
