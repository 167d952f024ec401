"""Files and folders in two states: as programs see them, and as a disk has them after a power cut.

A write changes only the first state. Syncing a file copies its bytes and its length to the second;
syncing a folder copies its names. So a created, renamed or removed file is so on the disk only
after its folder was synced (fsync(2)). Journals of file systems promise more: ext4, XFS and btrfs
write with a file the earlier changes to names.

A real disk also writes by itself. With ``share`` above 0, that share of the unsynced sectors
survives a cut, and of the changes to a folder's names the first few.
"""

from __future__ import annotations

import random
import stat
import time
from pathlib import Path

# Bytes that a disk writes completely or not at all.
SECTOR = 512


class File:
    """A file: its bytes as programs see them, and as they are on the disk."""

    def __init__(self, mode: int = 0o644, content: bytes = b"") -> None:
        self.mode = stat.S_IFREG | stat.S_IMODE(mode)
        self.changed_ns = time.time_ns()
        self.seen = bytearray(content)
        self.synced = bytearray(content)
        self._unsynced: set[int] = set()

    def write(self, data: bytes, offset: int) -> None:
        """Change the seen bytes; a gap before ``offset`` is filled with zeros."""
        if offset > len(self.seen):
            self.truncate(offset)
        self.seen[offset : offset + len(data)] = data
        self._unsynced.update(range(offset // SECTOR, -(-(offset + len(data)) // SECTOR)))
        self.changed_ns = time.time_ns()

    def truncate(self, length: int) -> None:
        """Cut the seen bytes, or extend them with zeros."""
        shorter, longer = sorted((length, len(self.seen)))
        self.seen[length:] = bytes(max(length - len(self.seen), 0))
        self._unsynced.update(range(shorter // SECTOR, -(-longer // SECTOR)))
        self.changed_ns = time.time_ns()

    def sync(self) -> None:
        """Put all bytes on the disk."""
        self._put(self._unsynced, len(self.seen))

    def cut(self, dice: random.Random, share: float) -> None:
        """Lose all unsynced changes, except ``share`` of the sectors and perhaps the length."""
        lucky = {sector for sector in sorted(self._unsynced) if dice.random() < share}
        length = len(self.synced)
        if share and dice.random() < share:
            length = len(self.seen)
        self._put(lucky, length)
        self.seen = bytearray(self.synced)

    def _put(self, sectors: set[int], length: int) -> None:
        self.synced[length:] = bytes(max(length - len(self.synced), 0))
        for sector in sectors:
            start = sector * SECTOR
            end = min(start + SECTOR, length, len(self.seen))
            if start < end:
                self.synced[start:end] = self.seen[start:end]
        self._unsynced = set()


class Folder:
    """A folder: its names as programs see them, and as they are on the disk."""

    def __init__(self, mode: int = 0o755) -> None:
        self.mode = stat.S_IFDIR | stat.S_IMODE(mode)
        self.changed_ns = time.time_ns()
        self.seen: dict[str, File | Folder] = {}
        self.synced: dict[str, File | Folder] = {}
        self._unsynced: list[dict[str, File | Folder | None]] = []

    def change(self, names: dict[str, File | Folder | None]) -> None:
        """Assign these nodes to ``names``, or remove them (None): all at once or none."""
        self._unsynced.append(names)
        _apply(self.seen, names)
        self.changed_ns = time.time_ns()

    def sync(self) -> None:
        """Put its names on the disk, without the content of their nodes."""
        self.synced = dict(self.seen)
        self._unsynced = []

    def cut(self, dice: random.Random, share: float) -> None:
        """Lose the unsynced changes to names, except the first few; cut all nodes below, too."""
        lucky = dice.randint(0, len(self._unsynced)) if share else 0
        for names in self._unsynced[:lucky]:
            _apply(self.synced, names)
        self._unsynced = []
        self.seen = dict(self.synced)
        for _, node in sorted(self.seen.items()):
            node.cut(dice, share)


def _apply(names: dict[str, File | Folder], changes: dict[str, File | Folder | None]) -> None:
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def load(path: Path) -> Folder:
    """Return the tree at ``path``, completely on the disk."""
    folder = Folder(path.stat().st_mode)
    for entry in path.iterdir():
        if entry.is_dir():
            folder.seen[entry.name] = load(entry)
        else:
            folder.seen[entry.name] = File(entry.stat().st_mode, entry.read_bytes())
    folder.sync()
    return folder


def save(folder: Folder, path: Path) -> None:
    """Make ``path`` equal to the on-disk state of ``folder``."""
    path.mkdir(exist_ok=True)
    for entry in path.iterdir():
        there = folder.synced.get(entry.name)
        if entry.is_dir():
            if not isinstance(there, Folder):
                save(Folder(), entry)
                entry.rmdir()
        elif not isinstance(there, File):
            entry.unlink()
    for name, node in folder.synced.items():
        if isinstance(node, Folder):
            save(node, path / name)
        else:
            (path / name).write_bytes(node.synced)


def sync_all(folder: Folder) -> None:
    folder.sync()
    for node in folder.seen.values():
        if isinstance(node, Folder):
            sync_all(node)
        else:
            node.sync()
