"""Fixtures for tests of stores: each in turn, open and empty."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from cassandra_keyspace import Keyspace
from envelopes import Clock
from stores import ALL_STORES, STORES, TOPICS, Opener

from newsfabric.store import Store
from newsfabric.world.cassandra import LocalCassandra


@pytest.fixture(scope="session")
def keyspace(cassandra: LocalCassandra) -> Iterator[Keyspace]:
    """One keyspace for all tests of the store; each empties it first."""
    made = Keyspace(cassandra, "contract")
    yield made
    made.close()


@pytest.fixture
def clock() -> Clock:
    return Clock(at=10_000)


@pytest.fixture(params=ALL_STORES)
def opener(request: pytest.FixtureRequest) -> Opener:
    if request.param in STORES:
        return STORES[request.param]
    keyspace: Keyspace = request.getfixturevalue("keyspace")
    return lambda _folder, topics, clock: keyspace.emptied(topics, clock)


@pytest.fixture
async def store(opener: Opener, tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
    opened = opener(tmp_path, TOPICS, clock)
    yield opened
    await opened.close()
