"""An anonymous reader who knows of a topic that the store can't read."""

from __future__ import annotations

from typing import Any

import pytest
from gateways import ENGINES, opened_box

from newsfabric.envelope import Envelope
from newsfabric.errors import StoreError
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicPolicy, TopicTable

TABLE = TopicTable([TopicPolicy(pattern="news.#", keep=0)])


class Spoilt(MemoryStore):
    """A store with a row of ``news.spoilt`` that no router wrote."""

    async def history(self, topic: str, **asked: Any) -> list[Envelope]:
        if topic == "news.spoilt":
            raise StoreError("the store holds what no router wrote")
        return await super().history(topic, **asked)


@pytest.mark.parametrize("engine", list(ENGINES))
async def test_asking_for_what_is_spoilt_keeps_all_others_from_the_store(engine: str) -> None:
    store = Spoilt(TABLE)
    async with opened_box(engine, table=TABLE, store=store) as box:
        await store.write([box.envelope(f"news.n{n}") for n in range(20)])
        async with box.reader() as attacker, box.reader() as reader:
            for n in range(20):
                refused = await attacker.ask(action="history", topic="news.spoilt")
                assert (refused["type"], refused["code"]) == ("error", 100)
                found = await reader.ask(action="history", topic=f"news.n{n}")
                assert found["type"] == "history", found
                assert len(found["messages"]) == 1
