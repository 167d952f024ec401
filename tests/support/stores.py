"""The stores that the contract's tests (tests/store) run on, and the topics that they know.

To add a store, add an entry to STORES: a function from a folder, topics and a clock to an open,
empty store. A store whose clock can't be set needs a note there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from envelopes import Clock

from newsfabric.store import Store
from newsfabric.store.memory import MemoryStore
from newsfabric.store.sqlite import SqliteStore
from newsfabric.topics import TopicPolicy, TopicTable

TTL_MS = 3_600_000
SHORT_TTL_MS = 1_000
SHORTEST_MS = 600_000
TOPICS = TopicTable(
    [
        TopicPolicy(pattern="markets.#", ttl=SHORT_TTL_MS / 1000),
        TopicPolicy(pattern="news.#", ttl=TTL_MS / 1000),
        TopicPolicy(pattern="user.*", topic_class="gold", access="owner", ttl=TTL_MS / 1000),
        TopicPolicy(pattern="bills.*", topic_class="silver", access="owner", ttl=TTL_MS / 1000),
    ]
)
Opener = Callable[[Path, TopicTable, Clock], Store]
STORES: dict[str, Opener] = {
    "memory": lambda _folder, topics, clock: MemoryStore(topics, now_ms=clock),
    "sqlite": lambda folder, topics, clock: SqliteStore(folder / "store.db", topics, now_ms=clock),
}
ALL_STORES = [*STORES, pytest.param("cassandra", marks=pytest.mark.cassandra)]
