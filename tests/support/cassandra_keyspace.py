"""A keyspace with our tables on a node for tests; each new store of a test finds it empty."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from localfabric.nodes.cassandra import LocalCassandra
from newsfabric.store._cassandra_cluster import cluster
from newsfabric.store._cassandra_schema import Schema, cql_folder, load_migrations
from newsfabric.store._cassandra_url import Address, parse_address
from newsfabric.store.cassandra import CassandraStore
from newsfabric.topics import TopicTable

TABLES = (
    "messages_by_topic",
    "slots",
    "latest_by_key",
    "inbox",
    "inbox_marks",
    "log",
    "logs",
    "log_names",
    "log_days",
)


class Keyspace:
    """Stores in one keyspace of ``node``; close it at the end."""

    def __init__(self, node: LocalCassandra, name: str) -> None:
        self.address: Address = parse_address(node.url(name))
        replication = {n.datacentre: 1 for n in node.nodes}
        migrations = load_migrations(cql_folder())
        with Schema(self.address, None, migrations, replication=replication) as schema:
            schema.apply(lambda line: None)
        self._cluster = cluster(self.address, None)
        self._session = self._cluster.connect(name)
        # Without a commit log, truncating a table is several times as fast.
        self._session.execute(f"ALTER KEYSPACE {name} WITH durable_writes = false")
        self._dirty = False

    def emptied(
        self, topics: TopicTable, now_ms: Callable[[], int], **options: Any
    ) -> CassandraStore:
        """Return an empty store: the rows of earlier stores are deleted."""
        if self._dirty:
            with ThreadPoolExecutor(len(TABLES)) as threads:
                list(threads.map(self._truncate, TABLES))
        self._dirty = True
        return self.opened(topics, now_ms, **options)

    def opened(
        self, topics: TopicTable, now_ms: Callable[[], int], **options: Any
    ) -> CassandraStore:
        """Return another store with the same content."""
        return CassandraStore(self.address, topics, environ={}, now_ms=now_ms, **options)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a CQL statement."""
        return [tuple(row) for row in self._session.execute(statement)]

    def _truncate(self, table: str) -> None:
        self._session.execute(f"TRUNCATE {table}", timeout=30)

    def close(self) -> None:
        self._cluster.shutdown()
