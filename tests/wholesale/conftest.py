"""Fixtures for the wholesale services: topics, and a core cluster in memory."""

from __future__ import annotations

import pytest
from core_cluster import EPOCH, CoreCluster

from newsfabric.amqp.stub import StubBroker
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicTable, parse_topics


@pytest.fixture
def topics() -> TopicTable:
    return parse_topics(
        {
            "topic": [
                {"pattern": "news.*"},
                {"pattern": "live.*", "class": "gold"},
                {"pattern": "user.*", "access": "owner"},
                {"pattern": "desk.#", "access": "registered"},
                {"pattern": "marks.#", "access": "granted"},
            ]
        }
    )


@pytest.fixture
async def core(topics: TopicTable) -> CoreCluster:
    broker = StubBroker()
    core = CoreCluster(broker, broker.connect(), MemoryStore(topics, now_ms=lambda: EPOCH), topics)
    await core.open()
    return core
