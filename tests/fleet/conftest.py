"""A fleet of six machines of the tests' own, for tests marked ``fleet``.

``NEWSFABRIC_FLEET_SUITE`` names the machines' Debian release, as for the fleet's program.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from fleet.fleet import Fleet
from fleet.folders import CHECKOUT, Folders
from fleet.image import DEFAULT_SUITE
from fleet.precheck import missing
from tests.fleet.fabrics import plays

SUITE: Final = os.environ.get("NEWSFABRIC_FLEET_SUITE", DEFAULT_SUITE)


def _not_here(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"CI must be able to boot a fleet: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def layers() -> Path:
    """Return the image's layers, which `make test-fleet` has made."""
    if found := missing():
        _not_here("; ".join(found))
    folders = Folders.at(CHECKOUT / ".fleet")
    if not Fleet(folders, print).image(SUITE).ready:
        _not_here(f"there is no image of {SUITE}: `make test-fleet` makes it")
    return folders.layers


@contextlib.contextmanager
def fleet_in(folder: Path, layers: Path) -> Iterator[Fleet]:
    """Make a fleet with an image and no machines, and end it in any case."""
    folders = Folders.at(folder)
    folders.top.mkdir()
    # Links are enough: no process writes to a layer.
    subprocess.run(["cp", "-al", layers, folders.layers], check=True)
    fleet = Fleet(folders, print)
    try:
        yield fleet
    finally:
        fleet.down(image_too=True)
        shutil.rmtree(folders.top)


@contextlib.contextmanager
def fabric_in(
    folders: pytest.TempPathFactory, layers: Path, port_base: int, more: Sequence[str]
) -> Iterator[Fleet]:
    """Boot six machines and the machines ``more``, and let site.yml make a fabric of them."""
    with fleet_in(folders.mktemp("fleet") / "a fleet's folder", layers) as fleet:
        fleet.up(6, suite=SUITE, port_base=port_base)
        fleet.boot(more, new=False)
        plays(fleet, "site.yml")
        yield fleet


@pytest.fixture
def empty_fleet(layers: Path, tmp_path: Path) -> Iterator[Fleet]:
    """Make a fleet with an image and no machines."""
    with fleet_in(tmp_path / "a fleet's folder", layers) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def port_base() -> int:
    """Return the first port of the boards' forwards, away from the ports of a fleet in use."""
    return int(os.environ.get("NEWSFABRIC_TEST_PORTS", "19000"))


@pytest.fixture
def fleet(empty_fleet: Fleet, port_base: int) -> Fleet:
    """Boot a fleet of six machines."""
    empty_fleet.up(6, suite=SUITE, port_base=port_base)
    return empty_fleet
