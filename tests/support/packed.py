"""Commands as users of a packed newsfabric run them on a world, without this checkout."""

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
    """Skip on a laptop, fail in CI."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


def done(
    words: Sequence[str | Path], folder: Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``words`` in ``folder``; never raise for an exit code."""
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
    """Run the same, and return its output; fail the test if it fails."""
    ended = done(words, folder, environ)
    assert ended.returncode == 0, f"{words}: {ended.stderr}{ended.stdout}"
    return ended.stdout


@dataclasses.dataclass(frozen=True)
class UsersWorld(World):
    """A world used with the ``newsfabric`` of the folder ``site``."""

    site: Path

    def run(self, *arguments: str, timeout: float = WITHIN) -> subprocess.CompletedProcess[str]:
        """Run like :meth:`World.run`, in the folder and without this checkout."""
        return self.plain(*arguments, "--state", str(self.state))

    def plain(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command that belongs to no world."""
        words = [sys.executable, "-m", "operations.cli", *arguments]
        return done(words, self.site, {"PYTHONPATH": str(self.site)} | _data_plane())


def _data_plane() -> dict[str, str]:
    """Return the variable that names the checkout's data plane, if there is one: unlike a
    release's wheel, the one packed here has none. So a healed world keeps its engine."""
    try:
        return {VARIABLE: str(find_program())}
    except SetupError:
        return {}
