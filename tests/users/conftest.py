"""newsfabric as its users get it: packed, unpacked elsewhere, and no file of this checkout.

What is packed is all that git knows of here, with changes that aren't committed. Each part of it
is packed as `make release` packs it, but for what needs a registry or minutes: the wheel is without
the data plane, and the Java library's jar is by javac, beside the jars that Maven has fetched.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packed import UsersWorld, missing, printed
from worlds import ROOT, World


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout as an archive of it unpacks."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        missing("this is no checkout, or git is missing")
    folder = tmp_path_factory.mktemp("users")
    archive, checkout = folder / "newsfabric.tar", folder / "checkout"
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    with tarfile.open(archive, "w") as packed:
        for name in filter(None, names):
            # One that was deleted and isn't committed.
            if (ROOT / name).exists():
                packed.add(ROOT / name, name, recursive=False)
    with tarfile.open(archive) as packed:
        packed.extractall(checkout, filter="data")
    return checkout


@pytest.fixture(scope="session")
def site(unpacked: Path) -> Path:
    """What the wheel of it installs."""
    wheels, site = unpacked.parent / "wheels", unpacked.parent / "site"
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"]
    printed([*pip, "--no-build-isolation", "--wheel-dir", wheels, "."], unpacked)
    (wheel,) = wheels.glob("newsfabric-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    return site


@pytest.fixture
def used(world: World, site: Path) -> UsersWorld:
    """The world, and the commands that the wheel brings."""
    return UsersWorld(world.state, site)
