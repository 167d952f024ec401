"""Another user's mailbox: refused on every transport, for each verb and each spelling of its topic.

User 7 has a letter. User 42, and readers without a login, ask for it in every possible way. Each
request is refused, and the mailbox stays unchanged.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from regions import TABLE, OpenedRegion, opened_mailbox, opened_region
from signing import token
from sockjs_sessions import TRANSPORTS, sockjs_session
from spellings import SPELLINGS

from gateway.wire.position import Position, encode
from newsfabric.messages.envelope import Envelope
from newsfabric.store.memory import MemoryStore

pytestmark = [pytest.mark.promise("M4")]

THEIRS = "user.7"
SECRET = {"secret": "letter"}
# All patterns that a token can ask for, and more.
EVERYTHING = ["#", "user.#", "user.*", THEIRS, "*.7", "_fabric.#"]
# unauthorized, unknown topic, permission denied, bad request
REFUSED = {101, 102, 103, 107}


@pytest.fixture
async def oregon(engine: str, tmp_path: Path) -> AsyncIterator[OpenedRegion]:
    async with opened_region(engine, tmp_path, MemoryStore(TABLE), sockjs_legacy=True) as region:
        yield region


@pytest.fixture
async def letter(oregon: OpenedRegion) -> Envelope:
    """Return a letter of user 7 that is in the store and in the gateway's memory."""
    written = await oregon.write_to("7", json.dumps(SECRET))
    async with oregon.device("7") as owner:
        assert [push["body"] for push in (await opened_mailbox(owner, "7"))[1]] == [SECRET]
    return written


@pytest.fixture(params=["nobody", "somebody else"])
def login(request: pytest.FixtureRequest) -> str | None:
    return token("42", topics=EVERYTHING) if request.param == "somebody else" else None


def ways(topic: Any, id_: str) -> Iterator[dict[str, Any]]:
    """Yield every verb that names a topic, with all its parameters."""
    yield {"action": "subscribe", "topic": topic}
    yield {"action": "subscribe", "topic": topic, "rewind": 5}
    yield {"action": "subscribe", "topic": topic, "rewind": "1h"}
    yield {"action": "subscribe", "topic": topic, "position": position_before()}
    yield {"action": "history", "topic": topic}
    yield {"action": "history", "topic": topic, "limit": 1}
    for kind in ("ack", "read", "dismiss"):
        yield {"action": kind, "topic": topic, "id": id_}


def position_before() -> str:
    """Return a position from before the letter."""
    return encode(Position(int(time.time() * 1000) - 60_000, {}))


def is_refused(pushes: list[dict[str, Any]]) -> None:
    for push in pushes:
        assert (push["type"], push.get("code") in REFUSED) == ("error", True), push


async def untouched(oregon: OpenedRegion) -> None:
    """Check that user 7 has its letter, without user marks."""
    async with oregon.device("7") as owner:
        _, pushes = await opened_mailbox(owner, "7")
    assert [(push["type"], push["body"]) for push in pushes] == [("message", SECRET)]


async def test_over_websocket(oregon: OpenedRegion, letter: Envelope, login: str | None) -> None:
    for topic in SPELLINGS:
        async with oregon.box.reader() as reader:
            if login is not None:
                assert (await reader.answer_to(action="login", token=login))["type"] == "logged_in"
            is_refused([await reader.answer_to(**verb) for verb in ways(topic, letter.id)])
            oregon.box.publish(THEIRS, {"secret": 2})
            await reader.is_up_to_date()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_over_sockjs(
    oregon: OpenedRegion, letter: Envelope, login: str | None, transport: str
) -> None:
    async with sockjs_session(oregon.box, transport) as session:
        if login is not None:
            await session.send_verbs({"action": "login", "token": login})
            assert (await session.hear(1))[0]["type"] == "logged_in"
        # As many verbs as a reader may send at once.
        for topic in SPELLINGS[:25]:
            verbs = list(ways(topic, letter.id))
            await session.send_verbs(*verbs)
            is_refused(await session.hear(len(verbs)))
        oregon.box.publish(THEIRS, {"secret": 2})
        await session.send_verbs({"action": "ping"})
        assert await session.hear(1) == [{"type": "pong"}]


@pytest.mark.parametrize("topic", SPELLINGS)
async def test_over_http(
    oregon: OpenedRegion, letter: Envelope, login: str | None, topic: str
) -> None:
    headers = {} if login is None else {"Authorization": f"Bearer {login}"}
    named = quote(topic, safe="")
    for path in (
        f"/events?topic={named}",
        f"/events?topic={named}&rewind=5",
        f"/events?topic={named}&rewind=1h",
        f"/events?topic={named}&last_event_id={position_before()}",
        f"/history?topic={named}",
        f"/history?topic={named}&after={position_before()}",
        f"/history?topic={named}&after={position_before()}&limit=1",
    ):
        answers = [
            await oregon.box.request("GET", path, **headers),
            await oregon.box.request("GET", path, **headers, Last_Event_ID=position_before()),
        ]
        for answer in answers:
            assert answer.status in (400, 401, 403, 404), path
            assert b"secret" not in answer.body


async def test_what_was_tried_in_vain_left_no_mark(oregon: OpenedRegion, letter: Envelope) -> None:
    async with oregon.device("42", topics=EVERYTHING) as reader:
        for kind in ("ack", "read", "dismiss"):
            for topic in (THEIRS, "user.42.7"):
                is_refused([await reader.answer_to(action=kind, topic=topic, id=letter.id)])
    await untouched(oregon)


