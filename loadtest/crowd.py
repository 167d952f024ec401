"""``newsfabric-crowd`` (Rust, ``bench/fanout``): its path, its build, and its command line.

Surges use it by asyncio and locust by gevent, so each has a few lines of its own for the pipes.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[1]
#: The program; :func:`build` makes it.
PROGRAM: Final = _ROOT / "target" / "release" / "newsfabric-crowd"
#: Longest line of its output, in bytes: 20,000 readers with different records.
LINE_LIMIT: Final = 1 << 26


def build() -> None:
    """Make :data:`PROGRAM`. FileNotFoundError without cargo, CalledProcessError if it fails."""
    if shutil.which("cargo") is None:
        raise FileNotFoundError("cargo is missing: the crowd is written in Rust")
    command = ("cargo", "build", "--quiet", "--release", "--package", "newsfabric-fanout")
    subprocess.run(command, check=True, cwd=_ROOT)


def command(
    *, frontdesks: Sequence[str], topics: Sequence[str], source: str, own: bool, seed: int | None
) -> list[str]:
    """Return the command line. ``own``: its targets need not be on loopback."""
    arguments = [str(PROGRAM), "--frontdesks", ",".join(frontdesks), "--topics", ",".join(topics)]
    arguments += ["--source", source]
    if seed is not None:
        arguments += ["--seed", str(seed)]
    return [*arguments, "--i-own-this-target"] if own else arguments
