"""The clocks that are asked for the time: each node has one vote."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from newsfabric.errors import StoreUnavailable
from newsfabric.store import _cassandra_rows as rows
from newsfabric.store import open_store
from newsfabric.store._cassandra_session import CassandraSession
from newsfabric.store.cassandra import CassandraStore
from newsfabric.topics import TopicPolicy, TopicTable

TOPICS = TopicTable([TopicPolicy(pattern="news.#")])
NODES = [uuid.UUID(int=n) for n in range(5)]


@pytest.fixture
async def store() -> CassandraStore:
    """Return a store that hasn't connected."""
    opened = open_store("cassandra://10.0.0.1/news?dc=oregon", TOPICS)
    assert isinstance(opened, CassandraStore)
    return opened


def answered_by(monkeypatch: pytest.MonkeyPatch, nodes: Iterable[int]) -> Iterator[int]:
    """Let these nodes answer the store's requests in turn, node n with time n; return the rest."""
    left = iter(nodes)

    async def read(
        session: CassandraSession, statement: str, values: Sequence[Any], *, at: str
    ) -> Any:
        assert (statement, at) == (rows.CLOCK, "oregon")
        node = next(left)
        return [(NODES[node], node)]

    monkeypatch.setattr(CassandraSession, "read", read)
    return left


async def test_three_nodes_are_asked(store: CassandraStore, monkeypatch: pytest.MonkeyPatch):
    left = answered_by(monkeypatch, itertools.cycle([2, 0, 1]))
    assert sorted(await store.clocks_ms()) == [0, 1, 2]
    assert next(left) == 2


async def test_a_node_that_is_asked_twice_counts_once_and_others_are_asked_as_well(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
):
    answered_by(monkeypatch, [2, 2, 0, 2, 1, 2])
    assert sorted(await store.clocks_ms()) == [0, 1, 2]


async def test_where_there_are_fewer_nodes_those_count(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
):
    answered_by(monkeypatch, [0, 1, 0, 1, 0, 1, 0, 1, 0])
    assert sorted(await store.clocks_ms()) == [0, 1]


async def test_a_node_that_does_not_answer_makes_the_store_say_nothing(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
):
    async def read(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(CassandraSession, "read", read)
    with pytest.raises(StoreUnavailable):
        await store.clocks_ms()
