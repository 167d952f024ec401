"""What a reader's text becomes, and where the past comes from."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from envelopes import START_MS, envelope
from fake_dataplane import READER, FakeDataplane, Visit, fake_dataplane, uncovered, verbs
from gateways import until

from gateway.logs import LeftLogs
from gateway.native.core import NativeCore
from gateway.native.plane import State
from gateway.position import Position, decode, encode, log_of
from gateway.settings import GatewaySettings, NativeSettings
from newsfabric.envelope import Envelope
from newsfabric.errors import StoreUnavailable
from newsfabric.store.logs import DirectoryRow
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicPolicy, TopicTable

TABLE = TopicTable(
    [
        TopicPolicy(pattern="news.latest", keep=3, latest=True),
        TopicPolicy(pattern="news.*", keep=3),
        TopicPolicy(pattern="user.*", access="owner"),
    ]
)

YOUNG = int(time.time() * 1000)


class CountingStore(MemoryStore):
    """Counts reads of a history, and may be away or slow."""

    def __init__(self) -> None:
        super().__init__(TABLE, now_ms=lambda: START_MS)
        self.reads = 0
        self.resumes = 0
        self.away = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def since(self, *args: Any, **kwargs: Any) -> list[Envelope]:
        self.resumes += 1
        return await super().since(*args, **kwargs)

    async def history(self, *args: Any, **kwargs: Any) -> list[Envelope]:
        self.reads += 1
        await self.gate.wait()
        if self.away:
            raise StoreUnavailable("away")
        return await super().history(*args, **kwargs)


class Desk:
    """A native core attached to a data plane of ours, which asks as readers would."""

    def __init__(
        self, core: NativeCore, store: CountingStore, fake: FakeDataplane, visit: Visit
    ) -> None:
        self.core, self.store, self.fake, self.visit = core, store, fake, visit
        self.said = b""

    async def lacks(self, command: dict[str, Any], *, why: int = 0) -> None:
        """Say that memory isn't enough for ``command``, which was to answer the last verb."""
        await self.visit.say(uncovered(self.said, command["token"], why=why))

    async def ask(self, **verb: Any) -> tuple[str, dict[str, Any]]:
        """Say ``verb``; the command that comes of it."""
        self.said = json.dumps(verb).encode()
        await self.visit.say(verbs(self.said))
        command = await self.visit.hear()
        return command.name, command.fields

    async def replied(self, **verb: Any) -> dict[str, Any]:
        name, fields = await self.ask(**verb)
        assert (name, fields["connection"]) == ("reply", READER)
        return dict(json.loads(fields["push"]))


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    path = tmp_path / "control"
    store = CountingStore()
    told = GatewaySettings(
        name="b", region="oregon", native=NativeSettings(socket=path), store_timeout=1.0
    )
    async with fake_dataplane(path) as fake:
        core = NativeCore(told, TABLE, store, Path("/nowhere"), asyncio.Event())
        visit = await attached(fake, core)
        core.follower.begin(LeftLogs((), 0))
        yield Desk(core, store, fake, visit)
        await core.close()


async def attached(fake: FakeDataplane, core: NativeCore, attachment: int = 1) -> Visit:
    attaching = asyncio.create_task(core.plane.attach())
    visit = await fake.visited()
    await visit.greet(attachment=attachment)
    await asyncio.wait_for(attaching, 60)
    return visit


def news(number: int, **fields: Any) -> Envelope:
    """Number ``number`` of a log that is younger than the gateway: only what it saw is past."""
    now_ms = int(time.time() * 1000)
    return envelope(number, at=now_ms + number - START_MS, epoch=YOUNG, **fields)


def seq(message: dict[str, Any]) -> int:
    return int(json.loads(message["push"])["body"]["headline"])


async def test_a_subscribe_without_a_past_doesnt_wait_for_the_store(desk: Desk) -> None:
    name, fields = await desk.ask(action="subscribe", topic="news.a", ref="r")
    assert name == "subscribe"
    assert fields["topic"] == ("news.a", 3, 2, 0)
    assert (fields["only_if_covered"], fields["replay"], fields["older"]) == (0, (0, 0), [])
    assert fields["ref"] == b'"r"'
    push = json.loads(fields["push"])
    assert (push["type"], push["ref"], push["topic"]) == ("subscribed", "r", "news.a")
    assert desk.store.reads == 0


