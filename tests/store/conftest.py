"""Fixtures for tests of the Cassandra store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cassandra_keyspace import Keyspace

from newsfabric.world.cassandra import LocalCassandra


@pytest.fixture(scope="session")
def keyspace(cassandra: LocalCassandra) -> Iterator[Keyspace]:
    """One keyspace for all tests of the store; each empties it first."""
    made = Keyspace(cassandra, "contract")
    yield made
    made.close()
