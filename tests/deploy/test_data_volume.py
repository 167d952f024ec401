"""The choice of a host's data volume, and the work on it (role ``disk``)."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAM: Final = ROOT / "deploy" / "ansible" / "roles" / "disk" / "files" / "data_volume.py"
EBS: Final = "Amazon Elastic Block Store"
FOLDER: Final = "/var/lib/cassandra"
MIB: Final = 1 << 20
PLACE: Final = "production oregon store"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("data_volume", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their module.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


volume = loaded()


def device(path: str, **fields: Any) -> dict[str, Any]:
    """Return a device as lsblk 2.38 prints it; ``holds`` is blkid's result for it."""
    empty = {
        "path": path,
        "type": "disk",
        "model": EBS,
        "size": 100 << 30,
        "mountpoints": [None],
        "holds": {},
    }
    return empty | fields


ROOT_DISK: Final = device(
    "/dev/nvme0n1",
    holds={"PTTYPE": "gpt"},
    children=[device("/dev/nvme0n1p1", type="part", mountpoints=["/"])],
)
EMPTY: Final = device("/dev/nvme1n1")
OURS: Final = device("/dev/nvme2n1", holds={"TYPE": "ext4", "LABEL": "newsfabric-data"})


def chosen(*devices: dict[str, Any], folder: str = FOLDER) -> str:
    holds = {each["path"]: each["holds"] for each in devices}
    found = volume.disks({"blockdevices": list(devices)}, EBS, holds.__getitem__)
    path: str = volume.chosen(found, EBS, folder).path
    return path


def test_the_only_empty_disk_is_the_data_volume() -> None:
    assert chosen(ROOT_DISK, EMPTY) == "/dev/nvme1n1"
    # The order of names doesn't matter.
    assert chosen(EMPTY, ROOT_DISK) == "/dev/nvme1n1"


def test_the_disk_with_our_label_is_it_whatever_else_is_empty() -> None:
    assert chosen(ROOT_DISK, EMPTY, OURS) == "/dev/nvme2n1"
    assert chosen(ROOT_DISK, OURS | {"mountpoints": [FOLDER]}) == "/dev/nvme2n1"


def test_disks_of_other_models_are_never_taken() -> None:
    local = device("/dev/nvme3n1", model="Amazon EC2 NVMe Instance Storage")
    named = OURS | {"model": "A stick that somebody left"}
    assert chosen(ROOT_DISK, local, named, EMPTY) == "/dev/nvme1n1"
    with pytest.raises(volume.VolumeError, match="no disk of model"):
        chosen(ROOT_DISK, local)


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        ([], "there is no disk of model 'Amazon Elastic Block Store'"),
        ([ROOT_DISK], "/dev/nvme0n1 has partitions"),
        ([EMPTY | {"holds": {"TYPE": "xfs"}}], "/dev/nvme1n1 has xfs"),
        ([EMPTY | {"holds": {"PTTYPE": "dos"}}], "/dev/nvme1n1 has partitions"),
        ([EMPTY | {"mountpoints": ["/mnt"]}], "/dev/nvme1n1 has something that is mounted"),
        (
            [EMPTY | {"children": [device("/dev/mapper/a", type="lvm", mountpoints=["/srv"])]}],
            "/dev/nvme1n1 has partitions",
        ),
        ([EMPTY, EMPTY | {"path": "/dev/nvme4n1"}], "/dev/nvme1n1, /dev/nvme4n1 are empty"),
        ([OURS, OURS | {"path": "/dev/nvme4n1"}], "/dev/nvme2n1, /dev/nvme4n1 have the label"),
        ([OURS | {"mountpoints": ["/mnt"]}], "/dev/nvme2n1 is mounted at /mnt"),
    ],
)
def test_what_might_be_somebody_elses_is_refused_by_its_name(
    devices: list[dict[str, Any]], why: str
) -> None:
    with pytest.raises(volume.VolumeError, match=why):
        chosen(*devices)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """Return an empty disk of 64 MiB: a file."""
    path = tmp_path / "disk"
    with path.open("wb") as file:
        file.truncate(64 * MIB)
    return path


def test_an_empty_disk_gets_a_file_system_with_our_label(disk: Path) -> None:
    volume.make(str(disk))
    output = subprocess.run(
        ["blkid", "--probe", "--output", "export", disk], capture_output=True, text=True, check=True
    ).stdout
    assert "LABEL=newsfabric-data\n" in output
    assert "TYPE=ext4\n" in output
    assert volume.probe(str(disk))["LABEL"] == "newsfabric-data"


@pytest.mark.sockets
def test_a_disk_is_never_given_a_second_file_system(disk: Path) -> None:
    volume.make(str(disk))
    before = disk.read_bytes()
    with pytest.raises(volume.VolumeError, match=r"isn't empty: .*ext4"):
        volume.make(str(disk))
    assert disk.read_bytes() == before


