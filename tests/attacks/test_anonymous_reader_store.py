"""An anonymous reader asks for a topic that the store can't read."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from gateways import ENGINES, opened_box

from newsfabric.errors import StoreError
from newsfabric.messages.envelope import Envelope
from newsfabric.store.memory import MemoryStore
from newsfabric.store.sqlite import SqliteStore
from newsfabric.topics import TopicPolicy, TopicTable

TABLE = TopicTable([TopicPolicy(pattern="news.#", keep=0)])


class DamagedStore(MemoryStore):
    """A store with a row of ``news.damaged`` that no router wrote."""

    async def history(self, topic: str, **asked: Any) -> list[Envelope]:
        if topic == "news.damaged":
            raise StoreError("the store holds what no router wrote")
        return await super().history(topic, **asked)


@pytest.mark.parametrize("engine", list(ENGINES))
async def test_asking_for_a_damaged_row_keeps_all_others_from_the_store(engine: str) -> None:
    store = DamagedStore(TABLE)
    async with opened_box(engine, table=TABLE, store=store) as box:
        await store.write([box.envelope(f"news.n{n}") for n in range(20)])
        async with box.reader() as attacker, box.reader() as reader:
            for n in range(20):
                refused = await attacker.answer_to(action="history", topic="news.damaged")
                assert (refused["type"], refused["code"]) == ("error", 100)
                found = await reader.answer_to(action="history", topic=f"news.n{n}")
                assert found["type"] == "history", found
                assert len(found["messages"]) == 1


@pytest.mark.parametrize("engine", list(ENGINES))
async def test_a_row_that_cant_be_read_stops_only_itself(engine: str, tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    store = SqliteStore(file, TABLE)
    async with opened_box(engine, table=TABLE, store=store) as box:
        sent = [box.envelope("news.damaged", n) for n in range(5)]
        await box.was_past(sent)
        with contextlib.closing(sqlite3.connect(file)) as other, other:
            other.execute("UPDATE messages SET rest = '[' WHERE id = ?", (sent[2].id,))
            other.execute("UPDATE messages SET body = '{' WHERE id = ?", (sent[3].id,))
        async with box.reader() as reader:
            found = await reader.answer_to(action="history", topic="news.damaged", limit=3)
            assert [message["body"] for message in found["messages"]] == [0, 1, 4]
            assert found["missing"] == [sent[2].id, sent[3].id]
            last = await reader.answer_to(action="history", topic="news.damaged", limit=1)
            assert [message["body"] for message in last["messages"]] == [4]
            assert "missing" not in last
            await reader.subscribe("news.damaged", rewind=3)
            assert await reader.hear_bodies(3) == [0, 1, 4]
    await store.close()
