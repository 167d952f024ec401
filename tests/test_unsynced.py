"""The disk that forgets: synced data stays, in each of its two halves (data and names)."""

from __future__ import annotations

import mmap
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from power_cuts import CutDisk
from unsynced import SECTOR, File, Folder, load, save

DICE = random.Random(1)


def test_a_cut_takes_what_was_written_after_the_sync():
    file = File()
    file.write(b"first", 0)
    file.sync()
    file.write(b"LAST, and longer", 0)
    file.cut(DICE, 0.0)
    assert (file.seen, file.synced) == (b"first", b"first")


def test_a_gap_is_zeros_and_a_shorter_file_is_shorter_when_it_is_synced():
    file = File(content=b"x" * 10)
    file.truncate(4)
    file.write(b"y", 6)
    assert file.seen == b"xxxx\0\0y"
    assert file.synced == b"x" * 10
    file.sync()
    assert file.synced == b"xxxx\0\0y"


def test_of_what_was_not_synced_some_sectors_survive_whole():
    file = File(content=b"o" * 100 * SECTOR)
    file.write(b"n" * 100 * SECTOR, 0)
    file.cut(random.Random(7), 0.5)
    sectors = [bytes(file.seen[at : at + SECTOR]) for at in range(0, len(file.seen), SECTOR)]
    assert set(sectors) == {b"o" * SECTOR, b"n" * SECTOR}


def test_a_name_is_on_the_disk_when_its_folder_was_synced_not_when_its_file_was():
    folder, file = Folder(), File()
    folder.change({"new": file})
    file.sync()
    folder.cut(DICE, 0.0)
    assert folder.seen == {}
    folder.change({"new": file})
    folder.sync()
    folder.change({"new": None, "other": file})
    folder.cut(DICE, 0.0)
    assert folder.seen == {"new": file}


def test_a_rename_survives_whole_or_not_at_all():
    file = File()
    outcomes = set()
    for seed in range(20):
        folder = Folder()
        folder.change({"old": file})
        folder.sync()
        folder.change({"old": None, "new": file})
        folder.cut(random.Random(seed), 0.5)
        outcomes.add(tuple(folder.seen))
    assert outcomes == {("old",), ("new",)}


def test_what_is_saved_is_what_was_synced(tmp_path):
    folder, below = Folder(), Folder()
    kept, forgotten = File(content=b"kept"), File(content=b"forgotten")
    below.change({"kept": kept})
    below.sync()
    folder.change({"below": below})
    folder.sync()
    folder.change({"forgotten": forgotten})
    save(folder, tmp_path / "disk")
    again = load(tmp_path / "disk")
    assert list(again.seen) == ["below"]
    assert again.seen["below"].seen["kept"].seen == b"kept"


@pytest.fixture
def disk(power_cuts: None, tmp_path: Path) -> Iterator[CutDisk]:
    with CutDisk(tmp_path / "mount", tmp_path / "disk") as made:
        yield made


def cut_and_power_on(disk: CutDisk) -> None:
    disk.cut()
    with pytest.raises(OSError, match="Input/output error"):
        os.listdir(disk.mount)
    disk.unmount()
    disk.power_on()


def sync_names(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def test_a_mapped_file_has_what_msync_wrote(disk):
    path = disk.mount / "mapped"
    with path.open("w+b") as file:
        file.truncate(8_192)
        sync_names(disk.mount)
        with mmap.mmap(file.fileno(), 8_192) as mapped:
            mapped[:6] = b"synced"
            mapped.flush()
            mapped[6:12] = b"unsync"
    cut_and_power_on(disk)
    assert path.read_bytes()[:12] == b"synced" + bytes(6)


def test_without_a_journal_a_synced_file_has_no_name_and_with_one_it_has(tmp_path, power_cuts):
    for journal, names in ((False, []), (True, ["file"])):
        with CutDisk(tmp_path / "mount", tmp_path / f"disk-{journal}", journal=journal) as disk:
            with (disk.mount / "file").open("wb") as file:
                file.write(b"content")
                file.flush()
                os.fsync(file.fileno())
            cut_and_power_on(disk)
            assert os.listdir(disk.mount) == names


def test_all_is_there_after_a_quiet_minute_and_after_an_unmount(disk):
    (disk.mount / "folder").mkdir()
    (disk.mount / "folder" / "old").write_bytes(b"one")
    disk.settle()
    (disk.mount / "folder" / "new").write_bytes(b"two")
    cut_and_power_on(disk)
    assert [path.name for path in (disk.mount / "folder").iterdir()] == ["old"]
    (disk.mount / "folder" / "old").rename(disk.mount / "renamed")
    disk.unmount()
    assert (disk.on_disk / "renamed").read_bytes() == b"one"
    assert list((disk.on_disk / "folder").iterdir()) == []