@pytest.mark.sockets
def test_bytes_that_are_no_file_system_are_something_too(disk: Path) -> None:
    with disk.open("r+b") as file:
        file.seek(4096)
        file.write(b"somebody's data")
    with pytest.raises(volume.VolumeError, match="nobody knows with what"):
        volume.make(str(disk))
    assert b"somebody's data" in disk.read_bytes()


def test_a_folder_with_data_is_not_hidden_by_a_volume(tmp_path: Path) -> None:
    (tmp_path / "mnesia").mkdir()
    (tmp_path / ".erlang.cookie").touch()
    volume.clear(tmp_path)
    (tmp_path / "mnesia" / "schema.DAT").touch()
    with pytest.raises(volume.VolumeError, match=r"has data on the system's disk .*schema\.DAT"):
        volume.clear(tmp_path)


class Host:
    """A host whose ``lsblk`` prints devices that the test chooses."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.data.mkdir()
        self._bin = folder / "bin"
        self._bin.mkdir()

    def has(self, *devices: dict[str, Any]) -> None:
        lsblk = self._bin / "lsblk"
        lsblk.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps({'blockdevices': devices})}\nEND\n")
        lsblk.chmod(0o755)

    def asked(self, what: str, place: str = PLACE) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, PROGRAM, what, EBS, str(self.data), place],
            env={**os.environ, "PATH": f"{self._bin}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
        )


def test_a_host_takes_its_volume_once_and_knows_it_afterwards(tmp_path: Path, disk: Path) -> None:
    host = Host(tmp_path)
    host.has(ROOT_DISK, EMPTY | {"path": str(disk), "size": 64 * MIB})
    looked = host.asked("look")
    assert (looked.returncode, looked.stdout) == (0, "64\n")
    assert not disk.read_bytes().strip(b"\0")
    made = host.asked("make")
    name = volume.probe(str(disk))["UUID"]
    assert (made.returncode, made.stdout) == (0, f"{name} new\n")
    known = {"path": str(disk), "size": 64 * MIB}
    host.has(ROOT_DISK, EMPTY, EMPTY | known)
    assert host.asked("make").stdout == f"{name} known\n"
    host.has(ROOT_DISK, EMPTY | known | {"mountpoints": [str(host.data)]})
    again = host.asked("make")
    assert (again.returncode, again.stdout) == (0, f"{name} known\n")
    assert int(host.asked("look").stdout) > 0


def test_a_host_without_its_volume_says_so_in_one_line(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.has(ROOT_DISK)
    for what in ("look", "make"):
        asked = host.asked(what)
        assert asked.returncode == 1
        assert asked.stderr.startswith("no disk of model 'Amazon Elastic Block Store' is empty")
        assert asked.stderr.count("\n") == 1


def test_a_disk_of_somebody_else_is_left_as_it_is(tmp_path: Path, disk: Path) -> None:
    subprocess.run(["mkfs.ext4", "-q", "-L", "photographs", disk], check=True)
    before = disk.read_bytes()
    host = Host(tmp_path)
    host.has(EMPTY | {"path": str(disk)})
    for what in ("look", "make"):
        asked = host.asked(what)
        assert asked.returncode == 1
        assert f"{disk} has ext4" in asked.stderr
    assert disk.read_bytes() == before


def named(disk: Path, place: str) -> None:
    """Make the disk a volume that was signed when it was mounted."""
    volume.make(str(disk))
    name = disk.with_name("name")
    name.write_text(f"{place}\n")
    written = f"write {name} newsfabric-place"
    subprocess.run(["debugfs", "-w", "-R", written, disk], check=True, capture_output=True)


def test_a_volume_of_another_environment_is_refused_before_it_is_mounted(
    tmp_path: Path, disk: Path
) -> None:
    named(disk, "staging oregon store")
    host = Host(tmp_path)
    host.has(ROOT_DISK, EMPTY | {"path": str(disk), "size": 64 * MIB})
    for what in ("look", "make", "sign"):
        asked = host.asked(what)
        assert asked.returncode == 1
        assert asked.stderr == (
            f"{disk} has the data of 'staging oregon store',"
            " and this host is 'production oregon store'\n"
        )
    assert host.asked("make", "staging oregon store").returncode == 0


def test_a_volume_is_signed_once_it_is_mounted(tmp_path: Path, disk: Path) -> None:
    host = Host(tmp_path)
    host.has(ROOT_DISK, EMPTY | {"path": str(disk)})
    assert host.asked("make").returncode == 0
    # Not mounted at its folder yet.
    assert host.asked("sign").returncode == 1
    host.has(ROOT_DISK, EMPTY | {"path": str(disk), "mountpoints": [str(host.data)]})
    assert [host.asked("sign").stdout for _ in range(2)] == ["new\n", "known\n"]
    assert (host.data / "newsfabric-place").read_text() == "production oregon store\n"
    for what in ("look", "make", "sign"):
        asked = host.asked(what, "staging oregon store")
        assert asked.returncode == 1
        assert "has the data of 'production oregon store'" in asked.stderr
