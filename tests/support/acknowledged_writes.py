"""Messages that a store acknowledged: a program that writes until a write fails, and its output.

``python acknowledged_writes.py URL FIRST`` writes messages from number FIRST on, up to 8 at once.
It prints the number of each message on its own line when the store has acknowledged it.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from pathlib import Path

from envelopes import envelope

from newsfabric.errors import StoreError
from newsfabric.messages.envelope import Envelope, id_of, identity_of
from newsfabric.store import Store, open_store
from newsfabric.store.logs import Log
from newsfabric.topics import TopicPolicy, TopicTable

TOPICS = TopicTable([TopicPolicy(pattern="#", ttl=3600.0)])
LOG = Log("oregon", "oregon-router-1", 1_735_689_600_000)
AT_ONCE = 8
# The limit of numbers in one read of the store.
PAGE = 4_096


class Writer:
    """The program as a process, which writes from message ``first`` on."""

    def __init__(self, url: str, first: int = 1) -> None:
        words = [sys.executable, str(Path(__file__)), url, str(first)]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def acknowledged(self, most: int | None = None) -> set[int]:
        """Return the next ``most`` acknowledged numbers; None: all until the program ends."""
        assert self._process.stdout is not None
        acknowledged: set[int] = set()
        while most is None or len(acknowledged) < most:
            line = self._process.stdout.readline()
            if not line.endswith("\n"):
                break
            acknowledged.add(int(line))
        return acknowledged

    def killed(self) -> set[int]:
        """Kill the program; return the acknowledged numbers that weren't returned yet."""
        self._process.kill()
        acknowledged = self.acknowledged()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait()
        return acknowledged


async def lost(store: Store, numbers: set[int]) -> set[int]:
    """Return those of ``numbers`` that the store doesn't have, or has with another body."""
    whole: set[int] = set()
    for first in range(min(numbers), max(numbers) + 1, PAGE):
        page = await store.numbers(LOG, first=first, last=first + PAGE - 1, limit=PAGE)
        whole |= {n.seq for n in page if n.envelope and n.envelope.body == body(n.seq)}
    return numbers - whole


def body(number: int) -> bytes:
    """Return the body of message ``number``."""
    return b"%d" % number * 100


def message(number: int) -> Envelope:
    """Return message ``number``, with the present time as its time of routing."""
    identity = identity_of(
        app_id=None, message_id=str(number), topic="", published_ms=None, body=b""
    )
    return envelope(
        number,
        id=id_of(time.time_ns() // 1_000_000, identity),
        identity=identity,
        topic=f"news.t{number % 7}",
        epoch=LOG.epoch,
        router=LOG.router,
        key=f"story-{number % 5}" if number % 3 else None,
        body=body(number),
        message_id=str(number),
    )


async def _write(store: Store, numbers: itertools.count[int]) -> None:
    for number in numbers:
        try:
            await store.write([message(number)])
        except StoreError:
            return
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


async def _main(url: str, first: int) -> None:
    store, numbers = open_store(url, TOPICS), itertools.count(first)
    await asyncio.gather(*(_write(store, numbers) for _ in range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2])))
