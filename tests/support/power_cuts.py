"""Disks whose power a test can cut (unsynced_disk.py)."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

PROGRAM = Path(__file__).with_name("unsynced_disk.py")
# As in unsynced_disk.
POWER_CUT = "user.power_cut"
SETTLED = "user.settled"
PATIENCE = 120.0


def lacking() -> str | None:
    """Return the first thing that this machine lacks for such a disk, or None."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse, which a container must be given"
    if shutil.which("fusermount3") is None:
        return "fusermount3 (package fuse3)"
    if importlib.util.find_spec("mfusepy") is None:
        return "mfusepy (pip)"
    return None


class CutDisk:
    """A disk at ``mount``, with its synced content at ``on_disk``; both are made if missing."""

    def __init__(self, mount: Path, on_disk: Path, *, journal: bool = False) -> None:
        """Prepare a disk; with ``journal``, names are written as in ext4 and XFS (unsynced.py)."""
        self.mount = mount
        self.on_disk = on_disk
        self._options = ["journal"] if journal else []
        self._process: subprocess.Popen[bytes] | None = None

    def power_on(self) -> None:
        """Mount it, with the content that it had at the last cut or unmount."""
        self.mount.mkdir(parents=True, exist_ok=True)
        self.on_disk.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, str(PROGRAM), str(self.on_disk), str(self.mount), *self._options]
        with self._log().open("ab") as log:
            self._process = subprocess.Popen(words, stderr=log)
        deadline = time.monotonic() + PATIENCE
        while not self.mount.is_mount():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.mount} is no disk: {self._log().read_text()}")
            time.sleep(0.01)

    def settle(self) -> None:
        """Put on the disk all that was written until now, as a quiet minute does."""
        os.setxattr(self.mount, SETTLED, b"1")

    def cut(self, seed: int = 0, share: float = 0.0) -> None:
        """Lose all unsynced data except ``share`` of it; from now on each call fails with EIO."""
        os.setxattr(self.mount, POWER_CUT, f"{seed} {share}".encode())

    def unmount(self, *options: str) -> None:
        """Unmount it, when no file of it is open; if its power is on, all is synced."""
        if self._process is None:
            return
        subprocess.run(["fusermount3", "-u", *options, str(self.mount)], check=True)
        self._process.wait(PATIENCE)
        self._process = None

    def _log(self) -> Path:
        return self.on_disk.with_name(self.on_disk.name + ".log")

    def __enter__(self) -> Self:
        self.power_on()
        return self

    def __exit__(self, *_: object) -> None:
        # Lazily: after a failed test, files of it may be open.
        self.unmount("-z")
