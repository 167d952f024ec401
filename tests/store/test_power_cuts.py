"""Acknowledged writes of the SQLite file survive a power cut, which loses the page cache."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from acknowledged_writes import TOPICS, Writer, lost
from power_cuts import CutDisk

from newsfabric.store.sqlite import SqliteStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def disk(power_cuts: None, tmp_path: Path) -> Iterator[CutDisk]:
    with CutDisk(tmp_path / "mount", tmp_path / "disk") as made:
        yield made


@pytest.mark.promise("R6")
@pytest.mark.parametrize("share", [0.0, 0.5], ids=["synced", "synced and some more"])
@pytest.mark.parametrize("seed", range(5))
async def test_what_was_acknowledged_before_the_power_was_cut_is_there(disk, seed, share):
    path = disk.mount / "store.db"
    writer = Writer(f"sqlite:{path}")
    acknowledged = writer.acknowledged(random.Random(seed).randrange(50, 3_000))
    disk.cut(seed, share)
    acknowledged |= writer.killed()
    disk.unmount()
    disk.power_on()
    store = SqliteStore(path, TOPICS)
    try:
        assert await lost(store, acknowledged) == set()
    finally:
        await store.close()
