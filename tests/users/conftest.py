"""newsfabric as its users get it: packed, unpacked elsewhere, and without this checkout's files.

All files that git tracks are packed, with uncommitted changes. Each part is packed as by `make
release`, except where that needs a registry or minutes: the wheel has no data plane, and javac
builds the Java library's jar, beside the jars that Maven has fetched.
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
    """Pack the checkout into an archive, unpack it, and return the folder."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        missing("this is no checkout, or git is missing")
    folder = tmp_path_factory.mktemp("users")
    archive, checkout = folder / "newsfabric.tar", folder / "checkout"
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    with tarfile.open(archive, "w") as packed:
        for name in filter(None, names):
            # A deleted file whose deletion isn't committed is still listed.
            if (ROOT / name).exists():
                packed.add(ROOT / name, name, recursive=False)
    with tarfile.open(archive) as packed:
        packed.extractall(checkout, filter="data")
    return checkout


@pytest.fixture(scope="session")
def site(unpacked: Path) -> Path:
    """Build the wheel of the unpacked checkout; return the folder with its installed files."""
    wheels, site = unpacked.parent / "wheels", unpacked.parent / "site"
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"]
    printed([*pip, "--no-build-isolation", "--wheel-dir", wheels, "."], unpacked)
    (wheel,) = wheels.glob("newsfabric-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    return site


@pytest.fixture
def used(world: World, site: Path) -> UsersWorld:
    """Return the standing world, with the commands that the wheel installs."""
    return UsersWorld(world.state, site)
