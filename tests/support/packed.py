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

WITHIN = 240.0
# The wheel that is packed here has no data plane, which CI makes a must in a checkout.
_ENVIRONMENT = {name: it for name, it in os.environ.items() if name != "NEWSFABRIC_GATEWAY_ENGINE"}


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
        env=_ENVIRONMENT | (environ or {}),
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
        words = [sys.executable, "-m", "newsfabric.cli", *arguments]
        return done(words, self.site, {"PYTHONPATH": str(self.site)})