async def test_anothers_message_isnt_marked_by_way_of_ones_own_topic(
    oregon: OpenedRegion, letter: Envelope
) -> None:
    mine = await oregon.write_to("42", 1)
    async with oregon.device("42") as reader, oregon.device("7") as owner:
        await opened_mailbox(reader, "42")
        await opened_mailbox(owner, "7")
        for kind in ("ack", "read", "dismiss"):
            reply = await reader.answer_to(action=kind, topic="user.42", id=letter.id)
            assert reply["type"] == "marked"
        # A user's marks are processed in turn: those before it had no effect.
        await reader.send_verb(action="read", topic="user.42", id=mine.id)
        assert {(await reader.hear())["type"] for _ in range(2)} == {"marked", "read"}
        await owner.is_up_to_date()
    await untouched(oregon)


async def test_by_the_very_words_that_have_just_opened_it_for_its_owner(
    oregon: OpenedRegion, letter: Envelope
) -> None:
    async with (
        oregon.device("7") as owner,
        oregon.device("42") as other,
        oregon.device("8") as more,
    ):
        for verb in ways(THEIRS, letter.id):
            if verb["action"] not in ("subscribe", "history"):
                continue
            assert (await owner.answer_to(**verb))["type"] in ("subscribed", "history"), verb
            is_refused([await other.answer_to(**verb), await more.answer_to(**verb)])
            if verb["action"] == "subscribe":
                await owner.send_verb(action="unsubscribe", topic=THEIRS)
            await owner.send_verb(action="ping", ref="fence")
            while (await owner.hear()) != {"type": "pong", "ref": "fence"}:
                pass


# JSON whose topic different parsers may read differently.
AMBIGUOUS = [
    '{"action":"subscribe","topic":"user.42","topic":"user.7"}',
    '{"action":"subscribe","topic":"user.7","topic":"user.42","topic":"user.7"}',
    '{"action":"ping","action":"subscribe","topic":"user.7"}',
    '{"action":"subscribe","topic":"user\\u002e7"}',
    '{"action":"subscribe","topic":"\\u0075ser.\\u0037"}',
    '{"\\u0061ction":"subscribe","\\u0074opic":"user.7"}',
    '{"action":"subscribe","topic":["user.7"]}',
    '{"action":"subscribe","topic":{"topic":"user.7"}}',
    '{"action":"subscribe","topics":["user.7"]}',
    '{"action":"subscribe","topic":7}',
    '{"action":"subscribe","Topic":"user.7"}',
    ' {"action":"history","topic":"user.42","topic":"user.7"} ',
    '{"action":"subscribe","topic":"user.7","user":"7"}',
    '{"action":"subscribe","topic":"user.7","token":"x","login":{"user":"7"}}',
    '[{"action":"subscribe","topic":"user.7"}]',
]  # fmt: skip


@pytest.mark.parametrize("text", AMBIGUOUS)
async def test_by_json_that_can_be_read_in_two_ways(
    oregon: OpenedRegion, letter: Envelope, text: str
) -> None:
    async with oregon.device("42", topics=EVERYTHING) as reader:
        await reader.connection.send(text)
        is_refused([await reader.hear()])
        oregon.box.publish(THEIRS, {"secret": 2})
        await reader.is_up_to_date()


@pytest.mark.parametrize("order", [("user.42", THEIRS), (THEIRS, "user.42")])
@pytest.mark.parametrize("begin", ["", "&rewind=5", "&last_event_id={}"])
async def test_beside_ones_own_in_an_event_stream(
    oregon: OpenedRegion, letter: Envelope, order: tuple[str, str], begin: str
) -> None:
    await oregon.write_to("42", '"mine"')
    bearer = {"Authorization": f"Bearer {token('42', topics=EVERYTHING)}"}
    query = "&".join(f"topic={topic}" for topic in order) + begin.format(position_before())
    async with oregon.box.opened() as raw:
        raw.send_request("GET", f"/events?{query}", **bearer)
        text = await raw.read_until(b'"body":"mine"')
        oregon.box.publish(THEIRS, {"secret": 2})
        oregon.box.publish("user.42", "live")
        text += await raw.read_until(b'"body":"live"')
    assert b"secret" not in text
    assert b'"code":103' in text


async def test_by_another_topic_in_the_same_query(oregon: OpenedRegion, letter: Envelope) -> None:
    bearer = {"Authorization": f"Bearer {token('42', topics=EVERYTHING)}"}
    for query in (f"topic=user.42&topic={THEIRS}", f"topic={THEIRS}&topic=user.42"):
        for after in ("", f"&after={position_before()}"):
            answer = await oregon.box.request("GET", f"/history?{query}{after}", **bearer)
            assert answer.status in (200, 403)
            assert b"secret" not in answer.body


async def test_a_position_of_anothers_mailbox_opens_nothing_in_ones_own(
    oregon: OpenedRegion, letter: Envelope
) -> None:
    async with oregon.device("7") as owner:
        _, pushes = await opened_mailbox(owner, "7")
        position = pushes[-1]["position"]
    await oregon.write_to("7", json.dumps(SECRET))
    await oregon.write_to("42", '"mine"')
    async with oregon.device("42") as reader:
        await reader.subscribe("user.42", position=position)
        assert (await reader.hear())["body"] == "mine"
        await reader.is_up_to_date()
    bearer = {"Authorization": f"Bearer {token('42')}"}
    path = f"/history?topic=user.42&after={position}"
    answer = await oregon.box.request("GET", path, **bearer)
    assert [message["body"] for message in answer.json()["messages"]] == ["mine"]
