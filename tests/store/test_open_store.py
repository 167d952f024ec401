"""The store that an option names."""

from __future__ import annotations

from pathlib import Path

import pytest

from newsfabric.errors import ConfigError
from newsfabric.store import check_region, open_store
from newsfabric.store.memory import MemoryStore
from newsfabric.store.sqlite import SqliteStore
from newsfabric.topics import TopicPolicy, TopicTable

TOPICS = TopicTable([TopicPolicy(pattern="#")])


async def test_memory_is_a_store_of_this_process():
    assert isinstance(open_store("memory:", TOPICS), MemoryStore)


async def test_sqlite_is_the_file_behind_the_first_colon(tmp_path: Path):
    store = open_store(f"sqlite:{tmp_path}/odd:name.db", TOPICS)
    assert isinstance(store, SqliteStore)
    await store.check()
    await store.close()
    assert (tmp_path / "odd:name.db").exists()


@pytest.mark.parametrize("url", ["", "sqlite", "sqlite:", "memory:x", "redis:x", ":"])
def test_anything_else_is_a_config_error_that_says_what_to_write(url):
    with pytest.raises(ConfigError, match="write sqlite:PATH or memory: or cassandra://"):
        open_store(url, TOPICS)


def test_a_services_store_is_that_of_its_region():
    check_region("sqlite:news.db", "oregon")
    check_region("cassandra://10.0.0.1/news?dc=oregon", "oregon")
    with pytest.raises(ConfigError, match="has dc=dc1, and this service is of region oregon"):
        check_region("cassandra://10.0.0.1/news?dc=dc1", "oregon")
