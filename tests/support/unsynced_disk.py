"""A file system in memory that loses unsynced data when its power is cut (unsynced.py).

``python unsynced_disk.py FOLDER MOUNT [journal]`` serves it at MOUNT until it is unmounted. FOLDER
is the disk's content at first, and is written at a cut or an unmount. After a cut each
call fails with EIO. ``msync`` of a mapped file arrives here as a write and an ``fsync``. With
``journal``, the sync of a file syncs the names of all folders.
"""

from __future__ import annotations

import errno
import os
import random
import stat
import sys
import time
from pathlib import Path
from typing import Any

# fuse3, because libfuse 2 may be installed too.
os.environ["FUSE_LIBRARY_NAME"] = "fuse3"

import mfusepy
from unsynced import SECTOR, File, Folder, load, save, sync_all

# Extended attributes of the root. Setting the first to "SEED SHARE" cuts the power; setting the
# second puts all data on the disk.
POWER_CUT = "user.power_cut"
SETTLED = "user.settled"
_CAPACITY = 1 << 36
_BLOCK = 4096
_CACHED_SECONDS = 3600


class UnsyncedDisk(mfusepy.Operations):  # type: ignore[misc]
    """A tree of folders and files with libfuse's operations, by path; one call at a time."""

    use_ns = True

    def __init__(self, folder: Path, *, journal: bool) -> None:
        self._folder = folder
        self._journal = journal
        # With a journal, the folders with unsynced names.
        self._changed: set[Folder] = set()
        self._root = load(folder)
        self._open: dict[int, File] = {}
        self._handles = iter(range(1, sys.maxsize))
        self._on = True

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
        self._check_power()
        if name == SETTLED:
            sync_all(self._root)
        elif name == POWER_CUT:
            seed, share = value.decode().split()
            self._root.cut(random.Random(int(seed)), float(share))
            save(self._root, self._folder)
            self._on = False
        else:
            raise mfusepy.FuseOSError(errno.ENOTSUP)
        return 0

    def destroy(self, path: str) -> None:
        if self._on:
            sync_all(self._root)
            save(self._root, self._folder)

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        node = self._find(path) if fh is None else self._file(fh)
        size = len(node.seen) if isinstance(node, File) else _BLOCK
        return {
            "st_mode": node.mode,
            "st_nlink": 1 if isinstance(node, File) else 2,
            "st_size": size,
            "st_blocks": -(-size // SECTOR),
            "st_uid": os.getuid(),
            "st_gid": os.getgid(),
            "st_mtime": node.changed_ns,
            "st_ctime": node.changed_ns,
            "st_atime": node.changed_ns,
        }

    def statfs(self, path: str) -> dict[str, int]:
        blocks = _CAPACITY // _BLOCK
        return {
            "f_bsize": _BLOCK,
            "f_frsize": _BLOCK,
            "f_blocks": blocks,
            "f_bfree": blocks,
            "f_bavail": blocks,
            "f_namemax": 255,
        }

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *self._find(path).seen]

    def mkdir(self, path: str, mode: int) -> int:
        folder, name = self._parent(path)
        folder.change({name: Folder(mode)})
        return 0

    def rmdir(self, path: str) -> int:
        if self._find(path).seen:
            raise mfusepy.FuseOSError(errno.ENOTEMPTY)
        return self.unlink(path)

    def unlink(self, path: str) -> int:
        folder, name = self._parent(path)
        folder.change({name: None})
        return 0

    def rename(self, old: str, new: str) -> int:
        node = self._find(old)
        from_folder, old_name = self._parent(old)
        to_folder, new_name = self._parent(new)
        if from_folder is to_folder:
            from_folder.change({old_name: None, new_name: node})
        else:
            to_folder.change({new_name: node})
            from_folder.change({old_name: None})
        return 0

    def link(self, target: str, source: str) -> int:
        folder, name = self._parent(target)
        folder.change({name: self._find(source)})
        return 0

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        folder, name = self._parent(path)
        made = File(mode)
        folder.change({name: made})
        return self._opened(made)

    def open(self, path: str, flags: int) -> int:
        node = self._find(path)
        if flags & os.O_TRUNC:
            node.truncate(0)
        return self._opened(node)

    def release(self, path: str, fh: int) -> int:
        self._open.pop(fh, None)
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return bytes(self._file(fh).seen[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self._file(fh).write(data, offset)
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        node = self._find(path) if fh is None else self._file(fh)
        node.truncate(length)
        return 0

    def chmod(self, path: str, mode: int) -> int:
        node = self._find(path)
        node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        self._find(path).changed_ns = times[1] if times else time.time_ns()
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self._file(fh).sync()
        for folder in self._changed:
            folder.sync()
        self._changed.clear()
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        self._find(path).sync()
        return 0

    def _opened(self, node: File) -> int:
        handle = next(self._handles)
        self._open[handle] = node
        return handle

    def _file(self, handle: int) -> File:
        self._check_power()
        return self._open[handle]

    def _find(self, path: str) -> Any:
        self._check_power()
        node: File | Folder = self._root
        for name in path.split("/"):
            if not name:
                continue
            if not isinstance(node, Folder):
                raise mfusepy.FuseOSError(errno.ENOTDIR)
            if name not in node.seen:
                raise mfusepy.FuseOSError(errno.ENOENT)
            node = node.seen[name]
        return node

    def _check_power(self) -> None:
        if not self._on:
            raise mfusepy.FuseOSError(errno.EIO)

    def _parent(self, path: str) -> tuple[Folder, str]:
        """Return the folder and the name of ``path``, for a call that changes that name."""
        parent, _, name = path.rpartition("/")
        folder: Folder = self._find(parent)
        if self._journal:
            self._changed.add(folder)
        return folder, name


if __name__ == "__main__":
    mfusepy.FUSE(
        UnsyncedDisk(Path(sys.argv[1]), journal="journal" in sys.argv[3:]),
        sys.argv[2],
        foreground=True,
        nothreads=True,
        auto_unmount=True,
        # Only this mount changes the tree.
        entry_timeout=_CACHED_SECONDS,
        attr_timeout=_CACHED_SECONDS,
    )
