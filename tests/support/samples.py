"""examples/go, examples/node and examples/ruby as programs: built, each in a copy of its folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from worlds import ROOT

SAMPLES = ("go", "node", "ruby")
BUILT_WITHIN = 300.0


def run(
    words: Sequence[str | Path], folder: Path, seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run ``words`` in ``folder``, to their end."""
    return subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
    )


def command(language: str, folder: Path) -> list[str]:
    """The command of the sample in ``language``, without its arguments, made in ``folder``.

    Skips where its toolchain is missing, fails in CI.
    """
    match language:
        case "go":
            return [str(_built("go", "go", ["go", "build", "-o", "publish"], folder) / "publish")]
        case "node":
            build = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            return ["node", str(_built("node", "npm", build, folder) / "publish.mjs")]
        case _:
            # So it fails here and not in the test if the library is missing.
            build = ["ruby", "-e", "require 'bunny'"]
            return ["ruby", str(_built("ruby", "ruby", build, folder) / "publish.rb")]


def _built(language: str, needed: str, build: Sequence[str], folder: Path) -> Path:
    """A copy of the example, in which ``build`` has run."""
    if shutil.which(needed) is None:
        _missing(f"{needed} is missing: `make setup` installs what it can")
    copy = folder / language
    shutil.copytree(
        ROOT / "examples" / language, copy, ignore=shutil.ignore_patterns("node_modules")
    )
    if build and (done := run(build, copy, BUILT_WITHIN)).returncode:
        _missing(f"examples/{language} can't be built: {done.stderr[-500:]}")
    return copy


def _missing(why: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)
