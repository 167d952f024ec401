"""The memory left for new programs: the least that the machine or a control group leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from localfabric.world.memory_left import MemoryLeft, memory_left

MIB: Final = 1 << 20
MACHINE: Final = 8192 * MIB
UNLIMITED: Final = "9223372036854771712"


class MachineMemory:
    """A machine with 8 GiB left: its ``/proc``, and trees of control groups."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self._folder = folder
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "meminfo").write_text(
            f"MemTotal: 16777216 kB\nMemFree: 9 kB\nMemAvailable: {MACHINE >> 10} kB\n"
        )
        self._mounts = [
            "21 1 0:19 / /proc rw,nosuid - proc proc rw",
            # A mount without a source.
            "22 1 0:20 / /mnt rw - tmpfs  rw",
        ]
        self._own: list[str] = []

    def tree(self, version: int, own: str, *, root: str = "/") -> Path:
        """Mount a tree from ``root`` down, in which ``own`` is this process's group."""
        where = self._folder / f"cgroup{version}"
        kind, options = {1: ("cgroup", "rw,memory"), 2: ("cgroup2", "rw,nsdelegate")}[version]
        # Version 2 has optional fields here.
        optional = " shared:4" if version == 2 else ""
        self._mounts.append(f"30 1 0:26 {root} {where} rw,relatime{optional} - {kind} c {options}")
        self._own.append({1: f"4:memory:{own}", 2: f"0::{own}"}[version])
        where.mkdir()
        return where

    def left(self) -> MemoryLeft:
        (self.proc / "self" / "mountinfo").write_text("\n".join(self._mounts) + "\n")
        (self.proc / "self" / "cgroup").write_text("\n".join([*self._own, "3:cpu,cpuacct:/"]))
        return memory_left(self.proc)


def group(path: Path, version: int, limit: str | int, used: int, cache: int = 0) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    names = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        2: ("memory.max", "memory.current", "inactive_file"),
    }
    limits, usage, line = names[version]
    (path / limits).write_text(f"{limit}\n")
    (path / usage).write_text(f"{used}\n")
    (path / "memory.stat").write_text(f"anon 7\n{line} {cache}\n")
    return path


@pytest.fixture
def machine(tmp_path: Path) -> MachineMemory:
    return MachineMemory(tmp_path)


def test_without_control_groups_it_is_the_machines(machine: MachineMemory) -> None:
    assert machine.left() == MemoryLeft(MACHINE)


@pytest.mark.parametrize(("version", "unlimited"), [(1, UNLIMITED), (2, "max")])
def test_a_group_without_a_limit_bounds_nothing(
    machine: MachineMemory, version: int, unlimited: str
) -> None:
    group(machine.tree(version, "/a") / "a", version, unlimited, 5 * MIB)
    assert machine.left() == MemoryLeft(MACHINE)


@pytest.mark.parametrize("version", [1, 2])
def test_a_limit_counts_less_what_is_used_and_cannot_be_forgotten(
    machine: MachineMemory, version: int
) -> None:
    own = group(machine.tree(version, "/a") / "a", version, 500 * MIB, 400 * MIB, 150 * MIB)
    assert machine.left() == MemoryLeft(250 * MIB, str(own))


@pytest.mark.parametrize("version", [1, 2])
def test_a_limit_above_what_the_machine_has_left_counts_for_nothing(
    machine: MachineMemory, version: int
) -> None:
    group(machine.tree(version, "/a") / "a", version, MACHINE + 2 * MIB, MIB)
    assert machine.left() == MemoryLeft(MACHINE)


@pytest.mark.parametrize("version", [1, 2])
def test_an_outer_group_bounds_those_in_it(machine: MachineMemory, version: int) -> None:
    tree = machine.tree(version, "/a/b/c")
    outer = group(tree / "a", version, 300 * MIB, 100 * MIB)
    group(tree / "a/b", version, 900 * MIB, 90 * MIB)
    (tree / "a/b/c").mkdir()
    assert machine.left() == MemoryLeft(200 * MIB, str(outer))


def test_the_smaller_of_both_versions_counts(machine: MachineMemory) -> None:
    first = group(machine.tree(1, "/a") / "a", 1, 300 * MIB, 0)
    second = group(machine.tree(2, "/b") / "b", 2, 200 * MIB, 0)
    assert machine.left() == MemoryLeft(200 * MIB, str(second))
    group(first, 1, 100 * MIB, 0)
    assert machine.left() == MemoryLeft(100 * MIB, str(first))


def test_a_container_that_sees_its_own_group_alone_has_its_limit(machine: MachineMemory) -> None:
    tree = machine.tree(1, "/docker/1f0c", root="/docker/1f0c")
    group(tree, 1, 200 * MIB, 50 * MIB)
    assert machine.left() == MemoryLeft(150 * MIB, str(tree))


def test_a_group_outside_of_what_is_mounted_leaves_what_is(machine: MachineMemory) -> None:
    tree = machine.tree(2, "/../elsewhere", root="/docker")
    group(tree, 2, 200 * MIB, 50 * MIB)
    assert machine.left() == MemoryLeft(150 * MIB, str(tree))


def test_what_is_used_beyond_the_limit_leaves_nothing(machine: MachineMemory) -> None:
    own = group(machine.tree(2, "/a") / "a", 2, 100 * MIB, 101 * MIB)
    assert machine.left() == MemoryLeft(0, str(own))


@pytest.mark.parametrize("text", ["", "many", "-"])
def test_a_limit_that_cannot_be_read_is_none(machine: MachineMemory, text: str) -> None:
    group(machine.tree(2, "/a") / "a", 2, text, 0)
    assert machine.left() == MemoryLeft(MACHINE)


def test_this_machine_can_be_asked() -> None:
    assert memory_left().available > 0