async def test_who_says_the_same_is_answered_by_name(desk: Desk) -> None:
    other = READER[::-1]
    text = b'{"action":"subscribe","topic":"news.latest"}'
    await desk.visit.say(verbs(text) + verbs(text, connection=other))
    first, second = [await desk.visit.hear_named("subscribe") for _ in range(2)]
    assert (first["connection"], second["connection"]) == (READER, other)
    assert {**first, "connection": other} == second


async def test_the_same_text_is_answered_with_the_position_of_the_moment(desk: Desk) -> None:
    made = news(1, topic="news.b")
    _, before = await desk.ask(action="subscribe", topic="news.a")
    desk.core.hub.offer(made, time.time())
    _, after = await desk.ask(action="subscribe", topic="news.a")
    positions = [json.loads(fields["push"])["position"] for fields in (before, after)]
    assert [decode(one).covers(log_of(made), 1) for one in positions] == [False, True]


async def test_a_ref_is_echoed_as_it_was_said(desk: Desk) -> None:
    for ref in (1, True, 1.0):
        _, fields = await desk.ask(action="subscribe", topic="news.a", ref=ref)
        assert fields["ref"] == json.dumps(ref).encode()


async def test_unsubscribe_and_ping(desk: Desk) -> None:
    name, fields = await desk.ask(action="unsubscribe", topic="news.a", ref=1)
    assert (name, fields["name"]) == ("unsubscribe", "news.a")
    assert json.loads(fields["push"]) == {"type": "unsubscribed", "ref": 1, "topic": "news.a"}
    assert await desk.replied(action="ping") == {"type": "pong"}


@pytest.mark.parametrize(
    ("verb", "code"),
    [
        ({"action": "subscribe", "topic": "user.7"}, 101),
        ({"action": "subscribe", "topic": "weather.oslo"}, 102),
        ({"action": "shout"}, 107),
    ],
)
async def test_refusals_are_replies(desk: Desk, verb: dict[str, Any], code: int) -> None:
    push = await desk.replied(**verb)
    assert (push["type"], push["code"]) == ("error", code)


async def test_what_is_no_json_is_refused(desk: Desk) -> None:
    for text in (b"", b"\xff", b"[]"):
        await desk.visit.say(verbs(text))
        assert json.loads((await desk.visit.hear_named("reply"))["push"])["code"] == 107


async def test_a_cold_topic_is_seeded_and_the_subscribe_comes_again(desk: Desk) -> None:
    await desk.store.write([envelope(n, topic="news.a", at=n) for n in range(5)])
    _, asked = await desk.ask(action="subscribe", topic="news.a", rewind=2)
    assert (asked["only_if_covered"], asked["replay"]) == (1, (1, 2))
    await desk.lacks(asked)
    seed = await desk.visit.hear_named("seed")
    assert ([seq(m) for m in seed["history"]], seed["complete"]) == ([2, 3, 4], 0)
    again = await desk.visit.hear_named("subscribe")
    assert (again["only_if_covered"], again["replay"]) == (1, (1, 2))
    assert again["token"] != asked["token"]


async def test_a_topic_is_read_once_however_many_wait(desk: Desk) -> None:
    desk.store.gate.clear()
    for _ in range(5):
        _, asked = await desk.ask(action="subscribe", topic="news.a", rewind=2)
        await desk.lacks(asked)
    assert await desk.replied(action="ping") == {"type": "pong"}
    desk.store.gate.set()
    await desk.visit.hear_named("seed")
    for _ in range(5):
        await desk.visit.hear_named("subscribe")
    assert desk.store.reads == 1


async def test_a_rewind_beyond_memory_brings_the_older_ones_along(desk: Desk) -> None:
    await desk.store.write([envelope(n, topic="news.a", at=n) for n in range(9)])
    _, asked = await desk.ask(action="subscribe", topic="news.a", rewind=7)
    await desk.lacks(asked, why=1)
    joined = await desk.visit.hear_named("subscribe")
    assert (joined["only_if_covered"], joined["replay"]) == (0, (1, 7))
    assert [seq(m) for m in joined["older"]] == [2, 3, 4, 5, 6, 7, 8]


async def test_a_topic_that_is_cold_again_after_its_seed_is_answered_from_the_store(
    desk: Desk,
) -> None:
    _, asked = await desk.ask(action="subscribe", topic="news.a", rewind="5m")
    await desk.lacks(asked)
    await desk.visit.hear_named("seed")
    again = await desk.visit.hear_named("subscribe")
    await desk.lacks(again)
    joined = await desk.visit.hear_named("subscribe")
    assert (joined["only_if_covered"], joined["replay"][0]) == (0, 2)


