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
    """What this machine lacks for such a disk, or None."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse, of which a container must be told"
    if shutil.which("fusermount3") is None:
        return "fusermount3 (package fuse3)"
    if importlib.util.find_spec("mfusepy") is None:
        return "mfusepy (pip)"
    return None


class Disk:
    """A disk at ``mount``; what is on it is at ``on_disk``. Both are made if they aren't there."""

    def __init__(self, mount: Path, on_disk: Path, *, journal: bool = False) -> None:
        """With ``journal`` names are written as ext4 and XFS do (unsynced.py)."""
        self.mount = mount
        self.on_disk = on_disk
        self._options = ["journal"] if journal else []
        self._process: subprocess.Popen[bytes] | None = None

    def power_on(self) -> None:
        """Mount it, with what it had at the end."""
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
        """Forget what wasn't synced, but for ``share`` of it; from now on all fails with EIO."""
        os.setxattr(self.mount, POWER_CUT, f"{seed} {share}".encode())

    def unmount(self, *options: str) -> None:
        """Let go of it, when nothing has a file of it open; if its power is on, all is synced."""
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
        # Lazily: a test that has failed may have files of it open.
        self.unmount("-z")
