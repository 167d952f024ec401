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
# As unsynced_disk.POWER_CUT.
POWER_CUT = "user.power_cut"
PATIENCE = 30.0


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
    """A disk at ``mount``, both folders made if they aren't there; what is on it is at ``on_disk``."""

    def __init__(self, mount: Path, on_disk: Path) -> None:
        self.mount = mount
        self.on_disk = on_disk
        self._process: subprocess.Popen[bytes] | None = None

    def power_on(self) -> None:
        """Mount it, with what it had at the end."""
        self.mount.mkdir(parents=True, exist_ok=True)
        self.on_disk.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, str(PROGRAM), str(self.on_disk), str(self.mount)]
        self._process = subprocess.Popen(words)
        deadline = time.monotonic() + PATIENCE
        while not self.mount.is_mount():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.mount} is no disk")
            time.sleep(0.01)

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

    def __enter__(self) -> Self:
        self.power_on()
        return self

    def __exit__(self, *_: object) -> None:
        # Lazily: a test that has failed may have files of it open.
        self.unmount("-z")