async def test_newest_versions_are_seeded_too(desk: Desk) -> None:
    old = envelope(1, topic="news.latest", key="k", version=1)
    await desk.store.write([old, envelope(2, topic="news.latest", key="k", version=2, at=1)])
    _, asked = await desk.ask(action="subscribe", topic="news.latest")
    assert (asked["only_if_covered"], asked["topic"][3]) == (1, 1)
    await desk.lacks(asked)
    seed = await desk.visit.hear_named("seed")
    assert [(m["key"], m["version"]) for m in seed["latest"]] == [("k", 2)]
    assert seed["complete"] == 1


async def test_what_the_feed_hasnt_brought_is_in_no_seed(desk: Desk) -> None:
    known, other = news(1, topic="news.a"), news(2, topic="news.a")
    desk.core.hub.offer(known, time.time())
    await desk.store.write([known, other])
    _, asked = await desk.ask(action="subscribe", topic="news.a", rewind=2)
    await desk.lacks(asked)
    seed = await desk.visit.hear_named("seed")
    assert [seq(m) for m in seed["history"]] == [1]
    await desk.visit.hear_named("subscribe")
    # It comes live.
    assert desk.core.hub.offer(other, time.time()) is not None


async def test_a_newest_version_that_the_feed_hasnt_brought_is_in_no_seed(desk: Desk) -> None:
    known = news(1, topic="news.latest", key="k", version=1)
    other = news(2, topic="news.latest", key="l", version=1)
    desk.core.hub.offer(known, time.time())
    await desk.store.write([known, other])
    _, asked = await desk.ask(action="subscribe", topic="news.latest")
    await desk.lacks(asked)
    seed = await desk.visit.hear_named("seed")
    assert [m["key"] for m in seed["latest"]] == ["k"]


async def test_what_the_feed_hasnt_brought_is_in_no_rewind(desk: Desk) -> None:
    made = [news(n, topic="news.a") for n in range(1, 10)]
    for one in made[:8]:
        desk.core.hub.offer(one, time.time())
    await desk.store.write(made)
    _, asked = await desk.ask(action="subscribe", topic="news.a", rewind=7)
    await desk.lacks(asked, why=1)
    joined = await desk.visit.hear_named("subscribe")
    assert [seq(m) for m in joined["older"]] == [3, 4, 5, 6, 7, 8]


async def test_what_a_gateway_began_after_is_past(desk: Desk) -> None:
    made = [news(n, topic="news.a") for n in (1, 2, 3)]
    desk.core.hub.logs.begin([DirectoryRow(log_of(made[0]), low=2)], now=desk.core.clock())
    await desk.store.write(made)
    _, asked = await desk.ask(action="subscribe", topic="news.a", rewind=2)
    await desk.lacks(asked)
    seed = await desk.visit.hear_named("seed")
    assert [seq(m) for m in seed["history"]] == [1, 2]


async def test_history_comes_from_memory_else_from_the_store(desk: Desk) -> None:
    await desk.store.write([envelope(n, topic="news.a", at=n) for n in range(9)])
    before = envelope(8, at=8).id
    name, asked = await desk.ask(action="history", topic="news.a", limit=2, before=before, ref=3)
    assert (name, asked["limit"], asked["has_before"]) == ("history", 2, 1)
    assert asked["before"] == bytes.fromhex(before.replace("-", ""))
    assert json.loads(asked["head"] + b'false,"messages":[]}') == {
        "type": "history", "ref": 3, "topic": "news.a", "more": False, "messages": [],
    }  # fmt: skip
    await desk.lacks(asked)
    await desk.visit.hear_named("seed")
    again = await desk.visit.hear_named("history")
    await desk.lacks(again, why=1)
    push = json.loads((await desk.visit.hear_named("reply"))["push"])
    assert [m["body"]["headline"] for m in push["messages"]] == [6, 7]
    assert (push["ref"], push["more"]) == (3, True)


async def test_without_the_store_subscribing_works_and_history_is_refused(desk: Desk) -> None:
    desk.store.away = True
    _, asked = await desk.ask(action="subscribe", topic="news.a", rewind=2)
    await desk.lacks(asked)
    joined = await desk.visit.hear_named("subscribe")
    assert (joined["only_if_covered"], joined["older"]) == (0, [])
    _, asked = await desk.ask(action="history", topic="news.a")
    await desk.lacks(asked)
    push = json.loads((await desk.visit.hear_named("reply"))["push"])
    assert (push["code"], push["temporary"]) == (100, True)


