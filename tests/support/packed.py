"""What users of a packed newsfabric run: commands, on a world, with nothing of this checkout."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from worlds import World

from gateway.native.program import VARIABLE, find_program
from newsfabric.errors import SetupError

WITHIN = 240.0


def missing(why: str) -> NoReturn:
    """Skips on a laptop, fails in CI."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


def done(
    words: Sequence[str | Path], folder: Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """``words`` run in ``folder``; never raises for what they exit with."""
    return subprocess.run(
        words,
        cwd=folder,
        env=os.environ | (environ or {}),
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )


def printed(
    words: Sequence[str | Path], folder: Path, environ: Mapping[str, str] | None = None
) -> str:
    """What they print; fails the test if they fail."""
    ended = done(words, folder, environ)
    assert ended.returncode == 0, f"{words}: {ended.stderr}{ended.stdout}"
    return ended.stdout


@dataclasses.dataclass(frozen=True)
class UsersWorld(World):
    """A world that somebody uses with the ``newsfabric`` of the folder ``site``."""

    site: Path

    def run(self, *arguments: str, timeout: float = WITHIN) -> subprocess.CompletedProcess[str]:
        """As :meth:`World.run`, in the folder and with nothing of this checkout."""
        return self.plain(*arguments, "--state", str(self.state))

    def plain(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The same for a command that is of no world."""
        words = [sys.executable, "-m", "operations.cli", *arguments]
        return done(words, self.site, {"PYTHONPATH": str(self.site)} | _data_plane())


def _data_plane() -> dict[str, str]:
    """A release's wheel has one. The wheel that is packed here has none, and is given that of the
    checkout: what it heals of the world has the same engine as before."""
    try:
        return {VARIABLE: str(find_program())}
    except SetupError:
        return {}
