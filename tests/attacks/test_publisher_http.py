"""A publisher with an HTTP key tries to make a frontdesk fail."""

from __future__ import annotations

import logging

import pytest
from house import open_house

from newsfabric.topics import TopicPolicy, TopicTable

TABLE = TopicTable([TopicPolicy(pattern="news.#")])


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("depth", [255, 1_000, 10_000])
async def test_a_body_that_is_nested_deeply_raises_an_error(
    depth: int, opening: bytes, closing: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    body = opening * depth + b"1" + closing * depth
    async with open_house(TABLE) as house:
        answer = await house.publish(b'{"topic":"news.x","body":' + body + b"}")
    assert answer.code == 400
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
