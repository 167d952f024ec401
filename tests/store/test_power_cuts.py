"""What a store has acknowledged is there after a power cut, of which no page cache remains."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from acknowledged_writes import EPOCH_MS, ROUTER, TOPICS
from power_cuts import Disk

from newsfabric.store import Store
from newsfabric.store.logs import Log, Number, State
from newsfabric.store.sqlite import SqliteStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SUPPORT = Path(__file__).parents[1] / "support"
PROGRAM = SUPPORT / "acknowledged_writes.py"
LOG = Log("oregon", ROUTER, EPOCH_MS)
WRITERS = 8
PAGE = 4_096


@pytest.fixture
def disk(power_cuts: None, tmp_path: Path) -> Iterator[Disk]:
    with Disk(tmp_path / "mount", tmp_path / "disk") as made:
        yield made


def writing(url: str) -> subprocess.Popen[str]:
    words = [sys.executable, str(PROGRAM), url, str(WRITERS)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def acknowledged(writer: subprocess.Popen[str], most: int | None = None) -> set[int]:
    """The next ``most`` numbers that it says, or all until its end."""
    assert writer.stdout is not None
    said = set()
    while most is None or len(said) < most:
        line = writer.stdout.readline()
        if not line.endswith("\n"):
            break
        said.add(int(line))
    return said


def ended(writer: subprocess.Popen[str]) -> set[int]:
    """Kill it; the numbers that it had said before."""
    writer.kill()
    said = acknowledged(writer)
    assert writer.stdout is not None
    writer.stdout.close()
    writer.wait()
    return said


async def log_of(store: Store, most: int) -> dict[int, Number]:
    found: dict[int, Number] = {}
    for first in range(1, most + 1, PAGE):
        page = await store.numbers(LOG, first=first, last=first + PAGE - 1, limit=PAGE)
        found |= {number.seq: number for number in page}
    return found


async def lost(store: Store, numbers: set[int]) -> set[int]:
    """Which of ``numbers`` the store doesn't have whole."""
    there = await log_of(store, max(numbers))
    whole = {seq for seq, n in there.items() if n.envelope and n.envelope.body == b"%d" % seq * 100}
    return numbers - whole


@pytest.mark.promise("R1", "R4")
@pytest.mark.parametrize("share", [0.0, 0.5], ids=["nothing more", "some of it by itself"])
@pytest.mark.parametrize("seed", range(5))
async def test_sqlite_has_what_it_acknowledged_before_its_power_was_cut(disk, seed, share):
    path = disk.mount / "store.db"
    writer = writing(f"sqlite:{path}")
    said = acknowledged(writer, random.Random(seed).randrange(50, 3_000))
    disk.cut(seed, share)
    said |= ended(writer)
    disk.unmount()
    disk.power_on()
    store = SqliteStore(path, TOPICS)
    assert await lost(store, said) == set()
    await store.close()
