"""Writes to a store until it can't, and says which messages the store has acknowledged.

``python acknowledged_writes.py URL WRITERS`` prints the number of each message on a line of its
own, when the store has it.
"""

from __future__ import annotations

import asyncio
import sys
import time

from envelopes import envelope

from newsfabric.envelope import Envelope, id_of, identity_of
from newsfabric.errors import StoreError
from newsfabric.store import Store, open_store
from newsfabric.topics import TopicPolicy, TopicTable

TOPICS = TopicTable([TopicPolicy(pattern="#", ttl=3600.0)])
EPOCH_MS = 1_735_689_600_000
ROUTER = "oregon-router-1"


def message(number: int) -> Envelope:
    """Message ``number``, routed now; whoever reads it knows its number and its body."""
    identity = identity_of(
        app_id=None, message_id=str(number), topic="", published_ms=None, body=b""
    )
    ms = time.time_ns() // 1_000_000
    return envelope(
        number,
        id=id_of(ms, identity),
        identity=identity,
        topic=f"news.t{number % 7}",
        epoch=EPOCH_MS,
        router=ROUTER,
        key=f"story-{number % 5}" if number % 3 else None,
        body=b"%d" % number * 100,
        message_id=str(number),
    )


async def _write(store: Store, first: int, step: int) -> None:
    number = first
    while True:
        try:
            await store.write([message(number)])
        except StoreError:
            return
        print(number, flush=True)
        number += step


async def _main(url: str, writers: int) -> None:
    store = open_store(url, TOPICS)
    await store.check()
    await asyncio.gather(*(_write(store, n + 1, writers) for n in range(writers)))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2])))
