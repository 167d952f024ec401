"""The warning of `publish` about a topic without earlier messages, as far as that is known."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from newsfabric.topics import TopicPolicy, TopicTable
from operations.cli.unused import is_unused, refusal_hint, unused_hint

TABLE = TopicTable(
    [
        TopicPolicy(pattern="news.breaking", topic_class="gold"),
        TopicPolicy(pattern="news.*"),
        TopicPolicy(pattern="user.*", access="owner"),
        TopicPolicy(pattern="ticks.*", ttl=0),
    ]
)


class FrontdeskHandler(RequestHandler):
    """A frontdesk that replies with a document, or fails."""

    def initialize(self, asked: list[str], answer: Any) -> None:
        self._asked = asked
        self._answer = answer

    def get(self) -> None:
        self._asked.append(self.request.uri or "")
        if self._answer is None:
            self.set_status(429)
        self.finish(self._answer or {})


class Frontdesks:
    """Frontdesks with a reply for each."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._servers: list[HTTPServer] = []

    def answering(self, *answers: Any) -> list[str]:
        urls = []
        for answer in answers:
            fields = {"asked": self.asked, "answer": answer}
            server = HTTPServer(Application([("/history", FrontdeskHandler, fields)]))
            (socket,) = bind_sockets(0, "127.0.0.1")
            server.add_sockets([socket])
            self._servers.append(server)
            urls.append(f"http://127.0.0.1:{socket.getsockname()[1]}")
        return urls

    async def close(self) -> None:
        for server in self._servers:
            server.stop()
            await server.close_all_connections()


@pytest.fixture
async def frontdesks() -> AsyncIterator[Frontdesks]:
    frontdesks = Frontdesks()
    yield frontdesks
    await frontdesks.close()


async def test_a_topic_of_which_nothing_is_kept_is_unused(frontdesks: Frontdesks) -> None:
    urls = frontdesks.answering({"messages": []}, {"messages": [{}]})
    assert await is_unused("news.braking", TABLE, urls)
    assert frontdesks.asked == ["/history?topic=news.braking&limit=1"]


@pytest.mark.parametrize("answer", [{"messages": [{}]}, {"messages": [], "missing": ["i-1"]}])
async def test_one_with_a_message_is_not_readable_or_not(
    frontdesks: Frontdesks, answer: Any
) -> None:
    assert not await is_unused("news.world", TABLE, frontdesks.answering(answer))


async def test_the_next_frontdesk_is_asked_where_one_does_not_know(frontdesks: Frontdesks) -> None:
    gone = "http://127.0.0.1:1"
    for unknown in (None, [], {"messages": 0}):
        urls = frontdesks.answering(unknown) if unknown != [] else [gone]
        known = await is_unused("news.x", TABLE, [*urls, *frontdesks.answering({"messages": []})])
        assert known
    assert not await is_unused("news.x", TABLE, [gone, *frontdesks.answering(None)])


@pytest.mark.parametrize("topic", ["news.breaking", "user.42", "ticks.eur", "nowhere", "news..x"])
async def test_nobody_is_asked_what_is_known_or_can_not_be(
    frontdesks: Frontdesks, topic: str
) -> None:
    assert not await is_unused(topic, TABLE, frontdesks.answering({"messages": []}))
    assert frontdesks.asked == []


def test_a_topic_that_is_spelt_like_one_of_the_entries_is_named() -> None:
    begins, ends = "is kept from before: a new topic, or", "shows what it falls under"
    assert unused_hint("news.braking", TABLE) == (
        f"nothing of news.braking {begins} did you mean news.breaking? "
        f"`newsfabric topics match news.braking` {ends}"
    )
    assert unused_hint("news.world", TABLE) == (
        f"nothing of news.world {begins} a spelling mistake? "
        f"`newsfabric topics match news.world` {ends}"
    )


@pytest.mark.parametrize(
    ("reason", "topic", "error"),
    [
        ("topic_not_allowed", "nwes.breaking", "; did you mean news.breaking?"),
        ("topic_not_allowed", "weather.oregon", ""),
        ("not_json", "nwes.breaking", ""),
    ],
)
def test_who_is_refused_for_a_misspelt_topic_learns_what_may_have_been_meant(
    reason: str, topic: str, error: str
) -> None:
    assert refusal_hint(reason, topic, TABLE) == error
