"""An anonymous reader sends numbers in every spelling, wherever a number is read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
from envelopes import envelope
from gateways import ENGINES, PATIENCE, Response, opened_box
from house import House, open_house

from newsfabric.messages.envelope import MAX_EXPIRATION
from newsfabric.topics import TopicPolicy, TopicTable

TABLE = TopicTable([TopicPolicy(pattern="news.#")])
# Each was 5 for int(), or looked like a small number at its beginning.
SPELLINGS = (
    "0000000019999", "05", "+5", " 5", "5 ", "5_0", "5.0", "5e0", "0x5", "٥", "５", "²", "-5",
    "5\0", "5\n", "0", "201", "1001", "9" * 19, "9" * 4_301, "1e400", "NaN", "Infinity", "true",
    "null",
)  # fmt: skip
# Values that no JSON may have as a number here; in addition, each of the spellings as text.
VALUES = ("1e400", "-1", "0", "1.5", "5.0", "true", "1001", "9" * 400, "[5]", '{"a": 5}')


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with open_house(TABLE) as opened:
        yield opened


async def test_more_of_the_history_than_one_answer_may_have(house: House) -> None:
    await house.store.write([envelope(n, topic="news.world") for n in range(1, 301)])
    for text in SPELLINGS:
        answer = await house.fetch(f"/history?topic=news.world&limit={quote(text)}")
        assert answer.code == 400, text
        assert json.loads(answer.body)["error"]["reason"] == "bad_request"
    answer = await house.fetch("/history?topic=news.world&limit=200")
    assert len(json.loads(answer.body)["messages"]) == 200


@pytest.mark.parametrize(
    "length", ["x", "-1", "+5", "5_0", "٥", "5, 5", "9" * 19, "9" * 5_000, "0x5", "1e3"]
)
async def test_a_length_of_a_body_that_raises_in_the_frontdesk(house: House, length: str) -> None:
    # A log record at ERROR fails the test: see tests/conftest.py.
    head = "POST /publish HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", house.service.port)
    writer.write(f"{head}Content-Length: {length}\r\n\r\n{{}}".encode())
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), PATIENCE)
    assert answer == b"" or Response.of(answer).status in (400, 413)
    writer.close()
    await writer.wait_closed()


async def test_an_expiration_for_which_the_broker_closes_the_frontdesks_channel(
    house: House,
) -> None:
    for expiration in (MAX_EXPIRATION + 1, 2**53, 10**400, 1e300, -1, 0, 5.0, True, "5000"):
        document = {"topic": "news.world", "body": 1, "expiration": expiration}
        answer = await house.publish(document)
        assert (answer.code, house.published()) == (400, []), expiration


@pytest.mark.parametrize("engine", list(ENGINES))
async def test_more_of_a_topic_than_one_reader_may_have(engine: str) -> None:
    async with opened_box(engine, table=TABLE) as box:
        for _ in range(3):
            box.publish("news.world")
        for text in SPELLINGS:
            if text not in ("201", "1001"):
                page = await box.request("GET", f"/history?topic=news.world&limit={quote(text)}")
                assert page.status == 400, text
            if text != "201":
                path = f"/events?topic=news.world&rewind={quote(text)}"
                assert (await box.request("GET", path)).status == 400, text
        async with box.reader() as reader:
            values: list[Any] = [*VALUES, *map(json.dumps, SPELLINGS)]
            for value in values:
                for verb in ("history", "subscribe"):
                    name = "limit" if verb == "history" else "rewind"
                    found = f'{{"action": "{verb}", "topic": "news.world", "{name}": {value}}}'
                    await reader.connection.send(found)
                    assert (await reader.hear())["type"] == "error", found
            await reader.is_up_to_date()