async def test_an_answer_that_comes_after_its_attachment_isnt_sent(
    desk: Desk, tmp_path: Path
) -> None:
    desk.store.gate.clear()
    _, asked = await desk.ask(action="subscribe", topic="news.a", rewind=2)
    await desk.lacks(asked)
    assert await desk.replied(action="ping") == {"type": "pong"}
    desk.visit.leave()
    await until(lambda: desk.core.plane.state is State.AWAY)
    desk.fake.close()
    async with fake_dataplane(tmp_path / "control") as fake:
        visit = await attached(fake, desk.core, attachment=2)
        desk.store.gate.set()
        # The topic's past is worth knowing whoever asked for it.
        assert (await visit.hear()).name == "seed"
        await visit.say(verbs(b'{"action":"ping"}'))
        assert (await visit.hear()).name == "reply"


async def test_the_past_of_a_verb_that_an_earlier_control_plane_was_told_is_found(
    desk: Desk,
) -> None:
    await desk.store.write([envelope(n, topic="news.a", at=n) for n in range(9)])
    verb = {"action": "subscribe", "topic": "news.a", "rewind": 7, "ref": "r"}
    await desk.visit.say(uncovered(json.dumps(verb).encode(), why=1))
    joined = await desk.visit.hear_named("subscribe")
    assert (joined["connection"], joined["ref"]) == (READER, b'"r"')
    assert [seq(m) for m in joined["older"]] == [2, 3, 4, 5, 6, 7, 8]


async def test_a_position_that_is_too_old_for_all_is_answered_as_far_as_there_is_anything(
    desk: Desk,
) -> None:
    await desk.store.write([envelope(n, topic="news.latest", at=n, key=f"{n}") for n in range(2)])
    ancient = encode(Position(START_MS - 10**9, {}))
    _, asked = await desk.ask(action="subscribe", topic="news.latest", position=ancient)
    assert asked["only_if_covered"] == 1
    await desk.lacks(asked)
    seed = await desk.visit.hear_named("seed")
    assert [seq(m) for m in seed["history"]] == [0, 1]
    again = await desk.visit.hear_named("subscribe")
    assert again["only_if_covered"] == 1
    assert again["token"] != asked["token"]
    await desk.lacks(again)
    joined = await desk.visit.hear_named("subscribe")
    assert (joined["only_if_covered"], json.loads(joined["push"])["recovered"]) == (0, False)


async def test_a_verb_that_asks_nothing_of_the_past_is_not_left_hanging(desk: Desk) -> None:
    await desk.visit.say(uncovered(b'{"action":"ping"}'))
    closed = await desk.visit.hear_named("close")
    assert (closed["connection"], closed["name"]) == (READER, "internal")


async def test_who_resumes_is_given_what_it_missed_and_others_get_it_by_number(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever says the same within a second is answered the same.
    now = time.time() + 1
    monkeypatch.setattr(desk.core.resumer, "_now", lambda: now)
    made = [news(n) for n in range(1, 7)]
    logs, now_ms = desk.core.hub.logs, int(time.time() * 1000)
    logs.heard(log_of(made[0]), 0, 0, sent_ms=now_ms, now=desk.core.clock())
    begin = desk.core.hub.position(time.time())
    # Memory has three of them; the sixth is still to come, on the feed or by its number.
    for one in made[:5]:
        desk.core.hub.offer(one, time.time())
    await desk.store.write(made)
    verb = {"action": "subscribe", "topic": "news.breaking", "ref": 1, "position": begin}
    name, fields = await desk.ask(**verb)
    assert (name, fields["replay"]) == ("subscribe", (3, 0))
    push = json.loads(fields["push"])
    assert (push["recovered"], push["ref"], push["position"]) == (True, 1, begin)
    assert [seq(message) for message in fields["older"]] == [1, 2, 3, 4, 5]
    name, batch = await desk.ask(**verb)
    assert (name, batch["number"], batch["topic"][0]) == ("batch", 1, "news.breaking")
    assert batch["messages"] == fields["older"]
    again = (await desk.visit.hear()).fields
    assert (again["replay"], again["older"], again["push"]) == ((3, 1), [], fields["push"])
    third = (await desk.ask(**verb))[1]
    assert (third["replay"], third["older"]) == ((3, 1), [])
    assert desk.store.resumes == 1
