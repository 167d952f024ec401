"""Fixtures for tests of stores: each store in turn, open and empty."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from cassandra_keyspace import Keyspace
from envelopes import Clock
from stores import ALL_STORES, STORES, TOPICS, Opener

from localfabric.nodes.cassandra import LocalCassandra
from newsfabric.errors import StoreUnavailable
from newsfabric.store import Store

PATIENCE = 60.0


@pytest.fixture(scope="session")
def keyspace(cassandra: LocalCassandra) -> Iterator[Keyspace]:
    """Make one keyspace for all tests of the store; each test empties it first."""
    made = Keyspace(cassandra, "contract")
    yield made
    made.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Request the keyspace before each test that uses it, as if the test named it: objects made
    during a test count as left behind by that test."""
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if isinstance(item, pytest.Function) and params.get("opener", "memory") not in STORES:
            # The list itself is shared by all parameters of the function.
            item.fixturenames = ["keyspace", *item.fixturenames]


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
    await _answered(opened)
    yield opened
    await opened.close()


async def _answered(store: Store) -> None:
    """Ask until the store answers: a node on a busy machine may time out at first."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await store.history("news.breaking", limit=1)
            except StoreUnavailable:
                await asyncio.sleep(0.1)
            else:
                return
