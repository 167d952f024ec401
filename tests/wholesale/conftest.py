"""Fixtures for the wholesale services: topics, and a core cluster in memory."""

from __future__ import annotations

import pytest
from core_desk import EPOCH, Desk

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
async def desk(topics: TopicTable) -> Desk:
    broker = StubBroker()
    desk = Desk(broker, broker.connect(), MemoryStore(topics, now_ms=lambda: EPOCH), topics)
    await desk.open()
    return desk
